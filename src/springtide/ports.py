"""What the engine asks of the world: providers, batch systems and the store.

Adapters implement these; steps and the engine call nothing else. Errors are part of the
contract: a provider answers per node, with an instance or with one of the CloudErrors.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from springtide.model import Event, Hold, Move, Node, Operation, Request

# --- providers -----------------------------------------------------------------


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
    """A shell script. It finds TIDE_CLUSTER, TIDE_NODE and TIDE_GENERATION in its environment."""


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
    arch: str = "x86_64"


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


# --- batch systems -------------------------------------------------------------


class Unavailable(Exception):
    """The batch system did not answer, or not sensibly: decide nothing from it."""


class Power(StrEnum):
    """Where the batch system believes a node is on its way up or down."""

    DOWN = "powered down"
    GOING_UP = "powering up"
    UP = "up"
    GOING_DOWN = "powering down"


@dataclass(frozen=True, slots=True)
class BatchNode:
    """A node as the batch system shows it: base state, flags, and what we read from them."""

    name: str
    state: str
    flags: frozenset[str] = frozenset()
    power: Power = Power.UP
    registered: bool = False
    address: str | None = None
    reason: str = ""
    boot_at: float | None = None
    busy: bool = False
    """It has jobs, or they are being cleaned up after."""
    drained: bool = False
    """It takes no new jobs, by somebody's wish."""
    owner: str | None = None
    """Whose wish that was: OURS, or a person."""


OURS = "springtide"
"""The owner of what our operations drain."""
ITSELF = "slurm"
"""The owner of what the batch system drains by itself."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as far as nodes depend on it."""

    id: str
    state: str
    user: str = ""
    partition: str = ""
    nodes: str = ""
    node_count: int = 0
    reason: str = ""

    @property
    def configuring(self) -> bool:
        return self.state == "CONFIGURING"


class BatchSystem(Protocol):
    """The scheduler in front of the nodes."""

    async def version(self) -> str: ...

    async def standing(self) -> str:
        """What of it should run and does not, in words; empty if all is well, or not ours."""
        ...

    async def nodes(self, names: Iterable[str] | None = None) -> Mapping[str, BatchNode]:
        """All nodes (or those named) with one query; raises Unavailable."""
        ...

    async def jobs(self) -> Sequence[Job]:
        """All jobs that are not over, with one query; raises Unavailable."""
        ...

    async def set_addresses(self, addresses: Mapping[str, str]) -> None:
        """Tell where nodes are reached, with one folded call per batch."""
        ...

    async def give_back(self, nodes: Iterable[str], reason: str) -> None:
        """These nodes cannot start: their jobs are requeued, and they may be asked for again."""
        ...

    async def release(self, nodes: Iterable[str]) -> None:
        """The instances of these nodes are gone: they may be asked for again at once."""
        ...

    async def power_up(self, nodes: Iterable[str]) -> None:
        """Have the batch system ask for these nodes, as an admin would."""
        ...

    async def power_down(self, nodes: Iterable[str]) -> None:
        """Have the batch system let these nodes go once their jobs have ended."""
        ...

    async def drain(self, nodes: Iterable[str], reason: str, by: str = OURS) -> None:
        """Have these nodes take no new jobs; those that a person drained already stay theirs."""
        ...

    async def undrain(self, nodes: Iterable[str], by: str | None = OURS) -> None:
        """Back to service, but only what this owner drained; None is whoever did."""
        ...

    async def reboot(self, nodes: Iterable[str], reason: str) -> None:
        """Have it reboot these nodes when their jobs have ended; they stay drained."""
        ...

    async def expect(self, nodes: Iterable[str]) -> None:
        """These nodes start afresh: they count as registered only when heard from again.

        Drains stay whose they are.
        """
        ...

    async def fail(self, nodes: Iterable[str], reason: str) -> None:
        """Out of service, for all to see why, until heard from again."""
        ...

    async def submit_rebuilds(self, nodes: Iterable[str], command: str | None) -> Mapping[str, str]:
        """One job for each node, ahead of all others, that reboots it; answers their ids.

        With a command the jobs run that instead of a reboot.
        """
        ...

    async def close(self) -> None:
        """Start no more jobs, until it is opened or started again."""
        ...

    async def open(self) -> None:
        """Start jobs again."""
        ...

    async def tell(self, job: str, text: str) -> None:
        """Say something to the owner of a job, or of several, separated by commas."""
        ...

    async def reload(self, site: Site) -> str:
        """Write the configuration and have the batch system run with it; says what that changed."""
        ...

    async def stop(self) -> None:
        """Stop what `reload` started, if it was us who started it."""
        ...


