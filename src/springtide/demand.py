"""What waiting jobs need: which nodes are to start for them, and which that are there they take.

Pure; `scaling` asks. The choosy and the large ones choose first. A job gets all of its nodes, or
none start for it; and what it can never get is said, and not started for.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from springtide.never import Bare, impossible, is_lost, lost
from springtide.packing import Packing, Pool, Room
from springtide.ports import QueueJob
from springtide.wishes import Wish, common, served, wishes


@dataclass(frozen=True, slots=True)
class Demand:
    """What follows from the jobs that wait."""

    start: tuple[str, ...] = ()
    """Nodes to start."""
    used: frozenset[str] = frozenset()
    """Nodes that are there, or on their way, and that waiting jobs would take."""
    impossible: Mapping[str, str] = field(default_factory=dict)
    """Jobs that can never start in our queues, and why, for their owners."""
    short: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Groups that have too few nodes left, and the jobs that wait for that."""
    jobs: tuple[str, ...] = ()
    """Those that nodes start for."""
    wide: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Those of several nodes among them, but no arrays, and their nodes."""


def demand(
    jobs: Iterable[QueueJob],
    rooms: Iterable[Room],
    pools: Sequence[Pool],
    early: Collection[str] = (),
    elsewhere: Collection[str] = (),
) -> Demand:
    """What follows from the jobs that wait; for those in `early` nothing starts yet.

    `pools` are in the order of preference. Jobs of queues that no pool serves, or that insist on
    nodes of others, are not ours. `elsewhere` are queues that have nodes of others too.
    """
    jobs = list(jobs)
    wanted = sorted(wishes(jobs, pools, early), key=_order)
    packing = Packing(rooms, pools, common(wanted))
    ours = served(pools)
    alone = ours.difference(elsewhere)
    dead = (job for job in jobs if is_lost(job, ours))
    tally = _Tally(
        {job.id: lost(job, pools if alone.issuperset(job.queues) else ()) for job in dead}
    )
    bare = Bare(pools)
    for wish in wanted:
        why = impossible(wish)
        if not why:
            _place(packing, wish, bare, tally)
        elif alone.issuperset(wish.queues):
            tally.impossible |= {job: why for job, _ in wish.jobs}
    return Demand(
        start=packing.started,
        used=packing.used,
        impossible=tally.impossible,
        short={group: tuple(ids) for group, ids in tally.short.items()},
        jobs=tuple(tally.jobs),
        wide=tally.wide,
    )


@dataclass(slots=True)
class _Tally:
    """What is known so far."""

    impossible: dict[str, str] = field(default_factory=dict)
    short: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    jobs: list[str] = field(default_factory=list)
    wide: dict[str, tuple[str, ...]] = field(default_factory=dict)


def _order(wish: Wish) -> tuple[bool, bool, bool, int, int, int, int]:
    """Who chooses first: those for whom nodes may start, the choosy, the large."""
    chunks = [chunk for chunk, _ in wish.parts]
    return (
        not wish.opens,
        not wish.names,
        not wish.avoid,
        min([len(pools) for _, pools in wish.parts], default=0),
        -max([chunk.cores for chunk in chunks], default=0),
        -max([chunk.memory for chunk in chunks], default=0),
        -sum([chunk.count for chunk in chunks]),
    )


def _place(packing: Packing, wish: Wish, bare: Bare, tally: _Tally) -> None:
    before = packing.opened
    missing = _place_small(packing, wish) if wish.is_small else _place_wide(packing, wish, tally)
    if packing.opened > before:
        tally.jobs += [job for job, _ in wish.jobs]
    if missing and wish.opens and not wish.names and bare.holds(wish):
        for group in wish.groups:
            tally.short[group] += wish.last(missing)


def _place_small(packing: Packing, wish: Wish) -> int:
    return packing.place_each(wish.parts[0], wish.count, wish.terms)


def _place_wide(packing: Packing, wish: Wish, tally: _Tally) -> int:
    """One after the other; where one finds no room, those that are alike find none either."""
    left = wish.count
    choices = wish.choices or (wish.parts,)
    for job, tasks in wish.jobs:
        if tasks > 1:
            missing = tasks
            for parts in choices:
                missing = packing.place_alike(parts, missing, wish.terms)
            left -= tasks - missing
            if missing:
                return left
            continue
        before = packing.opened
        tries = (packing.place_whole(parts, wish.terms) for parts in choices)
        nodes = next(filter(None, tries), ())
        if not nodes:
            return left
        left -= 1
        if len(nodes) > 1 and packing.opened > before:
            tally.wide[job] = nodes
    return left
