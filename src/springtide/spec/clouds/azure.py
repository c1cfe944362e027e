"""`provider: {kind: azure}`."""

from typing import Annotated, Literal

from pydantic import BeforeValidator

from springtide.spec.clouds.remote import Remote
from springtide.spec.values import AbsolutePath, Account, Size, Word, matching

SubnetId = Annotated[
    str,
    BeforeValidator(
        matching(
            r"/?subscriptions/[\w-]+/resourceGroups/[\w.()-]+/providers/Microsoft\.Network"
            r"/virtualNetworks/[\w.-]+/subnets/[\w.-]+",
            "the resource id of a subnet, such as /subscriptions/…/resourceGroups/…/providers/"
            "Microsoft.Network/virtualNetworks/…/subnets/…",
        )
    ),
]
Subscription = Annotated[
    str, BeforeValidator(matching("[0-9A-Za-z-]{1,64}", "the id of a subscription"))
]
ResourceGroup = Annotated[
    str, BeforeValidator(matching(r"[\w.()-]{1,90}", "the name of a resource group"))
]
Endpoint = Annotated[
    str,
    BeforeValidator(
        matching(
            r"https://[\w.-]+(?::\d+)?|http://(?:127\.\d+\.\d+\.\d+|localhost):\d+",
            "an address that begins with https://",
        )
    ),
]


class Azure(Remote):
    """Virtual machines of Azure, each by its own name."""

    kind: Literal["azure"] = "azure"
    """A flavor's type is a VM size. Zones are `1`, `2`, `3`; a market is `spot` or left out."""
    subscription: Subscription
    """The id of the subscription that pays for nodes."""
    resource_group: ResourceGroup
    """Where nodes are made; it must exist."""
    location: Word
    """The region, such as `westeurope`."""
    subnet: SubnetId
    """The whole resource id of the subnet that nodes are on."""
    ssh_key: AbsolutePath
    """A public key for logging in: Azure makes no machine without one."""
    credentials: AbsolutePath | None = None
    """A JSON file with tenantId, clientId and clientSecret, readable by us alone; left out, the
    machine's managed identity or the environment."""
    endpoint: Endpoint | None = None
    """Another address of the service, for sovereign clouds and tests."""
    admin: Account = "azureuser"
    """The user that Azure makes on each machine."""
    disk: Size | None = None
    """Of the root disk; left out, the image's."""
