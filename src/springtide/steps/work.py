"""What a step is handed: the parts of the cluster, its operation, and the nodes still standing."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import TypeVar

from pydantic import ValidationError

from springtide.calendar import kept_up
from springtide.configure import cloud_config
from springtide.configure.boot_only import boot_only
from springtide.configure.membership import Membership
from springtide.layout import Layout
from springtide.model import Node, NodeState, Operation
from springtide.nodeset import fold
from springtide.ports import (
    BatchSystem,
    CloudError,
    Configurator,
    Provider,
    Site,
    Software,
    Transient,
    Unavailable,
)
from springtide.record import Record
from springtide.spec import Cluster, environment
from springtide.spec.changes import diff
from springtide.spec.fingerprint import fingerprint
from springtide.spec.leaving import union
from springtide.steps.census import Census
from springtide.steps.gallery import Gallery
from springtide.steps.holding import Holding
from springtide.steps.roll_call import RollCall
from springtide.steps.tickets import Tickets

T = TypeVar("T")
LIVING = "living"
"""The fact that has the file that the cluster lives with."""
Fallen = dict[str, str]
"""Nodes that fell out of an operation, and why."""


UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Applied:
    """What of the cluster file the batch system runs with."""

    spec: str = ""
    """The file's fingerprint; empty before the first, UNKNOWN while another is written."""
    kept: str = ""
    """The nodes that are always up, as a host list."""


