"""Where the time of a node's start went: its boot as a list of moments. Pure.

The API tells it. Events are what the daemon did and saw; phases are what the node told itself.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from statistics import median

from springtide.model import Event, Phase
from springtide.node import PHASES

BEGINNINGS = frozenset({"node requested", "reboot requested"})
INSTANCE = "instance"
MOMENTS: Mapping[str, str] = {
    "node requested": "requested",
    "reboot requested": "requested",
    "instance created": INSTANCE,
    "instance rebuilt": INSTANCE,
    "instance rebooted": INSTANCE,
    "address told": "address told",
    "node joined": "joined",
    "join refused": "refused",
    "boot failed": "failed",
    "node failed": "given up",
    "node registered": "registered",
}
"""Events of a boot, and what they are called in it."""
ENDS = frozenset({"registered", "given up"})
EARLY_S = 5.0
"""A node's clock may be this much behind, and its phases still belong to the boot."""
_GENERATION = re.compile(r"\bgeneration (\d+)")


@dataclass(frozen=True, slots=True)
class Row:
    """A moment of a boot."""

    phase: str
    at_s: float
    """Since the request."""
    took_s: float
    """Since the moment before, or as the node says."""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """One boot of a node."""

    node: str
    generation: int | None
    """None if nobody knows any more."""
    requested_at: float
    rows: tuple[Row, ...]

    @property
    def over(self) -> bool:
        return any(row.phase in ENDS for row in self.rows)


@dataclass(frozen=True, slots=True)
class Typical:
    """A phase of several boots."""

    phase: str
    count: int
    at_s: float
    """The median, as is `took_s`."""
    took_s: float
    slowest_s: float
    slowest: str
    """The node for which it took longest."""


@dataclass(frozen=True, slots=True)
class _Boot:
    generation: int | None
    began_at: float
    ended_at: float
    events: Sequence[Event]


def timeline(
    node: str, events: Iterable[Event], phases: Iterable[Phase], generation: int | None = None
) -> Timeline | None:
    """The node's last boot, or the last of that generation; events and phases oldest first."""
    found = [b for b in _boots(list(events)) if generation in (None, b.generation)]
    if not found:
        return None
    boot = found[-1]
    rows = tuple(_rows(boot, _own(phases, boot)))
    return Timeline(node, boot.generation, boot.began_at, rows)


def _boots(events: Sequence[Event]) -> Iterator[_Boot]:
    starts = [index for index, event in enumerate(events) if event.what in BEGINNINGS]
    generation = None
    for start, end in pairwise([*starts, len(events)]):
        if told := _GENERATION.search(events[start].detail):
            generation = int(told[1])
        until = events[end].at if end < len(events) else float("inf")
        yield _Boot(generation, events[start].at, until, list(_till_end(events[start:end])))


def _till_end(events: Iterable[Event]) -> Iterator[Event]:
    """What comes after it is in service is not its boot."""
    for event in events:
        yield event
        if MOMENTS.get(event.what) in ENDS:
            return


def _own(phases: Iterable[Phase], boot: _Boot) -> list[Phase]:
    """Not what was told of the boot before: a node that has just come up may start afresh."""
    near = [phase for phase in phases if _belongs(phase, boot)]
    late = [phase.at >= boot.began_at for phase in near]
    starts = [index for index, phase in enumerate(near) if phase.name == PHASES[0]]
    first = next((index for index in starts if late[index]), max(starts, default=0))
    return [phase for index, phase in enumerate(near) if late[index] or index >= first]


def _belongs(phase: Phase, boot: _Boot) -> bool:
    own = boot.generation in (None, phase.generation)
    return own and boot.began_at - EARLY_S <= phase.at < boot.ended_at


def _rows(boot: _Boot, phases: Sequence[Phase]) -> Iterator[Row]:
    """In the order of time; what a node tells itself is not told twice."""
    told = {phase.name for phase in phases}
    seen = {MOMENTS[e.what]: e for e in reversed(boot.events) if e.what in MOMENTS}
    # A node that tells something has its instance already, though the daemon may hear it later.
    latest = {INSTANCE: min((phase.at for phase in phases), default=inf)}
    own = [(name, e) for name, e in seen.items() if name not in told]
    moments = [
        *((min(e.at, latest.get(name, inf)), name, None, _remark(e)) for name, e in own),
        *((p.at, p.name, p.took_s, p.detail or _remark(seen.get(p.name))) for p in phases),
    ]
    before = boot.began_at
    for at, name, took_s, remark in sorted(moments, key=lambda one: one[0]):
        waited_s, since_s = max(0.0, at - before), max(0.0, at - boot.began_at)
        # A kernel that is older than the request is not this boot's: machines may share one.
        if took_s is None or took_s > since_s + EARLY_S:
            took_s = waited_s
        yield Row(name, round(since_s, 3), round(took_s, 3), remark)
        before = max(before, at)


def _remark(event: Event | None) -> str:
    if event is None or event.what in BEGINNINGS:
        return ""
    return event.detail


def typical(timelines: Iterable[Timeline]) -> list[Typical]:
    """Of several boots, each phase in the order in which it usually comes."""
    found: dict[str, list[tuple[Row, str]]] = {}
    for one in timelines:
        for row in one.rows:
            found.setdefault(row.phase, []).append((row, one.node))
    return sorted((_typical(phase, some) for phase, some in found.items()), key=lambda t: t.at_s)


def _typical(phase: str, rows: Sequence[tuple[Row, str]]) -> Typical:
    slowest, node = max(rows, key=lambda one: one[0].took_s)
    return Typical(
        phase=phase,
        count=len(rows),
        at_s=round(median(row.at_s for row, _ in rows), 3),
        took_s=round(median(row.took_s for row, _ in rows), 3),
        slowest_s=slowest.took_s,
        slowest=node,
    )
