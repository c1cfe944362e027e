"""What is asked of Torque, and what never: pure checks of `torque`, which does the asking."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from springtide.batch.names import matching, node_names
from springtide.batch.torque_text import DOWN, OFFLINE, TorqueNode
from springtide.batch.unread import UnreadableError
from springtide.nodeset import fold
from springtide.ports import OURS, Health, JobState, Member, QueueJob, Unavailable

T = TypeVar("T")

_JOB = re.compile(r"[0-9]{1,18}(?:\[[0-9]{0,9}\])?(?:\.[A-Za-z0-9][A-Za-z0-9._-]{0,252})?")
_PROPERTY = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")

Nodes = Mapping[str, TorqueNode]


def sensible(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except UnreadableError as error:
        raise Unavailable(str(error)) from None


# What may be in a command


def checked_members(members: Iterable[Member]) -> dict[str, Member]:
    known = {member.name: member for member in members}
    node_names(known)
    for member in known.values():
        for word in properties(member):
            if not _PROPERTY.fullmatch(word):
                raise Unavailable(f"{member.name}: {word[:80]!r} cannot be a property in Torque")
    return known


def checked_jobs(jobs: Iterable[str]) -> list[str]:
    return matching(_JOB, jobs, "a job of Torque")


def properties(member: Member) -> tuple[str, ...]:
    """Ours, the queues that it serves, and what jobs can ask for."""
    return tuple(dict.fromkeys((OURS, *member.queues, *member.features)))


def attributes(member: Member) -> str:
    return f'np={member.cores},properties="{",".join(properties(member))}"'


def as_member(node: TorqueNode) -> Member:
    """A node as it would be created."""
    features = tuple(sorted(node.properties - {OURS}))
    return Member(node.shown.name, node.note.address, node.np, 0, features, ())


# What holds of nodes


def differs(node: TorqueNode, member: Member) -> bool:
    """A node that is off is not as it is to be; those that serve stay as they are."""
    off = node.shown.health is Health.ABSENT and not node.fresh
    return off and (node.np, node.properties) != (member.cores, frozenset(properties(member)))


def is_open_though_off(node: TorqueNode) -> bool:
    """It was new when it was prepared, and took no note then."""
    settled = node.shown.health is Health.ABSENT and not node.fresh
    return (
        settled and not node.note.off and not node.note.reason and OFFLINE not in node.shown.words
    )


def is_bare(node: TorqueNode) -> bool:
    """One of ours that is off, is to be offline, and does not say so yet."""
    new = node.fresh and not node.note.off and not node.note.reason
    return node.ours and node.shown.health is Health.ABSENT and (new or is_open_though_off(node))


def has_moved(node: TorqueNode, member: Member, created_at: Mapping[str, str]) -> bool:
    """Torque may know it by another address than it has; one that is heard is trusted.

    Which one it was created with its note tells once it was there, and until then `created_at`.
    """
    if not member.address:
        return False
    known = node.note.address or created_at.get(member.name)
    return known != member.address if known else node.shown.health is not Health.UP


def expects(node: TorqueNode, after: int) -> bool:
    """Torque starts nothing on it before it has heard from it after that time."""
    return node.note.after == after and (bool(node.shown.words & DOWN) or node.heard_at > after)


def staying(nodes: Nodes, names: Iterable[str], jobs: Iterable[QueueJob]) -> dict[str, str]:
    """Those of the nodes that cannot leave, and why."""
    on: defaultdict[str, list[str]] = defaultdict(list)
    for job in jobs:
        for name in job.nodes if job.state is JobState.RUNNING else ():
            on[name].append(job.id)
    there = {name: nodes[name] for name in names if name in nodes}
    return {name: why for name, node in there.items() if (why := _stays(node, on.get(name, ())))}


def _stays(node: TorqueNode, jobs: Iterable[str]) -> str:
    """Why it cannot leave; empty if it can."""
    if not node.ours:
        return f"it has no property {OURS}, so it is not ours"
    busy = dict.fromkeys((*node.shown.jobs, *jobs))
    return f"it has jobs: {', '.join(busy)}" if busy else ""


def require_queues(queues: Collection[str], members: Iterable[Member]) -> None:
    wanted = dict.fromkeys(name for member in members for name in member.queues)
    if missing := [name for name in wanted if name not in queues]:
        raise Unavailable(
            f'Torque has no queue {missing[0]}; make it (qmgr -c "create queue {missing[0]} '
            'queue_type=execution"), or correct `partitions`'
        )


def refuse_others(nodes: Nodes, names: Iterable[str]) -> None:
    """Nodes of the premises may have the same names."""
    if others := [name for name in names if name in nodes and not nodes[name].ours]:
        raise Unavailable(
            f"Torque has {fold(others)} already, without the property {OURS}: give our nodes "
            f"other names, or delete these with qmgr"
        )


def refuse_busy(nodes: Nodes, jobs: Sequence[QueueJob], names: Iterable[str]) -> None:
    if busy := staying(nodes, names, jobs):
        words = "; ".join(f"{name}: {why}" for name, why in busy.items())
        raise Unavailable(f"Torque must not delete {fold(busy)}; let the jobs end first: {words}")


def all_hold(
    nodes: Nodes, names: Collection[str], holds: Callable[[TorqueNode], bool], otherwise: str
) -> None:
    """What a command did is seen, or it has failed."""
    if wrong := [name for name in names if name not in nodes or not holds(nodes[name])]:
        raise Unavailable(f"Torque {otherwise} {fold(wrong)}, against our command")
