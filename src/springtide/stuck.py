"""Jobs that wait beside nodes that stand free for them: more nodes would not help those. Pure.

`scaling` asks. Quotas, limits and access lists of batch systems are not read, but what they do is
seen: a node that would hold a job stands free for long, nothing that needs more nodes is before
the job, and it does not start. It is stuck then, and no demand. It is counted as demand again for
a while now and then, ever more seldom; at once when what it asks for changes; and as far as
something happened that may have freed it (`_freed`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from springtide.never import Bare, impossible
from springtide.packing import Packing, Pool, Room, fits
from springtide.ports import Chunk, JobState, QueueJob
from springtide.wishes import Wish, common, wishes

LOOKS = 3
"""Nothing is concluded from fewer."""
FIRST_S, MOST_S = 600.0, 3600.0
"""So long a job is left alone at first, and at most."""

Need = tuple[tuple[Chunk, ...], tuple[str, ...], tuple[str, ...], frozenset[str]]


class Then(NamedTuple):
    """How it was when a job was found stuck."""

    of_user: int = 0
    """So many jobs of its user ran."""
    in_queues: int | None = None
    """So many ran in its queues; None if others started there while it waited."""
    tasks: int = 0
    """So many of its own waited."""


class Doubt(NamedTuple):
    """What is remembered of a job that waits."""

    need: Need
    waited_s: float = 0.0
    """As one that is counted."""
    rest_s: float = 0.0
    """It is stuck, and left alone for so much longer."""
    times: int = 0
    """It was found stuck so often."""
    alone: bool = True
    """Nothing started in its queues while it waited as one that is counted."""
    then: Then = Then()
    tries: int = 0
    """It is stuck, but so many of its tasks may be free since, and are counted."""

    @property
    def is_stuck(self) -> bool:
        return self.rest_s > 0

    @property
    def is_out(self) -> bool:
        """It is no demand."""
        return self.is_stuck and not self.tries


@dataclass(frozen=True, slots=True)
class Doubts:
    """What is remembered of jobs, and of nodes that might have taken them."""

    jobs: Mapping[str, Doubt] = field(default_factory=dict)
    free: Mapping[str, float] = field(default_factory=dict)
    """For how long nodes have stood free without a job that may be kept waiting for them."""
    running: frozenset[str] = frozenset()
    """The jobs that ran."""

    def keep_out(self, job: QueueJob) -> bool:
        """Whether it is no demand."""
        known = self._of(job)
        return known is not None and known.is_out

    def counted(self, jobs: Iterable[QueueJob]) -> list[QueueJob]:
        """Those that are demand, with as many tasks as are."""
        found = []
        for job in jobs:
            known = self._of(job)
            if known is None or not known.is_stuck:
                found.append(job)
            elif known.tries:
                found.append(replace(job, tasks=known.tries))
        return found

    def _of(self, job: QueueJob) -> Doubt | None:
        return self.jobs.get(job.id) if job.state is JobState.WAITING else None


@dataclass(frozen=True, slots=True)
class Idle:
    """What stands free at a look."""

    rooms: Sequence[Room]
    """Nodes in service, all of each."""
    pools: Sequence[Pool]
    able: Mapping[str, int]
    """How many nodes of a group can serve at once."""


def doubts(
    jobs: Sequence[QueueJob], idle: Idle, before: Doubts, step_s: float, least_s: float
) -> Doubts:
    """What is known after another look, `step_s` after that before.

    A job is stuck that waited for `least_s`, beside nodes that stood free for as long.
    """
    waiting = [job for job in jobs if job.state is JobState.WAITING]
    runs = _Runs.of(jobs, before.running)
    known = {job.id: _aged(before.jobs.get(job.id), job, runs, step_s) for job in waiting}
    known |= _freed(waiting, known, runs)
    if not idle.rooms:
        return Doubts(known, running=runs.ids)
    wanted = list(wishes(Doubts(known).counted(waiting), idle.pools))
    ahead = _ahead(wanted, idle)
    names = [room.name for room in idle.rooms if room.group not in ahead]
    free = {n: before.free[n] + step_s if n in before.free else 0.0 for n in names}
    settled = [room for room in idle.rooms if free.get(room.name, -1.0) >= least_s]
    late = {id for id, doubt in known.items() if doubt.waited_s >= least_s}
    found = late.intersection(_held_by(settled, wanted, idle.pools, late))
    known |= _left_alone(waiting, known, found, runs)
    return Doubts(known, free, runs.ids)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Jobs that run."""

    ids: frozenset[str]
    users: Counter[str]
    queues: Counter[str]
    started: frozenset[str]
    """Queues in which some did since the look before."""

    @classmethod
    def of(cls, jobs: Iterable[QueueJob], before: Collection[str]) -> "_Runs":
        running = [job for job in jobs if job.state is JobState.RUNNING]
        return cls(
            frozenset(job.id for job in running),
            Counter(job.user for job in running),
            Counter(queue for job in running for queue in job.queues),
            frozenset(queue for job in running if job.id not in before for queue in job.queues),
        )

    def beside(self, job: QueueJob) -> int:
        """How many run in its queues."""
        return sum(self.queues[queue] for queue in job.queues)


