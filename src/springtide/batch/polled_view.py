"""A node of a polled batch system as Slurm would show it: pure, from a reading and the marks."""

from springtide.batch.marks import Course, Drain, Mark, Marks
from springtide.nodeset import fold
from springtide.ports import (
    HELD,
    OURS,
    BatchNode,
    Health,
    Job,
    JobState,
    Power,
    QueueJob,
    QueueNode,
    Reading,
)

SOMEBODY = "somebody"
"""Who drained a node in the batch system itself: it does not tell."""

SAVED_S = 10.0
"""So long after it was told something a batch system that is killed may have forgotten that:
slurmctld writes down what became of its nodes every 5 s."""


def seen_of(reading: Reading, name: str) -> QueueNode:
    return reading.nodes.get(name) or QueueNode(name, Health.ABSENT)


def shown(name: str, reading: Reading, marks: Marks, silent: bool) -> BatchNode:
    """A node as Slurm would show it; `silent` is whether it has been unheard of for long."""
    mark, seen = marks.nodes.get(name), seen_of(reading, name)
    drain = drain_of(mark, seen, marks.drains.get(name))
    power = power_of(mark, seen)
    state = _state(power, seen, silent)
    return BatchNode(
        name=name,
        state=state,
        flags=frozenset() if power is Power.DOWN else seen.words - {state},
        power=power,
        registered=power is Power.UP and seen.health is Health.UP,
        address=mark.address or None if mark and seen.health is not Health.ABSENT else None,
        reason=drain.reason if drain else "",
        busy=bool(seen.jobs),
        drained=drain is not None,
        owner=drain.owner if drain else None,
        leaving=mark is not None and mark.course is Course.LEAVING and power is Power.UP,
    )


def power_of(mark: Mark | None, seen: QueueNode) -> Power:
    """What leaves is up until the batch system has forgotten it: no instance goes before that."""
    if mark is None:
        serves = seen.health is Health.UP and (bool(seen.jobs) or not seen.drained)
        return Power.UP if serves else Power.DOWN
    match mark.course:
        case Course.STARTING:
            return Power.UP if has_arrived(mark, seen) and seen.jobs else Power.GOING_UP
        case Course.UP:
            return Power.UP
        case Course.LEAVING:
            there = seen.health is not Health.ABSENT or bool(seen.jobs)
            return Power.UP if there else Power.GOING_DOWN


def has_arrived(mark: Mark, seen: QueueNode) -> bool:
    """Whether it was heard from since it joined: its jobs tell, if its mark does not yet."""
    return seen.health is Health.UP and bool(mark.address or seen.jobs)


def _state(power: Power, seen: QueueNode, silent: bool) -> str:
    """In Slurm's words, which decisions are made of."""
    if power is not Power.UP:
        return "IDLE"
    if seen.health is not Health.UP:
        return "DOWN" if silent else "UNKNOWN"
    return "ALLOCATED" if seen.jobs else "IDLE"


def drain_of(mark: Mark | None, seen: QueueNode, known: Drain | None) -> Drain | None:
    """Whose it is: what was drained through us is known, and the rest was us or somebody."""
    if known is not None and not (known.owner == OURS and is_persons(seen)):
        there = seen.health in (Health.UP, Health.DOWN) and mark is not None
        return known if seen.drained or not there else None
    if not seen.drained or (seen.health is Health.ABSENT and not is_persons(seen)):
        return None
    if is_persons(seen) or (not seen.reason and _has_joined(mark)):
        return Drain(SOMEBODY, seen.reason)
    if mark is not None and mark.course is Course.UP:
        return Drain(OURS, seen.reason)
    return None  # it is coming or going, and that is why


def is_lost(drain: Drain, name: str, reading: Reading) -> bool:
    """Whether the batch system started since it was told of a drain, and does not have it."""
    return drain.at > 0 and _is_open(name, reading) and _has_started_since(drain, reading)


def is_settled(drain: Drain, name: str, reading: Reading, now: float) -> bool:
    """Whether a drain that might have been forgotten was not: it is there, or somebody ended it."""
    if not drain.at:
        return False
    if _is_open(name, reading):
        return not _has_started_since(drain, reading)
    return seen_of(reading, name).drained and now >= drain.at + SAVED_S


def _is_open(name: str, reading: Reading) -> bool:
    seen = seen_of(reading, name)
    return seen.health in (Health.UP, Health.DOWN) and not seen.drained


def _has_started_since(drain: Drain, reading: Reading) -> bool:
    return reading.started_at not in (None, drain.life)


def _has_joined(mark: Mark | None) -> bool:
    """Whether it was made to take jobs: a drain without words that it has is none of ours."""
    if mark is None or mark.course is Course.LEAVING:
        return False
    return mark.course is Course.UP or bool(mark.address)


def is_ours(seen: QueueNode) -> bool:
    """Whether a drain is certainly ours."""
    return seen.drained and seen.reason.startswith(OURS)


def is_persons(seen: QueueNode) -> bool:
    """Whether a drain is certainly not ours; where no reasons are kept, marks must tell."""
    return seen.drained and bool(seen.reason) and not seen.reason.startswith(OURS)


def _reason(job: QueueJob) -> str:
    """Begun as Slurm does of jobs that only lack nodes, and as it never does of held ones."""
    words = f": {job.reason}" if job.reason and job.reason != HELD else ""
    if job.state is JobState.HELD:
        return f"{HELD}{words}"
    return f"Resources{words}" if words and job.state is JobState.WAITING else job.reason


_STATES = {JobState.WAITING: "PENDING", JobState.HELD: "PENDING", JobState.RUNNING: "RUNNING"}


def shown_job(job: QueueJob) -> Job:
    count = sum(chunk.count if chunk.spread else 1 for chunk in job.chunks)
    return Job(
        id=job.id,
        state="COMPLETING" if job.over else _STATES[job.state],
        user=job.user,
        partition=",".join(job.queues),
        nodes=fold(job.nodes),
        node_count=len(job.nodes) or count,
        reason=_reason(job),
    )
