"""Machines of a libvirt host, by libvirt-python: made for nodes, or existing ones switched on.

`connection` and `errors` are the way to libvirt, `marks` say whose a machine is, `create` and
`power` are the two ways, over `network`, `storage`, `seed`, `domain` and `images`.
"""

from pathlib import Path

from springtide.ports import Provider
from springtide.providers.cloud import Catalog, Cloud
from springtide.providers.libvirt.create import Created
from springtide.providers.libvirt.power import Powered
from springtide.spec.clouds import Libvirt


def provider(wanted: Libvirt, catalog: Catalog, state: Path) -> Provider:
    driver = Created if wanted.nodes == "create" else Powered
    return Cloud(driver(wanted, catalog))
