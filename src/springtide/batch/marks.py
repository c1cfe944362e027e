"""Which nodes of a polled batch system are wanted up, which are to leave, and who drained which.

`batch.polled` keeps them in the record, on disk before anything follows from them.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Protocol

FACT = "power"


class Facts(Protocol):
    """Where marks are kept; the record's store."""

    async def get(self, key: str) -> str | None: ...

    async def put(self, key: str, value: str) -> None: ...


class Course(StrEnum):
    """Which way a node is to go."""

    STARTING = "starting"
    UP = "up"
    """It has been heard from since it was to start."""
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class Mark:
    """What is wanted of a node that is not just off."""

    course: Course
    since: float
    address: str = ""
    asked: bool = False
    """It leaves by a person's or operation's wish, and not because it was idle."""
    told: bool = False
    """The batch system may know of it: it was told, or somebody began to."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Whose wish it is that a node takes no jobs."""

    owner: str
    reason: str
    at: float = 0.0
    """When the batch system was told of it, as long as it may not have written that down."""
    life: float | None = None
    """When that batch system had started, if it tells."""


@dataclass(frozen=True, slots=True)
class Marks:
    """All marks and drains; whoever has no mark is off."""

    nodes: Mapping[str, Mark] = field(default_factory=dict)
    drains: Mapping[str, Drain] = field(default_factory=dict)
    prepared: tuple[str, ...] = ()
    """Nodes that the batch system was made to know, off or not."""

    def course(self, name: str) -> Course | None:
        mark = self.nodes.get(name)
        return mark.course if mark else None

    def marked(self, marks: Mapping[str, Mark]) -> "Marks":
        return replace(self, nodes={**self.nodes, **marks})

    def without(self, names: Iterable[str]) -> "Marks":
        gone = frozenset(names)
        return replace(self, nodes={n: m for n, m in self.nodes.items() if n not in gone})

    def drained(self, drains: Mapping[str, Drain]) -> "Marks":
        return replace(self, drains={**self.drains, **drains})

    def undrained(self, names: Iterable[str]) -> "Marks":
        gone = frozenset(names)
        return replace(self, drains={n: d for n, d in self.drains.items() if n not in gone})

    def settled(self, names: Iterable[str]) -> "Marks":
        """These drains it will not forget any more."""
        known = {name: self.drains[name] for name in names if name in self.drains}
        return self.drained({name: replace(drain, at=0.0) for name, drain in known.items()})


def by_reason(drains: Mapping[str, Drain]) -> dict[str, list[str]]:
    """The nodes of each reason."""
    found: dict[str, list[str]] = {}
    for name, drain in drains.items():
        found.setdefault(drain.reason, []).append(name)
    return found


class Book:
    """The marks of one cluster, with one writer at a time."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._marks: Marks | None = None
        self._writing = asyncio.Lock()
        self.moving = asyncio.Lock()
        """Whoever has nodes come and go holds it, from the look to the last command."""

    async def read(self) -> Marks:
        if self._marks is None:
            self._marks = _read(await self._facts.get(FACT) or "{}")
        return self._marks

    async def change(self, change: Callable[[Marks], Marks]) -> Marks:
        """On disk when this returns."""
        async with self._writing:
            before = await self.read()
            after = change(before)
            if after != before:
                await self._facts.put(FACT, json.dumps(asdict(after)))
                self._marks = after
            return after


def _read(text: str) -> Marks:
    data = json.loads(text)
    return Marks(
        {n: Mark(**{**m, "course": Course(m["course"])}) for n, m in data.get("nodes", {}).items()},
        {n: Drain(**drain) for n, drain in data.get("drains", {}).items()},
        tuple(data.get("prepared", ())),
    )
