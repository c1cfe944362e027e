"""`provider: {kind: azure}`."""

from typing import Literal

from springtide.spec.clouds.remote import Remote
from springtide.spec.values import AbsolutePath, Account, Id, Size, Word


class Azure(Remote):
    """Virtual machines of Azure, each by its own name."""

    kind: Literal["azure"] = "azure"
    """A flavor's type is a VM size. Zones are `1`, `2`, `3`; a market is `spot` or left out."""
    subscription: Id
    resource_group: Id
    location: Word
    subnet: Id
    """The whole resource id of the subnet that nodes are on."""
    credentials: AbsolutePath | None = None
    """A JSON file with tenantId, clientId and clientSecret, readable by us alone; left out, the
    machine's managed identity or the environment."""
    endpoint: Id | None = None
    """Another address of the service, for sovereign clouds and tests."""
    admin: Account = "azureuser"
    """The user that Azure makes on each machine."""
    ssh_key: AbsolutePath | None = None
    """A public key for logging in."""
    disk: Size | None = None
    """Of the root disk; left out, the image's."""
