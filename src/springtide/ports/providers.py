"""Places where instances live: what is asked of them, and what they may answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class CloudError(Exception):
    """Why a provider did not do what it was asked; the class decides what happens next."""


class Transient(CloudError):
    """Throttled, timed out, broken connection: the same call may work later."""


class Throttled(Transient):
    """Too many calls: everybody who calls this provider has to wait."""


class NoCapacity(CloudError):
    """This zone and flavor are full now: try the next choice."""


class QuotaExceeded(CloudError):
    """The account's limit: a human must raise it."""


class Denied(CloudError):
    """Credentials or rights are missing."""


class Rejected(CloudError):
    """The request is wrong and will stay wrong: never retried."""


class InstanceState(StrEnum):
    """What a provider says of an instance."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    DELETING = "deleting"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Launch:
    """One instance to make. (cluster, node, generation) is its idempotency key."""

    cluster: str
    node: str
    generation: int
    group: str
    image: str
    flavor: str
    zone: str | None = None
    market: str | None = None
    user_data: str = ""
    """A shell script. It finds TIDE_CLUSTER, TIDE_NODE, TIDE_GENERATION and TIDE_TOKEN in its
    environment."""
    cloud_config: str = ""
    """What cloud-init is to do besides; empty if nothing."""
    token: str = field(default="", repr=False)
    """What lets the instance join, once; empty if it needs nothing."""


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance as its provider lists it."""

    id: str
    cluster: str
    node: str
    generation: int
    state: InstanceState
    address: str | None = None
    image: str | None = None
    flavor: str | None = None
    zone: str | None = None
    created_at: float = 0.0
    booted_at: float = 0.0
    """Its last start; `created_at` if it was never rebooted."""


@dataclass(frozen=True, slots=True)
class Site:
    """What a provider prepared for a cluster: where the control host is reached from nodes."""

    control_address: str
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CloudImage:
    """An image as its provider lists it."""

    id: str
    name: str
    cluster: str = ""
    """Whose snapshot it is; empty if it is nobody's of ours."""
    created_at: float = 0.0
    ready: bool = True
    failed: bool = False
    """It will never be ready."""
    arch: str = "x86_64"
    below: tuple[str, ...] = ()
    """The names of all images that it stands on; of one that is whole, none."""


@dataclass(frozen=True, slots=True)
class CloudFlavor:
    """A size that a provider has, called as the provider calls it; memory is MiB."""

    name: str
    cpus: int
    memory: int
    arch: str = "x86_64"
    threads: int = 1
    """Of each core; `cpus` counts threads."""
    gpus: int = 0
    price: float | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """What the file wants of a provider for one group, at most."""

    group: str
    count: int
    image: str
    flavors: Sequence[str]
    zones: Sequence[str] = ()
    markets: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """Whether something is as it must be, and what to do if not."""

    name: str
    ok: bool | None
    """None: it cannot be said yet, or does not matter here."""
    text: str
    todo: str = ""


class Provider(Protocol):
    """A place where instances live."""

    @property
    def in_place(self) -> bool:
        """Whether `rebuild` works; if not, an instance with another image is another instance."""
        ...

    def renews(self, markets: Sequence[str]) -> bool:
        """Whether `reboot` gives instances the new user data, of whichever market they are."""
        ...

    async def prepare(self, cluster: str) -> Site:
        """Make the site, or find it as it is; a second call changes nothing."""
        ...

    async def remove(self, cluster: str) -> None:
        """Remove the site and whatever carries the cluster's tag; gone already is fine."""
        ...

    async def list(self, cluster: str) -> Sequence[Instance]:
        """All instances tagged with the cluster, deleting ones included; raises CloudError."""
        ...

    async def create(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        """Make instances, an answer for each node. The same launch again makes no second one."""
        ...

    async def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        """Ask for their removal; answers only those refused, by id. Gone already is fine."""
        ...

    async def reboot(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        """Start existing instances afresh in place, an answer for each node.

        With this user data, where it can be changed. Id, address, generation and image stay.
        Twice is a second reboot.
        """
        ...

    async def rebuild(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        """The same from the image of the launch: only id, address, flavor and generation stay."""
        ...

    async def snapshot(self, instance: Instance, name: str) -> CloudImage:
        """Make an image of what the instance has on its disk; the same name again is the same.

        It need not be ready at once: `images` tells.
        """
        ...

    async def images(self, cluster: str) -> Sequence[CloudImage]:
        """The images that snapshots made for the cluster."""
        ...

    async def forget(self, image: CloudImage) -> None:
        """Delete such an image; gone already is fine."""
        ...

    async def flavors(self) -> Mapping[str, CloudFlavor]:
        """The sizes it has, by its own names; none if it makes any size, or does not tell."""
        ...

    async def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        """Whether it could do what the file wants: credentials, rights, names, quotas.

        Changes nothing, and raises nothing: what cannot be found out is said.
        """
        ...

    async def console(self, instances: Sequence[Instance]) -> Mapping[str, str]:
        """The end of what instances said while they booted, by id, as far as it is known."""
        ...

    async def close(self) -> None:
        """Let go of threads and connections; instances stay."""
        ...
