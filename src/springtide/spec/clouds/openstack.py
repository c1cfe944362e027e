"""`provider: {kind: openstack}`."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from springtide.spec.clouds.remote import Remote
from springtide.spec.values import AbsolutePath, Address, Distinct, Host, Id, Size, Switch, Word


class OpenStack(Remote):
    """Servers of an OpenStack project."""

    kind: Literal["openstack"] = "openstack"
    """Flavors and zones are OpenStack's; markets there are none."""
    cloud: Word | None = None
    """Which one of clouds.yaml; left out, OS_CLOUD or the other OS_ variables."""
    credentials: AbsolutePath | None = None
    """A clouds.yaml, best with an application credential; left out, where OpenStack's own clients
    look."""
    network: Id
    """Name or id of the network that nodes are on."""
    security_groups: Annotated[tuple[Id, ...], Distinct] = ()
    """Of nodes; left out, the project's default."""
    key: Id | None = None
    """Name of a key pair for logging in."""
    volume: Size | None = None
    """Boot from a volume of this size, made from the image; left out, from the flavor's disk."""
    volume_type: Word | None = None
    """Of such volumes; left out, the cloud's default."""
    server_group: (
        Literal["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"] | None
    ) = None
    """Have nodes share hosts, or not, by a server group of the cluster's own."""
    config_drive: Switch = True
    """User data comes on a disk, and the network's metadata service is not needed."""
    addresses: Mapping[Host, Address] = Field(default_factory=dict)
    """Fixed addresses of nodes; others get any."""
    ports: Mapping[Host, Id] = Field(default_factory=dict)
    """Ids of existing ports of nodes, which outlive their servers; others get one each."""
    hosts: Mapping[Host, Word] = Field(default_factory=dict)
    """Hypervisors that nodes are pinned to, by their names in OpenStack; for bare metal, the ids of
    its machines. Needs rights of an administrator."""
