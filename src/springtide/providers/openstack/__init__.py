"""OpenStack: servers in bulk by Nova, found again by their metadata. Only `compose` calls it.

`api` asks, `requests` and `shapes` are what is said and answered, `errors` what went wrong.
"""

from pathlib import Path

from springtide.ports import Provider
from springtide.providers.cloud import Catalog, Cloud
from springtide.providers.openstack.driver import OpenStackDriver
from springtide.spec.clouds import OpenStack


def provider(wanted: OpenStack, catalog: Catalog, state: Path) -> Provider:
    """Reads clouds.yaml, and asks nothing of the cloud yet; raises CloudError."""
    return Cloud(OpenStackDriver(wanted, catalog))
