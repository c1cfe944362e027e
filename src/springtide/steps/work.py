"""What a step is handed: the parts of the cluster, its operation, and the nodes still standing."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import TypeVar

from springtide.model import Node, NodeState, Operation
from springtide.nodeset import fold
from springtide.ports import (
    BatchSystem,
    CloudError,
    Configurator,
    Provider,
    Site,
    Transient,
    Unavailable,
)
from springtide.record import Record
from springtide.spec import Cluster
from springtide.spec.fingerprint import fingerprint
from springtide.spec.leaving import union
from springtide.steps.census import Census
from springtide.steps.holding import Holding
from springtide.steps.roll_call import RollCall

T = TypeVar("T")
Fallen = dict[str, str]
"""Nodes that fell out of an operation, and why."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What of the cluster file the batch system runs with."""

    spec: str = ""
    """The file's fingerprint."""
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
    site: Site | None = None
    remade: Callable[[Cluster], "Parts"] | None = None
    """Parts for another spec, over the same record; None if the spec is all that changes."""
    wanted: Cluster = field(init=False)
    """The cluster file alone."""
    former: Cluster | None = None
    """What the file was when nodes that are still up left it."""
    applied: Applied = Applied()
    file: str = ""
    """Where people have the cluster file; empty if only the stored copy is known."""
    stopped: bool = False
    """People stopped the cluster; `tide start` starts it."""
    drains: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Reasons and owners of drained nodes on their way up: Slurm forgets them when they join."""
    told: dict[str, str] = field(default_factory=dict)
    """What jobs were told last."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The batch system's configuration has one writer at a time."""
    holding: Holding = field(init=False)
    roll_call: RollCall = field(init=False)
    census: Census = field(init=False)

    def __post_init__(self) -> None:
        self.wanted = self.spec
        self.holding = Holding(self.record)
        self.roll_call = RollCall(self.batch)
        self.census = Census(self.spec.cluster)

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
        await self.keep_file(self.file or await facts.get("file") or "")
        former = await facts.get("former")
        self.former = Cluster.model_validate(json.loads(former)) if former else None
        self._use(self._with_leaving())

    async def keep_site(self, site: Site) -> None:
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

    async def adopt(self, wanted: Cluster, store: Callable[[], None]) -> None:
        """Go on with another file, kept by `store`; what left it stays until it is taken leave of.

        Without a batch system that runs there is nobody to take leave of it.
        """
        await self._keep_former(None if self.site is None or self.stopped else self.spec)
        store()
        self.wanted = wanted
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

    async def _keep_former(self, former: Cluster | None) -> None:
        text = former.model_dump_json() if former else ""
        await self.record.store.put("former", text)
        self.former = former

    def _with_leaving(self, gone: Collection[str] = ()) -> Cluster:
        """The file, and what left it since the former one."""
        known = self.former.managed if self.former else ()
        leaving = [n for n in known if n not in self.wanted.node_group and n not in gone]
        return union(self.wanted, self.former, leaving) if self.former and leaving else self.wanted

    def config_of(self, group: str) -> str:
        """The fingerprint of the configuration that a node of the group would start with now."""
        if self.site is None:
            return ""
        text = self.configurator.user_data(Node("node", group), self.site)
        return sha256(text.encode()).hexdigest()[:16]

    def strays(self) -> list[str]:
        """Nodes that are up and of which nobody knows what they should be."""
        nodes, known = self.record.nodes.values(), self.spec.node_group
        return [n.name for n in nodes if n.name not in known and n.state is not NodeState.OFF]

    def _use(self, spec: Cluster) -> None:
        if spec == self.spec:
            return
        self.spec = spec
        if self.remade is None:
            return
        new = self.remade(spec)
        self.providers, self.home, self.batch = new.providers, new.home, new.batch
        self.configurator = new.configurator
        self.roll_call, self.census = new.roll_call, new.census

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


def passing(error: Exception) -> bool:
    """Whether the same call may work later."""
    return isinstance(error, (Unavailable, Transient))
