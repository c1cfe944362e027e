"""Where a node of a polled batch system stands, by the record, its mark and the batch system. Pure.

`scaling` decides with it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from springtide.batch.marks import Course, Mark
from springtide.batch.polled import Look
from springtide.model import STARTING, Node, NodeState
from springtide.ports import BatchNode, Health, JobState, Member, Power, QueueJob, QueueNode

PLAIN = frozenset({"free", "IDLE", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""All that a node without jobs may say that takes any: PBS's and Slurm's words; Grid Engine has
none. Others are reservations, plans, alarms and errors."""


class Way(StrEnum):
    """Which way a node goes."""

    OFF = "off"
    STARTING = "starting"
    UP = "up"
    LEAVING = "leaving"
    OTHER = "other"
    """Between two of them: an operation or a repair has it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One node."""

    name: str
    way: Way
    record: NodeState
    health: Health
    jobs: tuple[str, ...]
    cores_used: int
    closed: bool
    """It takes no new jobs."""
    drained: bool
    """By somebody's wish, and not because it leaves: that keeps it as it is."""
    claimed: bool
    """An operation is at it."""
    marked: bool
    asked: bool
    """It leaves by somebody's wish."""
    words: frozenset[str] = frozenset()
    """Its state in the batch system's own."""
    shut: bool = False
    """It takes no new jobs for something of its own."""

    @property
    def is_startable(self) -> bool:
        return self.way is Way.OFF and not self.drained and not self.claimed

    @property
    def is_forgotten(self) -> bool:
        """Marked to start, while nobody starts it."""
        starting = self.way is Way.STARTING and self.marked
        return starting and self.record is NodeState.OFF and not self.claimed

    @property
    def is_silent(self) -> bool:
        return self.way in (Way.UP, Way.LEAVING) and self.health is not Health.UP

    @property
    def is_shut(self) -> bool:
        there = self.way in (Way.UP, Way.LEAVING)
        return there and self.health is Health.UP and self.shut

    @property
    def is_well(self) -> bool:
        """It takes jobs, as far as it depends on itself, or has some."""
        serves = self.way is Way.UP and self.health is Health.UP and not self.drained
        return serves and (bool(self.jobs) or not self.shut)

    @property
    def may_retire(self) -> bool:
        serves = self.way is Way.UP and self.health is Health.UP
        ours = self.record is NodeState.READY and not self.claimed
        return serves and ours and not self.drained

    @property
    def is_idle(self) -> bool:
        return self.may_retire and not self.jobs

    @property
    def is_free(self) -> bool:
        """Jobs could start on it at once: it says nothing that may keep them off."""
        return self.is_idle and not self.closed and not self.shut and self.words <= PLAIN

    @property
    def is_open(self) -> bool:
        """It leaves, and could yet be given a job."""
        leaving = self.way is Way.LEAVING and self.record is not NodeState.OFF
        return leaving and self.health is Health.UP and not self.closed

    @property
    def may_stay(self) -> bool:
        """Whether it leaves only because it was idle, and could serve on."""
        there = self.way is Way.LEAVING and self.health is Health.UP and not self.jobs
        return there and not self.asked and not self.claimed and self.record is NodeState.READY


def standings(
    names: Iterable[str], look: Look, record: Mapping[str, Node], claimed: Collection[str]
) -> Iterator[Standing]:
    """Of nodes that we manage."""
    for name in names:
        seen, node = look.nodes[name], record[name]
        mark = look.marks.nodes.get(name)
        shown = look.reading.nodes.get(name) or QueueNode(name, Health.ABSENT)
        yield Standing(
            name,
            _way(mark, node, seen),
            node.state,
            shown.health,
            shown.jobs,
            shown.cores_used,
            shown.drained,
            seen.drained,
            name in claimed,
            mark is not None,
            mark is not None and mark.asked,
            shown.words,
            shown.shut,
        )


_COURSES = {
    Course.STARTING: Way.STARTING,
    Course.UP: Way.UP,
    Course.LEAVING: Way.LEAVING,
}


def _way(mark: Mark | None, node: Node, seen: BatchNode) -> Way:
    if mark is not None:
        return _COURSES[mark.course]
    if node.state in STARTING:
        return Way.STARTING
    if seen.power is Power.UP:
        return Way.UP
    return Way.OFF if node.state is NodeState.OFF else Way.OTHER


# --- what jobs have of nodes ---------------------------------------------------------------------


class Taken(NamedTuple):
    """What jobs have of a node, as far as can be told from what they asked for."""

    cores: int = 0
    memory: int = 0
    whole: bool = False


Usage = Mapping[str, Taken]


def usage(jobs: Iterable[QueueJob]) -> Usage:
    """By node, of jobs that have some."""
    found: dict[str, Taken] = {}
    for job in jobs:
        if job.state is JobState.RUNNING and job.nodes:
            mine = _share(job)
            for name in job.nodes:
                cores, memory, whole = found.get(name, Taken())
                found[name] = Taken(cores + mine.cores, memory + mine.memory, whole or mine.whole)
    return found


def _share(job: QueueJob) -> Taken:
    """Which node has which of its chunks is not known: each has as much as any."""
    count = len(job.nodes)
    cores = sum(chunk.count * chunk.cores for chunk in job.chunks)
    memory = sum(chunk.count * chunk.memory for chunk in job.chunks)
    whole = any(chunk.exclusive for chunk in job.chunks)
    return Taken(-(-cores // count), -(-memory // count), whole)


def free(node: Standing, member: Member, taken: Usage) -> tuple[int, int]:
    """Cores and memory that nobody has."""
    if not node.jobs:
        return member.cores, member.memory
    mine = taken.get(node.name, Taken())
    if mine.whole:
        return 0, 0
    used = max(1, node.cores_used, mine.cores)
    return max(0, member.cores - used), max(0, member.memory - mine.memory)
