"""The part of `compose` for batch systems that are read: Torque, OpenPBS, Grid Engine, or a Slurm
that stays as it is.
"""

import os
import shutil
import socket
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from importlib import import_module
from ipaddress import IPv4Network

from springtide.batch.marks import Book
from springtide.batch.polled import Polled
from springtide.batch.slurm_service import PATH
from springtide.configure.cloud_node import Boots, ByGroup
from springtide.configure.joining_node import JoiningNode
from springtide.configure.lookup import Lookup
from springtide.configure.membership import Membership, told
from springtide.configure.node_ssh import HOST_KEY, NodeSsh
from springtide.configure.queue_cloud import QueueCloudNode
from springtide.configure.queue_node import HERE, QueueNode
from springtide.configure.welcome import Control
from springtide.daemon import DaemonError
from springtide.layout import Layout
from springtide.ports import Entry, Member, NodeConfigurator, Queue, Site, Unavailable
from springtide.providers.containers import addresses
from springtide.providers.containers.start import control_names
from springtide.served.hosts_block import HostsBlock
from springtide.served.where import is_here
from springtide.spec import Cluster, GridEngine, Queued, Slurm, Torque
from springtide.spec.clouds import OpenStack, Remote
from springtide.wiring import View, Wiring, container_nodes, mounts, pin

LOCAL = "127."
NOWHERE = "192.0.2.1"
UNUSED = IPv4Network("198.18.0.0/15")
"""Kept for measurements of networks, and routed nowhere."""
PLACES = f"{PATH}:/opt/pbs/bin:/opt/pbs/sbin"
"""Where commands are besides the PATH: OpenPBS's are put into a place of their own."""


def queue_of(spec: Cluster) -> Queue:
    """The adapter of its kind, which is imported only if it is used."""
    kind = "slurm_polled" if isinstance(spec.batch, Slurm) else spec.batch.kind
    try:
        queue: Queue = import_module(f"springtide.batch.{kind}").queue(spec)
    except Unavailable as error:
        raise DaemonError(str(error)) from error
    return queue


def missing(spec: Cluster) -> list[str]:
    """The commands of a batch system that is read which are not there.

    Those of one in a directory of its own are nowhere else: others have the same names.
    """
    if not spec.polled:
        return []
    place = spec.batch.bin if isinstance(spec.batch, Queued) else None
    path = str(place or f"{os.environ.get('PATH', '')}:{PLACES}")
    return [name for name in queue_of(spec).programs if shutil.which(name, path=path) is None]


def _remedy(spec: Cluster) -> str:
    """What to do about commands that are not there."""
    if isinstance(spec.batch, Slurm):
        return "install slurm-client on this machine"
    return (
        f"install the commands of {spec.batch.kind} on this machine, or set batch.bin to their "
        "directory"
    )


def lacks(spec: Cluster) -> str:
    """Which commands are not there, and what to do; empty if all are."""
    if names := missing(spec):
        found = f"batch.kind {spec.batch.kind} needs commands that are not there"
        return f"{found}: {', '.join(names)}; {_remedy(spec)}"
    return ""


def require_programs(spec: Cluster) -> None:
    """A server may be away for a while, and is waited for; commands do not come by themselves."""
    if said := lacks(spec):
        raise DaemonError(said)


def polled(spec: Cluster, book: Book, now: Callable[[], float]) -> Polled:
    return Polled(queue_of(spec), members(spec), book, now, partial(planned, spec))


def members(spec: Cluster) -> dict[str, Member]:
    """Our nodes as the batch system is to know them; where they are is told when they join."""
    return {name: _member(spec, name) for name in spec.managed}


def _member(spec: Cluster, name: str) -> Member:
    group = spec.node_group[name]
    cores, memory = told(spec, group)
    queues = [key for key, one in spec.partitions.items() if group in one.groups]
    return Member(name, "", cores, memory, features(spec, group), tuple(queues))


def planned(spec: Cluster, site: Site) -> dict[str, str]:
    """The addresses that nodes of Torque will have, as far as that is known while they are off:
    pbs_server resolves their names when it starts, and trusts no others."""
    if not isinstance(spec.batch, Torque) or spec.batch.hosts is None:
        return {}
    providers = [spec.provider_of(group) for group in spec.groups]
    found = [one.addresses for one in providers if isinstance(one, OpenStack)]
    if "bridge" in site.facts:
        found.append(addresses.planned(IPv4Network(site.facts["subnet"]), container_nodes(spec)))
    known = {name: at for some in (*found, spec.addresses) for name, at in some.items()}
    return {name: at for name, at in known.items() if name in spec.managed}