@dataclass(slots=True)
class Parts:
    """The cluster's parts, wired by the daemon (or a test)."""

    spec: Cluster
    """The cluster file, and with it what left the file and is still up."""
    record: Record
    providers: Mapping[str, Provider]
    """By group; groups of one provider share the object."""
    home: Provider
    """The cluster's own provider, on whose site the control host is."""
    batch: BatchSystem
    configurator: Configurator
    software: Software | None = None
    """What sets up nodes that run; None if all is in their images."""
    site: Site | None = None
    remade: Callable[[Cluster], "Parts"] | None = None
    """Parts for another spec, over the same record; None if the spec is all that changes."""
    outdated: Callable[[], bool] | None = None
    """Whether the files of a batch system that is not ours ask for other parts; takes a moment."""
    wanted: Cluster = field(init=False)
    """The cluster file alone."""
    former: Cluster | None = None
    """What the file was when nodes that are still up left it."""
    applied: Applied = Applied()
    file: str = ""
    """Where people have the cluster file; empty if only the stored copy is known."""
    stopped: bool = False
    """People stopped the cluster; `tide start` starts it."""
    ending: bool = False
    """The cluster is to be destroyed: nobody waits any more for a batch system that is away."""
    drains: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Reasons and owners of drained nodes on their way up: Slurm forgets them when they join."""
    told: dict[str, str] = field(default_factory=dict)
    """What jobs were told last."""
    membership: Membership | None = None
    """What nodes get that join; None if none do."""
    gave_up: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Nodes that said that their boot has failed for good: the generation, and why."""
    kept_out: dict[str, tuple[float, str]] = field(default_factory=dict)
    """Nodes that Ansible cannot log in to yet: until when it tries, and why it cannot."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The batch system's configuration has one writer at a time."""
    taken: set[str] = field(default_factory=set)
    """Nodes that a person takes away at this moment: nobody else starts or stops them."""
    gallery: Gallery = field(default_factory=Gallery)
    holding: Holding = field(init=False)
    roll_call: RollCall = field(init=False)
    census: Census = field(init=False)
    tickets: Tickets = field(init=False)

    def __post_init__(self) -> None:
        self.wanted = self.spec
        self.holding = Holding(self.record)
        self.roll_call = RollCall(self.batch)
        self.census = Census(self.spec.cluster)
        self.tickets = Tickets(self.record, Layout(self.spec.state).join)

    @property
    def is_up(self) -> bool:
        """Whether the cluster was deployed and is not stopped: the batch system knows its nodes."""
        return self.site is not None and not self.stopped

    async def load(self) -> None:
        """Read the record and what an earlier run of the daemon left beside it."""
        facts = self.record.store
        groups = self.spec.node_group
        await self.record.load(Node(name, groups[name]) for name in self.spec.managed)
        known = await facts.get("site")
        self.site = Site(**json.loads(known)) if known else None
        self.applied = Applied(**json.loads(await facts.get("applied") or "{}"))
        self.stopped = bool(await facts.get("stopped"))
        await self.holding.load()
        await self.gallery.load(facts)
        await self.keep_file(self.file or await facts.get("file") or "")
        former = await facts.get("former")
        self.former = Cluster.model_validate(json.loads(former)) if former else None
        self._use(self._with_leaving())

    async def refusals(self) -> tuple[str, ...]:
        """What of the file cannot be so for the cluster that lives.

        The file, or the environment that goes before it, may have changed without us.
        """
        text = await self.record.store.get(LIVING) if self.site else ""
        with suppress(ValidationError):  # none is kept, or that of another Springtide
            living = Cluster.model_validate(json.loads(text or "null"))
            refusals = diff(living, self.wanted).refusals
            return (*refusals, *environment.blamed(self.wanted.cluster, refusals))
        return ()

    @contextmanager
    def parting(self, names: Collection[str]) -> Iterator[None]:
        """These are taken away, until an operation has them."""
        self.taken.update(names)
        try:
            yield
        finally:
            self.taken.difference_update(names)

    async def keep_site(self, site: Site) -> None:
        await self._keep_living()
        await self.record.store.put("site", json.dumps(asdict(site)))
        self.site = site

    async def keep_file(self, file: str) -> None:
        await self.record.store.put("file", file)
        self.file = file

    async def keep_stopped(self, stopped: bool) -> None:
        await self.record.store.put("stopped", "yes" if stopped else "")
        self.stopped = stopped

    async def keep_applied(self) -> None:
        """The batch system runs with the file as it is now."""
        self.applied = Applied(fingerprint(self.wanted), fold(self.wanted.always_up))
        await self.record.store.put("applied", json.dumps(asdict(self.applied)))
        await self._keep_living()

    async def doubt_applied(self) -> None:
        """Before another file is written: what comes of that is only known when it is done."""
        if self.applied.spec not in ("", fingerprint(self.wanted)):
            self.applied = replace(self.applied, spec=UNKNOWN)
            await self.record.store.put("applied", json.dumps(asdict(self.applied)))

    async def adopt(self, wanted: Cluster, store: Callable[[], None]) -> None:
        """Go on with another file, kept by `store`; what left it stays until it is taken leave of.

        Without a batch system that runs there is nobody to take leave of it.
        """
        await self._keep_former(None if self.site is None or self.stopped else self.spec)
        store()
        self.wanted = wanted
        await self._keep_living()
        groups = wanted.node_group
        await self.record.define(Node(name, groups[name]) for name in wanted.managed)
        self._use(self._with_leaving())
        await self.holding.mended()

    async def settle(self, gone: Iterable[str] = ()) -> None:
        """Forget nodes that left the file and were taken leave of."""
        if self.former is None:
            return
        self._use(self._with_leaving(frozenset(gone)))
        await self._keep_former(None if self.spec == self.wanted else self.spec)

    async def _keep_living(self) -> None:
        await self.record.store.put(LIVING, self.wanted.model_dump_json())

    async def _keep_former(self, former: Cluster | None) -> None:
        text = former.model_dump_json() if former else ""
        await self.record.store.put("former", text)
        self.former = former

    def _with_leaving(self, gone: Collection[str] = ()) -> Cluster:
        """The file, and what left it since the former one."""
        known = self.former.managed if self.former else ()
        leaving = [n for n in known if n not in self.wanted.node_group and n not in gone]
        return union(self.wanted, self.former, leaving) if self.former and leaving else self.wanted

    @property
    def clock(self) -> datetime:
        return datetime.fromtimestamp(self.record.now(), UTC)

    def kept_up(self) -> tuple[str, ...]:
        """The nodes that the file wants to be up now."""
        return kept_up(self.wanted, self.clock)

    def config_of(self, group: str) -> str:
        """The fingerprint of the configuration that a node of the group would start with now."""
        if self.site is None:
            return ""
        text = self.configurator.user_data(Node("node", group), self.site)
        text += boot_only(self.spec, group)
        with suppress(OSError):
            text += self.cloud_config(group)
        return sha256(text.encode()).hexdigest()[:16]

    def cloud_config(self, group: str) -> str:
        """The site's own for the nodes of a group; empty if there is none. Raises OSError."""
        known = self.spec.groups.get(group)
        return cloud_config.read(known.cloud_config) if known and known.cloud_config else ""

    def wanted_image(self, group: str, asked: str | None = None) -> str:
        """What nodes of a group are to run: of a family, its newest image."""
        name = asked or self.spec.image_of(group)
        return self.gallery.resolve(self.spec, name, group)

    def wanted_images(self) -> dict[str, str]:
        return {group: self.wanted_image(group) for group in self.spec.groups}

    def strays(self) -> list[str]:
        """Nodes that are up and of which nobody knows what they should be."""
        nodes, known = self.record.nodes.values(), self.spec.node_group
        return [n.name for n in nodes if n.name not in known and n.state is not NodeState.OFF]

    def _use(self, spec: Cluster) -> None:
        if spec == self.spec:
            return
        self.spec = spec
        self._remake()

    async def renew(self) -> None:
        """Before nodes are made: they are to find things where the batch system has them now."""
        if self.outdated is not None and await asyncio.to_thread(self.outdated):
            self._remake()

    def _remake(self) -> None:
        if self.remade is None:
            return
        new = self.remade(self.spec)
        self.providers, self.home, self.batch = new.providers, new.home, new.batch
        self.configurator, self.membership = new.configurator, new.membership
        self.software, self.outdated = new.software, new.outdated
        self.roll_call, self.census = new.roll_call, new.census

    @property
    def rebuilds_via(self) -> str:
        """How nodes are rebuilt if nobody says it: by the batch system's reboots, if it has any."""
        return "reboot" if self.batch.reboots else "direct"

    def distinct_providers(self) -> list[Provider]:
        """Each provider once, the cluster's own first."""
        all_of_them = (self.home, *self.providers.values())
        return list({id(provider): provider for provider in all_of_them}.values())


