"""What the calendar means for the nodes of a batch system that asks for nodes itself. Pure.

`upkeep` acts on it. Such a batch system starts and stops nodes as it likes, so those that are off
and too many take no jobs, and those that are up and too many are let go. A polled batch system
needs none of that: `scaling` knows the limits.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from springtide import triage
from springtide.calendar import Limits, too_many
from springtide.model import Node, NodeState
from springtide.ports import CALENDAR, OURS, BatchNode, Power
from springtide.spec import Cluster
from springtide.triage import Batch, Drained

_OFF = frozenset({Batch.OFF, Batch.STUCK, Batch.UNKNOWN, Batch.LEAVING})


@dataclass(frozen=True, slots=True)
class Scene:
    """What is known."""

    spec: Cluster
    limits: Mapping[str, Limits]
    nodes: Mapping[str, Node]
    """All of the record."""
    seen: Mapping[str, BatchNode]
    stuck: Collection[str] = ()
    """Nodes that could not start, whatever the calendar says."""
    gone: Collection[str] = ()
    """Nodes that have no instance any more, though the batch system may not have noticed."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What follows."""

    held: Mapping[str, str] = field(default_factory=dict)
    """Nodes that are off and have to stay so, and why."""
    surplus: tuple[str, ...] = ()
    """Nodes that are up and too many: they go when their jobs have ended."""
    spare: tuple[str, ...] = ()
    """Nodes without jobs that the calendar keeps up at other times, and the batch system would
    never let go."""


def bounds(scene: Scene, now: datetime) -> Bounds:
    """Of all groups; nothing without a calendar."""
    if not scene.spec.calendar.entries or scene.spec.polled:
        return Bounds()
    held: dict[str, str] = {}
    surplus: list[str] = []
    spare: list[str] = []
    for key, limits in scene.limits.items():
        names = [name for name in scene.spec.names(key) if name in scene.nodes]
        held |= dict.fromkeys(_held(scene, names, limits.max), why(limits, now))
        surplus += _surplus(scene, names, limits.max)
        spare += _free(scene, names[limits.min : scene.spec.most(key)])
    return Bounds(held, tuple(surplus), tuple(spare))


def why(limits: Limits, now: datetime) -> str:
    """A reason for nodes that are held back."""
    return f"{CALENDAR} at most {limits.max} {limits.ends(now)}"


def is_held(node: BatchNode) -> bool:
    """Whether we drained it for the calendar."""
    return node.drained and node.owner == OURS and _told(node).startswith(CALENDAR)


def is_old(node: BatchNode, why: str) -> bool:
    """Whether the reason for which we drained a node is one of the calendar, and no more true."""
    return is_held(node) and _told(node) != why


def _told(node: BatchNode) -> str:
    return node.reason.partition(f"{OURS}: ")[2]


def _held(scene: Scene, names: Iterable[str], most: int) -> list[str]:
    """All that are off but for as many as may still start, which are the first of the file."""
    off = [name for name in names if _is_off(scene, name)]
    there = sum(name in scene.nodes for name in names) - len(off)
    able = [name for name in off if name not in scene.stuck and not _is_persons(scene, name)]
    return able[max(0, most - there) :]


def _surplus(scene: Scene, names: Iterable[str], most: int) -> list[str]:
    up = [n for n in names if not _is_off(scene, n) and not _is_leaving(scene, n)]
    found = too_many(
        up, most, lambda name: not _is_persons(scene, name), lambda name: _is_idle(scene, name)
    )
    return [name for name in found if _serves(scene, name)]


def _free(scene: Scene, names: Iterable[str]) -> list[str]:
    up = (n for n in names if _serves(scene, n) and not _is_leaving(scene, n))
    return [name for name in up if _is_idle(scene, name) and not scene.seen[name].drained]


def _is_off(scene: Scene, name: str) -> bool:
    """By record, and by a batch system that may still wait for its end."""
    if name in scene.gone:
        return True
    off = triage.batch_view(scene.seen.get(name)) in _OFF
    return off and scene.nodes[name].state is NodeState.OFF


def _is_leaving(scene: Scene, name: str) -> bool:
    """Also one that was let go and ends its jobs."""
    seen = scene.seen.get(name)
    return seen is not None and (seen.power is Power.GOING_DOWN or "POWER_DOWN" in seen.flags)


def _serves(scene: Scene, name: str) -> bool:
    """Not what a person wants to have as it is."""
    seen = scene.seen.get(name)
    ready = scene.nodes[name].state is NodeState.READY
    up = seen is not None and seen.power is Power.UP and seen.registered
    return ready and up and not _is_persons(scene, name)


def _is_idle(scene: Scene, name: str) -> bool:
    return _serves(scene, name) and not scene.seen[name].busy


def _is_persons(scene: Scene, name: str) -> bool:
    return triage.drained_view(scene.seen.get(name)) is Drained.PERSON