# --- configuration of nodes ------------------------------------------------------


class Configurator(Protocol):
    """How a node becomes a member of the cluster."""

    async def prepare(self, site: Site) -> None:
        """Make the keys that nodes need at boot; twice changes nothing."""
        ...

    async def publish(self, site: Site, addresses: Mapping[str, str]) -> None:
        """Make these names, and no others, known to every node."""
        ...

    async def install(self) -> None:
        """Put the batch system's programs in place on the control host."""
        ...

    def user_data(self, node: Node, site: Site) -> str:
        """What the instance is told at its first boot; pure."""
        ...


# --- store -----------------------------------------------------------------------


class StoreError(Exception):
    """The record cannot be read or written: nothing may be done without it."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What became of a batch of old rows."""

    reached: int | None
    """The last id that was looked at; None if nothing old follows."""
    deleted: int


class Store(Protocol):
    """The record, on disk. Each call is one transaction."""

    problem: str
    """Why it could not be written last; empty once it was again."""

    async def define(self, nodes: Iterable[Node]) -> None:
        """Make sure each node has a record; existing records keep all but their group."""
        ...

    async def nodes(self, names: Iterable[str] | None = None) -> Mapping[str, Node]: ...

    async def move(self, moves: Sequence[Move], events: Sequence[Event]) -> Sequence[Node]:
        """Apply the moves whose `before` still holds, with their events; answers those moved."""
        ...

    async def receive(self, request: Request) -> bool:
        """Keep a request until operations answer it; False if it came before."""
        ...

    async def waiting(self) -> Sequence[Request]:
        """Requests that no operation has answered yet, oldest first."""
        ...

    async def open(
        self, operations: Sequence[Operation], requests: Iterable[str] = ()
    ) -> Sequence[Operation]:
        """Record new operations, give them ids, and mark the requests they answer."""
        ...

    async def progress(self, operation: Operation, events: Sequence[Event] = ()) -> None:
        """Save how far an operation is."""
        ...

    async def operations(
        self, *, unfinished: bool = False, limit: int = 100
    ) -> Sequence[Operation]: ...

    async def operation(self, id: int) -> Operation | None: ...

    async def lease(self, operation: int, nodes: Iterable[str]) -> Mapping[str, int]:
        """Lease all the nodes or none; answers who holds those that could not be had."""
        ...

    async def release(self, operation: int, nodes: Iterable[str] | None = None) -> None:
        """End its leases, of these nodes or all."""
        ...

    async def append(self, events: Sequence[Event]) -> Sequence[Event]: ...

    async def events(
        self,
        *,
        after: int = 0,
        node: str | None = None,
        operation: int | None = None,
        limit: int = 1000,
    ) -> Sequence[Event]: ...

    async def forget_answered(self, now: float) -> None:
        """Drop requests that were answered so long ago that no copy of them can come."""
        ...

    async def holds(self) -> Mapping[str, Hold]: ...

    async def hold(self, hold: Hold) -> None:
        """Keep a hold, in place of one with the same key."""
        ...

    async def lift(self, key: str) -> None:
        """Forget a hold; none is fine."""
        ...

    async def boot_times(self, limit: int) -> Sequence[tuple[str, float]]:
        """Group and seconds from request to registration of the last boots, newest first."""
        ...

    async def prune_events(self, before: float, after: int, limit: int) -> Pruned:
        """Delete what is older among so many events past the id `after`.

        The last events of each node stay, and those of operations that are not over.
        """
        ...

    async def prune_operations(self, before: float, after: int, limit: int) -> Pruned:
        """The same for operations that ended before."""
        ...

    async def prune_requests(self, before: float, limit: int) -> int:
        """Delete so many answered requests that are older; answers how many there were."""
        ...

    async def put(self, key: str, value: str) -> None:
        """Keep a fact about the cluster, such as its site."""
        ...

    async def get(self, key: str) -> str | None: ...

    async def close(self) -> None: ...
