"""What is left of a site when its machine was switched off, or when somebody removed its bridge.

The provider calls it when it has prepared the site. Instances whose processes are gone are not
touched: they are listed as broken, and whoever made them decides what becomes of them.
"""

from pathlib import Path

from springtide.ports import Transient
from springtide.providers.containers import addresses, links
from springtide.providers.containers.instances import homes
from springtide.providers.containers.site import Ground


def replug(directory: Path, ground: Ground) -> None:
    """Put the cables of nodes that run back on the bridge, if it was made anew under them."""
    for home in homes(directory).iterdir():
        port = links.port_name(ground.cluster, home.name)
        if links.is_loose(port):
            _plug(port, ground.bridge)


def _plug(port: str, bridge: str) -> None:
    try:
        links.change([f"link set {port} master {bridge} up"])
    except Transient:
        if links.is_loose(port):  # else its node went meanwhile
            raise


def free_forgotten(directory: Path) -> None:
    """Addresses of nodes that have no directory: it is there before they take one."""
    for link in addresses.links_in(directory).iterdir():
        node = addresses.owner(link)
        if node is not None and not (homes(directory) / node).exists():
            addresses.give_up(directory, link.name, node)
