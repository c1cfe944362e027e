"""Addresses of nodes. Each in use is a symbolic link `addresses/ADDRESS` to its node's name.

Making a link succeeds for one caller only, in whatever thread or process. A node gets the same
address each time it is made, as long as the cluster file has the same nodes: see `planned`.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network
from itertools import islice
from pathlib import Path

from springtide.ports import NoCapacity

MOST_PORTS = 1023
"""The kernel's limit on the ports of a bridge."""


def links_in(directory: Path) -> Path:
    return directory / "addresses"


def planned(subnet: IPv4Network, nodes: Iterable[str]) -> dict[str, str]:
    """One address for each node of a cluster, in their order; those beyond the subnet have none."""
    places = islice(subnet.hosts(), 1, None)
    return {node: str(address) for node, address in zip(nodes, places, strict=False)}


def free_addresses(
    directory: Path, subnet: IPv4Network, plan: Mapping[str, str], node: str
) -> Iterator[str]:
    """The free ones: the node's own, then those that are planned for nobody, lowest first, then
    all others. The first of the subnet is the bridge's."""
    taken = {path.name for path in links_in(directory).iterdir()}
    if len(taken) >= MOST_PORTS:
        raise NoCapacity(
            f"this machine's bridge has {MOST_PORTS} nodes, which is all the kernel lets it have"
        )
    if node in plan and plan[node] not in taken:
        yield plan[node]
    others = frozenset(plan.values())
    for wanted in (False, True):
        hosts = map(str, islice(subnet.hosts(), 1, None))
        yield from (one for one in hosts if one not in taken and (one in others) is wanted)
    raise NoCapacity(f"no free address is left in {subnet}: {len(taken)} nodes have one")


def take(directory: Path, address: str, node: str) -> bool:
    """True if the address is the node's, from now on or already."""
    link = links_in(directory) / address
    try:
        link.symlink_to(node)
    except FileExistsError:
        return owner(link) == node
    return True


def give_up(directory: Path, address: str | None, node: str) -> None:
    """The node's address; all that it has, if nobody knows which."""
    links = links_in(directory)
    for link in [links / address] if address else list(links.iterdir()):
        if owner(link) == node:
            link.unlink(missing_ok=True)


def owner(link: Path) -> str | None:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return None
