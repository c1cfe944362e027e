"""What a step is handed: the parts of the cluster, its operation, and the nodes still standing."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

from springtide.model import Node, Operation
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
from springtide.steps.census import Census
from springtide.steps.roll_call import RollCall

T = TypeVar("T")
Fallen = dict[str, str]
"""Nodes that fell out of an operation, and why."""


@dataclass(slots=True)
class Parts:
    """The cluster's parts, wired by the daemon (or a test)."""

    spec: Cluster
    record: Record
    providers: Mapping[str, Provider]
    """By group; groups of one provider share the object."""
    home: Provider
    """The cluster's own provider, on whose site the control host is."""
    batch: BatchSystem
    configurator: Configurator
    site: Site | None = None
    roll_call: RollCall = field(init=False)
    census: Census = field(init=False)

    def __post_init__(self) -> None:
        self.roll_call = RollCall(self.batch)
        self.census = Census(self.spec.cluster)

    async def load(self) -> None:
        """Read the record and the site that an earlier run of the daemon left."""
        groups = self.spec.node_group
        await self.record.load(Node(name, groups[name]) for name in self.spec.managed)
        known = await self.record.store.get("site")
        self.site = Site(**json.loads(known)) if known else None

    async def keep_site(self, site: Site) -> None:
        await self.record.store.put("site", json.dumps(asdict(site)))
        self.site = site

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

    @property
    def record(self) -> Record:
        return self.parts.record

    @property
    def cluster(self) -> str:
        return self.parts.spec.cluster

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
