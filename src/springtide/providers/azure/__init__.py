"""Nodes on Azure: virtual machines over azure-mgmt-compute. `compose` imports it if it is used.

A machine is made by one call with its own name, so the same launch again changes nothing.
Its network interface and its disk come with it and go with it.
"""

from pathlib import Path

from springtide.providers.azure import account
from springtide.providers.azure.driver import AzureDriver
from springtide.providers.cloud import Catalog, Cloud
from springtide.spec.clouds import Azure


def provider(wanted: Azure, catalog: Catalog, state: Path) -> Cloud:
    """Reads the files that the block names; asks nobody anything."""
    key = account.read_public_key(wanted.ssh_key)
    return Cloud(AzureDriver(wanted, catalog, account.connect(wanted), key))