def _aged(before: Doubt | None, job: QueueJob, runs: _Runs, step_s: float) -> Doubt:
    need = job.chunks, job.queues, job.names, job.avoid
    if before is None or before.need != need:
        return Doubt(need)
    rest_s = max(0.0, before.rest_s - step_s)
    if before.is_out:
        return before._replace(waited_s=0.0, rest_s=rest_s, alone=True)
    alone = before.alone and runs.started.isdisjoint(job.queues)
    waited_s = before.waited_s + step_s
    return before._replace(waited_s=waited_s, rest_s=rest_s, alone=alone, tries=0)


def _freed(
    waiting: Iterable[QueueJob], known: Mapping[str, Doubt], runs: _Runs
) -> dict[str, Doubt]:
    """Of stuck jobs so many tasks are tried as others made room or went before.

    As many jobs of the user ended as they are fewer now; as many tasks of an array started as more
    run, and fewer wait; and where nothing started at all, a queue may have been full or stopped.
    """
    given = Counter[object]()
    found = {}
    for job in waiting:
        doubt = known[job.id]
        if not doubt.is_stuck:
            continue
        then, more = doubt.then, runs.users[job.user] - doubt.then.of_user
        tries = max(-more, min(more, then.tasks - job.tasks)) - given[job.user]
        if then.in_queues is not None:
            tries = max(tries, abs(runs.beside(job) - then.in_queues) - given[job.queues])
        tries = max(0, min(tries, job.tasks))
        given.update({job.user: tries, job.queues: tries})
        if tries:
            found[job.id] = doubt._replace(tries=tries)
    return found


def pause_s(times: int) -> float:
    """For how long what was left alone so often is left alone now."""
    return min(MOST_S, FIRST_S * 2.0 ** min(times, 10))


def _left_alone(
    waiting: Iterable[QueueJob],
    known: Mapping[str, Doubt],
    stuck: Collection[str],
    runs: _Runs,
) -> dict[str, Doubt]:
    """These are; and what happened before frees no other jobs of their users either."""
    users = {job.user for job in waiting if job.id in stuck}
    found = {}
    for job in waiting:
        doubt = known[job.id]
        if job.user not in users or not (doubt.is_stuck or job.id in stuck):
            continue
        in_queues = runs.beside(job) if doubt.alone else None
        doubt = doubt._replace(then=Then(runs.users[job.user], in_queues, job.tasks), tries=0)
        if job.id in stuck:
            doubt = doubt._replace(rest_s=pause_s(doubt.times), times=doubt.times + 1)
        found[job.id] = doubt
    return found


def _ahead(wanted: Sequence[Wish], idle: Idle) -> frozenset[str]:
    """Groups of which jobs lack nodes that they may get yet: what is idle may be kept for them."""
    holds, bare = _holder(idle.rooms, wanted, idle.pools), Bare(idle.pools)
    return frozenset(
        group
        for wish in wanted
        if not wish.names and not holds(wish)
        if wish.spread <= sum(idle.able[group] for group in wish.groups)
        if not impossible(wish) and bare.holds(wish)
        for group in wish.groups
    )


def _held_by(
    rooms: Sequence[Room], wanted: Iterable[Wish], pools: Sequence[Pool], late: Collection[str]
) -> list[str]:
    """Jobs like those in `late` for each of which there would be room, if it was the only one."""
    if not rooms:
        return []
    due = [wish for wish in wanted if any(job in late for job, _ in wish.jobs)]
    holds = _holder(rooms, due, pools)
    return [job for wish in due if holds(wish) for job, _ in wish.jobs]


def _holder(
    rooms: Sequence[Room], wanted: Sequence[Wish], pools: Sequence[Pool]
) -> Callable[[Wish], bool]:
    """Whether a job would find room on these, which are whole: of one part, sums tell that."""
    packing, there = Packing(rooms, pools, common(wanted)), Counter(room.group for room in rooms)

    def holds(wish: Wish) -> bool:
        if len(wish.parts) != 1 or wish.names or wish.avoid:
            return packing.holds(wish.parts, wish.terms)
        ((chunk, able),) = wish.parts
        each = (there[pool.group] * (1 if chunk.spread else fits(chunk, pool)) for pool in able)
        return chunk.count <= sum(each)

    return holds
