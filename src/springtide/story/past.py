"""What happened, told from the record's events: a boot of forty nodes is one line. Pure.

A chapter is what several events of a node come to: from its request to its registration it was
started. Chapters that are alike are one line.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from springtide.model import NOT_TAKEN, STARTS_NODES, Event, Kind, NodeState, Operation
from springtide.nodeset import fold
from springtide.story.telling import ITSELF, causes, lasting, named, orderer
from springtide.triage import RULES, Repair

STARTED, REMOVED, REMAINS = "node started", "instance removed", "remains removed"
BROKE = "node broke"
_STEPS_UP = frozenset(
    {
        "node requested",
        "reboot requested",
        "instance created",
        "instance rebooted",
        "address known",
        "address told",
        "node joined",
    }
)
"""What a start consists of, until the batch system hears from the node."""
_PHRASES: Mapping[str, str] = {
    STARTED: "started by {order}; in service after {took}",
    REMOVED: "instance removed by {order}",
    REMAINS: "what was left of it removed",
    BROKE: "broke; removed, and its jobs put back into the queue, by {order}",
    "node failed": "could not start: {detail}",
    "node requested": "start ordered by {order}",
    "reboot requested": "reboot ordered by {order}",
    "instance created": "instance made",
    "instance rebooted": "instance rebooted",
    "address known": "address known",
    "address told": "booting; Slurm waits for slurmd to report",
    NOT_TAKEN: "not taken by the batch system yet: {detail}",
    "node joined": "joined; it sets itself up",
    "join refused": "a machine was not let in: {detail}",
    "cannot join": "could not join yet: {detail}",
    "boot failed": "its boot failed: {detail}",
    "node smaller than told": "smaller than Slurm is told: {detail}",
    "version differs": "not the Slurm of the control host: {detail}",
    "node registered": "in service: Slurm has heard from slurmd",
    "node given back": "given back to Slurm, and its jobs to the queue",
    "give back failed": "Slurm could not be told that they do not come: {detail}",
    "resume failed": "Slurm waited no longer: {detail}",
    "instance deleting": "deletion of its instance ordered by {order}",
    "instance gone": "instance gone",
    "instance stuck": "cannot be deleted yet: {detail}",
    "rebuild begun": "rebuild begun by {order}",
    "not rebuilt": "not rebuilt: {detail}",
    "node draining": "takes no new jobs, by {order}",
    "node back in service": "back in service: {detail}",
    "jobs given back": "its jobs went back to the queue: {detail}",
    "drain asked": "drained by {detail}",
    "undrain asked": "undrained {detail}",
    "drain set again": "drained again, as the batch system had lost that when it died: {detail}",
    "resume asked of the batch system": "the batch system was asked to start it {detail}",
    "suspend asked of the batch system": "the batch system was asked to stop it {detail}",
    "held back": "takes no jobs for now: {detail}",
    "given to the batch system again": "given to Slurm again: {detail}",
    "refused by the batch system": "not done by Slurm: {detail}",
    "record follows the world": "found otherwise than recorded; the record follows: {detail}",
    "unneeded instance deleted": "instance that nobody needs deleted: {detail}",
    "release failed": "Slurm could not be told that they are gone: {detail}",
    "operation waits": "{order} waits: {detail}",
    "operation judged": "{order} goes no further: {detail}",
    "cancel asked": "{order} is to end {detail}",
}
"""Events and chapters in plain words; others are shown as they are."""
_OPERATIONS_OWN = frozenset({"operation waits", "operation judged", "cancel asked"})
"""Events of an operation that say something about its nodes; the rest shows in theirs."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """Something that became of one node, or of an operation."""

    at: float
    what: str
    node: str | None
    operation: int | None
    detail: str = ""
    took_s: float = 0.0


def told(
    events: Iterable[Event],
    operations: Mapping[int, Operation],
    most: int | None,
    about: str | None = None,
) -> tuple[tuple[float, str], ...]:
    """The newest `most` lines (None: all), oldest first; a node that it is all about is not named.

    `operations` are those known by their ids.
    """
    found = _folded(chapters(events), operations)
    lines = [(alike[0].at, _line(alike, operations, about)) for alike in found]
    return tuple(lines if most is None else lines[-most:])


def is_booted(events: Iterable[Event], node: str) -> bool:
    """Whether the last start of a node that failed came as far as an instance, with words of it."""
    made = failed = False
    for event in events:
        if event.node == node and event.what in ("node requested", "instance created"):
            made = event.what == "instance created"
        elif event.node == node and event.what == "node failed":
            failed = made
    return failed


def chapters(events: Iterable[Event]) -> list[Chapter]:
    """Events of any nodes as chapters, in the order of time."""
    by_node: dict[str | None, list[Event]] = defaultdict(list)
    for event in events:
        by_node[event.node].append(event)
    own = [_as_it_is(e) for e in by_node.pop(None, []) if e.what in _OPERATIONS_OWN and e.detail]
    lives = (chapter for one in by_node.values() for chapter in _life(one))
    return sorted([*own, *lives], key=lambda chapter: chapter.at)


def _life(events: Sequence[Event]) -> list[Chapter]:
    """The chapters of one node; those that have not come to their end step by step."""
    found: list[Chapter] = []
    up: list[Event] = []
    down: list[Event] = []
    for event in events:
        match event.what:
            case step if step in _STEPS_UP:
                up.append(event)
            case "node registered" if up:
                found.append(_chapter(STARTED, up[0], event))
                up = []
            case "node failed":
                found.append(_as_it_is(event))
                up = []
            case "instance deleting":
                found.extend(map(_as_it_is, up))
                up, down = [], [event]
            case "instance gone" if down:
                found.append(_chapter(REMOVED, event, event))
                down = []
            case _:
                found.append(_as_it_is(event))
    return [*found, *map(_as_it_is, (*up, *down))]


def _chapter(what: str, first: Event, last: Event) -> Chapter:
    return Chapter(first.at, what, first.node, last.operation, "", last.at - first.at)


def _as_it_is(event: Event) -> Chapter:
    what = event.what
    detail = "" if what in _STEPS_UP else event.detail
    return Chapter(event.at, what, event.node, event.operation, detail)


def _folded(found: Iterable[Chapter], operations: Mapping[int, Operation]) -> list[list[Chapter]]:
    """Those of several nodes that say the same."""
    groups: dict[tuple[object, ...], list[Chapter]] = {}
    for one in found:
        # Without an operation only what was done in one go belongs together.
        apart = one.at if one.operation is None else _cause(operations, one)
        groups.setdefault((one.what, one.operation, one.detail, apart), []).append(one)
    return list(groups.values())


def _line(alike: Sequence[Chapter], operations: Mapping[int, Operation], about: str | None) -> str:
    first = alike[0]
    text = _words(first, operations, max(one.took_s for one in alike))
    names = fold(one.node for one in alike if one.node and one.node != about)
    return f"{names}: {text}" if names else text


def _words(chapter: Chapter, operations: Mapping[int, Operation], took_s: float) -> str:
    known = operations.get(chapter.operation or 0)
    phrase = _PHRASES.get(_kind(known, _cause(operations, chapter), chapter))
    if phrase is None:
        return f"{chapter.what}: {chapter.detail}" if chapter.detail else chapter.what
    order = f"{_order(known, chapter)}{_because(_cause(operations, chapter))}"
    return phrase.format(order=order, detail=chapter.detail, took=lasting(took_s)).rstrip(": ")


def _kind(operation: Operation | None, cause: str, chapter: Chapter) -> str:
    """What the removal of an instance came to."""
    if operation is None or chapter.what != REMOVED:
        return chapter.what
    if operation.kind is Kind.REPAIR and cause in _IN_SERVICE:
        return BROKE
    return REMAINS if operation.kind in STARTS_NODES else REMOVED


_IN_SERVICE = frozenset(
    rule.why for rule in RULES if rule.repair is Repair.REPAIR and NodeState.READY in rule.record
)
"""What befalls nodes that may have jobs."""


def _cause(operations: Mapping[int, Operation], chapter: Chapter) -> str:
    """Why Springtide did by itself what it did to the node."""
    known = operations.get(chapter.operation or 0)
    if known is None or known.asked_by != ITSELF or chapter.node is None:
        return ""
    return causes(known).get(chapter.node, "")


def _because(cause: str) -> str:
    return f", because {cause}" if cause and not cause.startswith("to ") else cause and f" {cause}"


def _order(operation: Operation | None, chapter: Chapter) -> str:
    """Who ordered it: of what Slurm asks for, only that matters."""
    if operation is None:
        return f"operation {chapter.operation}"
    if operation.asked_by == "batch" and chapter.node:
        return orderer(operation)
    return named(operation)
