"""What both ways with machines share: looking at them, and their marks.

A domain that has no mark of ours, or another cluster's, is not listed, so nothing is done to it.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import libvirt

from springtide.ports import CloudFlavor, Instance, InstanceState, Site
from springtide.providers.cloud import Catalog
from springtide.providers.cloud.here import own_address
from springtide.providers.libvirt import marks
from springtide.providers.libvirt.connection import Connection, told
from springtide.providers.libvirt.errors import is_gone
from springtide.providers.libvirt.marks import Mark
from springtide.providers.libvirt.network import Network
from springtide.spec.clouds import Libvirt

ELEMENT = libvirt.VIR_DOMAIN_METADATA_ELEMENT
LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
CONFIG = libvirt.VIR_DOMAIN_AFFECT_CONFIG
OFF = frozenset({libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_CRASHED})


class Host:
    """One libvirt, seen by one cluster file."""

    batch = 1

    def __init__(self, wanted: Libvirt, catalog: Catalog) -> None:
        self.wanted = wanted
        self.catalog = catalog
        self.network = Network(wanted.network)
        self.connection = Connection(wanted.uri, wanted.timeout)
        self._locks: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)

    def site(self) -> Site:
        return Site(self.wanted.control_address or own_address())

    def flavors(self) -> dict[str, CloudFlavor]:
        """Machines are as large as the file says."""
        return {}

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def alone(self, node: str) -> Iterator[Any]:
        """One thread of ours at a time does something to a node."""
        with self._locks[node], told(node):
            yield self.connection.get()

    def marked(self, cluster: str) -> Iterator[tuple[Mark, int, int]]:
        """The marks of a cluster, with state and reason as libvirt tells them."""
        return (one for one in self.all_marked() if one[0].cluster == cluster)

    def all_marked(self) -> Iterator[tuple[Mark, int, int]]:
        connection = self.connection.get()
        with told("the list of machines"):
            flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
            stats = connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, flags)
            for domain, said in stats:
                mark = mark_of(domain)
                if mark is not None:
                    yield mark, said.get("state.state", 0), said.get("state.reason", 0)

    def instance(self, mark: Mark, state: InstanceState, address: str | None) -> Instance:
        return marks.instance(mark, state, self._image(mark), address)

    def _image(self, mark: Mark) -> str:
        """What the cluster file calls it now; if nothing, its path."""
        if not mark.disk:
            return mark.image
        named = [name for name, image in self.catalog.images.items() if _is(image.path, mark.disk)]
        return mark.image if mark.image in named else next(iter(named), mark.disk)


def _is(path: object, other: str) -> bool:
    return path is not None and str(path) == other


def mark_of(domain: Any) -> Mark | None:
    """None also of one that has gone meanwhile."""
    try:
        return marks.parse(domain.metadata(ELEMENT, marks.SPACE, 0))
    except libvirt.libvirtError as error:
        if is_gone(error):
            return None
        raise


def put_mark(domain: Any, mark: Mark | None) -> None:
    """On the running machine and on its definition; None takes it away."""
    flags = (LIVE if domain.isActive() else 0) | (CONFIG if domain.isPersistent() else 0)
    text = marks.render(mark) if mark else None
    domain.setMetadata(ELEMENT, text, marks.PREFIX, marks.SPACE, flags)


def found(connection: Any, name: str) -> Any:
    """The domain; None if there is none."""
    try:
        return connection.lookupByName(name)
    except libvirt.libvirtError as error:
        if is_gone(error):
            return None
        raise


def cut_off(domain: Any) -> None:
    """Off already is fine."""
    try:
        domain.destroy()
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_OPERATION_INVALID and not is_gone(error):
            raise
