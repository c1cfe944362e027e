"""By which addresses nodes reach this machine."""

import socket
from collections.abc import Iterable
from contextlib import closing

from springtide.configure.names import address_for
from springtide.ports import Site
from springtide.spec import Cluster


def addresses_for(spec: Cluster, groups: Iterable[str], site: Site) -> list[str]:
    """Those that groups know; or the one that the file has this machine listen on.

    Nodes may know it by an address that only a router on the way has.
    """
    if spec.join.listen:
        return [spec.join.listen]
    return list(dict.fromkeys(address_for(spec, group, site) for group in groups))


def is_here(address: str) -> bool:
    """Whether this machine has the address."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