def features(spec: Cluster, group: str) -> tuple[str, ...]:
    """A group's own, and those that all its flavors have."""
    first, *others = [spec.flavor(name).features for name in spec.groups[group].flavors]
    common = [each for each in first if all(each in other for other in others)]
    return tuple(dict.fromkeys((*spec.groups[group].features, *common)))


def wired(spec: Cluster, book: Book, now: Callable[[], float]) -> Wiring:
    """For all of them but Slurm, whose nodes boot as those of any Slurm."""
    assert isinstance(spec.batch, Queued)
    batch = polled(spec, book, now)
    layout = Layout(spec.state)
    servers = Lookup(lambda: _servers(spec, batch.queue), layout.conf / "servers")
    node = _node(spec, batch, servers)
    names = tuple(node.control.split())
    control = Control(names=names, address="", port=0, socket=layout.munge_socket)
    return Wiring(
        batch=batch,
        nodes=_with_clouds(spec, node, servers),
        control=names[-1],
        membership=Membership(spec, control, layout.munge_key, batch.queue.entry, node.elsewhere),
        key=layout.munge_key,
        served=(
            HostsBlock(
                spec.batch.hosts,
                spec.cluster,
                _nowhere(spec),
                layout.naming / "hosts-file",
                partial(planned, spec),
            ),
        ),
    )


def _nowhere(spec: Cluster) -> Mapping[str, str]:
    """Grid Engine's placeholder must have an address, and so must all nodes of Torque before they
    were ever on; nobody has these. Each cluster begins elsewhere, so that two hardly share any."""
    match spec.batch:
        case GridEngine():
            return {spec.batch.placeholder_of(spec.cluster): NOWHERE}
        case Torque():
            first = int(sha256(spec.cluster.encode()).hexdigest(), 16)
            places = range(first, first + len(spec.managed))
            usable = UNUSED.num_addresses - 2
            numbers = (1 + place % usable for place in places)
            return {name: str(UNUSED[n]) for name, n in zip(spec.managed, numbers, strict=True)}
    return {}


def _node(spec: Cluster, batch: Polled, servers: Lookup) -> QueueNode:
    layout, queue = Layout(spec.state), batch.queue
    return QueueNode(
        hosts=layout.conf / "hosts",
        control=control_names(),
        entry=queue.entry,
        host_key=layout.munge_key.with_name(HOST_KEY),
        mounts=mounts(spec),
        others=servers,
        health=spec.health,
        ssh=NodeSsh.of(spec),
        joined=partial(_expected, spec, batch) if isinstance(spec.batch, Torque) else None,
    )


async def _expected(spec: Cluster, batch: Polled) -> frozenset[str]:
    """For `QueueNode.joined`: also machines that are not ours to start, or have their place by the
    file."""
    others = (name for name in spec.node_group if name not in batch.members)
    return frozenset((*await batch.joined(), *spec.addresses, *others))


def _servers(spec: Cluster, queue: Queue) -> Mapping[str, str]:
    """Where the batch system's machines are, for `QueueNode.others`; nodes know the names of this
    one anyway, and themselves.

    A server that nodes reach by one address only is told with that, though it may be this machine,
    which nodes find elsewhere too.
    """
    entry = queue.entry(spec.managed[0]) if spec.managed else Entry(())
    own = control_names().split()
    found = {
        server: _address(server) for server in entry.servers if server not in (*own, "localhost")
    }
    at = registered_address(entry)
    if at is None:
        return found | dict.fromkeys((*entry.servers, *own), "")
    if at and not at.startswith(LOCAL):
        found |= dict.fromkeys((*entry.servers, *(own if is_here(at) else ())), at)
    return found


def registered_address(entry: Entry) -> str | None:
    """The only one by which nodes reach the server; empty if any will do, None if it cannot be
    found out now."""
    if not entry.registered:
        return ""
    try:
        return socket.gethostbyname(entry.registered)
    except OSError:
        return None


def _address(name: str) -> str:
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return ""
    return HERE if address.startswith(LOCAL) or is_here(address) else address


def view(spec: Cluster) -> View:
    """Container nodes have their host key beside the configuration."""
    layout = Layout(spec.state)
    layout.munge_key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return View((layout.conf, layout.munge_key.parent))


def _with_clouds(spec: Cluster, node: QueueNode, servers: Lookup) -> NodeConfigurator:
    known_by = pin(spec)
    clouds = {key: _cloud(spec, key, node, servers, known_by) for key in spec.remote}
    return ByGroup(node, clouds) if clouds else node


def _cloud(spec: Cluster, group: str, node: QueueNode, servers: Lookup, known_by: str) -> Boots:
    provider = spec.provider_of(group)
    assert isinstance(provider, Remote)
    address = provider.control_address
    if not spec.gets(group):
        return QueueCloudNode(node.control, node.entry, address, servers.last)
    return JoiningNode(known_by, spec.join.port, address)