@dataclass(frozen=True, slots=True)
class Work:
    """One step of one operation."""

    parts: Parts
    operation: Operation
    names: tuple[str, ...]
    later: set[str] = field(default_factory=set)
    """Filled by a step: nodes that must wait for another round."""
    drop: Callable[[Fallen], Awaitable[None]] | None = None
    """Has nodes that fell out cleaned up after while the step goes on."""
    part: Callable[[Collection[str]], Awaitable[None]] | None = None
    """Has nodes let go that may need nothing more, while the work on others goes on."""
    learn: Callable[[Fallen], Awaitable[None]] | None = None
    """Has better reasons noted of nodes that fell out, as they are found."""
    unasked: bool = False
    """No job can be on these nodes: instances go though the batch system is away."""

    @property
    def record(self) -> Record:
        return self.parts.record

    @property
    def cluster(self) -> str:
        return self.parts.spec.cluster

    async def fell(self, fallen: Fallen) -> None:
        """Nodes fell out, and need not wait for the end of the step."""
        if fallen and self.drop:
            await self.drop(fallen)

    async def part_with(self, names: Collection[str]) -> None:
        """Nodes are gone, or in order, and need not wait for the others."""
        if names and self.part:
            await self.part(names)

    def on(self, names: Iterable[str]) -> "Work":
        """The same work on fewer nodes."""
        return replace(self, names=tuple(names))

    def by_provider(self, names: Iterable[str]) -> list[tuple[Provider, list[str]]]:
        """The nodes of each provider; a provider that serves several groups appears once.

        A node that left the cluster file is still known to the record, with its group.
        """
        parts = self.parts
        sorted_out: dict[int, list[str]] = defaultdict(list)
        for node in parts.record.of(names):
            sorted_out[id(parts.providers.get(node.group, parts.home))].append(node.name)
        return [
            (provider, sorted_out[id(provider)])
            for provider in parts.distinct_providers()
            if id(provider) in sorted_out
        ]


async def together(works: Iterable[Awaitable[T]]) -> list[T]:
    """All of them to their end, also when one fails; then that failure."""
    done = await asyncio.gather(*works, return_exceptions=True)
    for one in done:
        if isinstance(one, BaseException):
            raise one
    return [one for one in done if not isinstance(one, BaseException)]


def merged(found: Iterable[Fallen]) -> Fallen:
    return {name: why for fallen in found for name, why in fallen.items()}


FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0


async def insist(call: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Repeat a call that failed for a passing reason, ever more slowly, for so many seconds."""
    loop = asyncio.get_running_loop()
    end, pause_s = loop.time() + seconds, FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except (Unavailable, CloudError) as error:
            if not passing(error) or loop.time() + pause_s > end:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


async def outlast(parts: Parts, call: Callable[[], Awaitable[T]], otherwise: T) -> T:
    """Repeat a call to a batch system that is away, however long; `otherwise` is the answer once
    the cluster is to be destroyed."""
    while True:
        try:
            return await insist(call, 4 * LONGEST_PAUSE_S)
        except Unavailable:
            if parts.ending:
                return otherwise


def passing(error: Exception) -> bool:
    """Whether the same call may work later."""
    return isinstance(error, (Unavailable, Transient))
