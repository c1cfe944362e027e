"""What a FakeQueue keeps of each node and job, and its timing."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from springtide.ports import Chunk, Health, JobState, Member, QueueJob, QueueNode


@dataclass(slots=True)
class QueueTiming:
    """How long things take."""

    latency_s: float = 0.0  # of a question or command, before its effect and after
    join_s: float = 2.0  # from a running instance to a node that is heard from
    silence_s: float = 60.0  # until a node that died is shown as down
    deaf_s: float = 30.0  # after a restart, until nodes are heard from again
    turn_s: float = 5.0  # until the scheduler sees what is new, unless it is woken


class Share(NamedTuple):
    """What a job has of a node."""

    cores: int
    memory: int


@dataclass(slots=True)
class Host:
    """A node as the batch system sees it."""

    member: Member
    expected: bool = False  # it has joined; else it is known as one that is off
    heard: bool = False  # since it joined
    down: bool = False
    drained: bool = False
    reason: str = ""
    drained_at: float = 0.0
    shut: bool = False  # in error
    joins: int = 0
    shares: dict[str, Share] = field(default_factory=dict)  # by job

    @property
    def cores_used(self) -> int:
        return sum(share.cores for share in self.shares.values())

    @property
    def memory_used(self) -> int:
        return sum(share.memory for share in self.shares.values())

    @property
    def open(self) -> bool:
        """Whether jobs may start on it."""
        serves = self.heard and not self.down and not self.drained and not self.shut
        return serves and self.cores_used < self.member.cores

    def why_it_stays(self) -> str:
        """Why it may not be forgotten; empty if it may."""
        if self.shares:
            return f"it has jobs: {', '.join(self.shares)}"
        return "" if self.drained else "it is not drained"

    def shown(self, deaf: bool) -> QueueNode:
        health = self._health(deaf)
        serving = "busy" if self.shares else "free"
        word = ("error" if self.shut else serving) if health is Health.UP else health.value
        return QueueNode(
            self.member.name,
            health,
            frozenset({word, "offline"} if self.drained else {word}),
            self.drained,
            self.reason,
            tuple(self.shares),
            self.cores_used,
            self.shut,
        )

    def _health(self, deaf: bool) -> Health:
        if not self.expected:
            return Health.ABSENT
        if not self.heard:
            return Health.JOINING
        return Health.DOWN if self.down or deaf else Health.UP


Wish = tuple[tuple[Chunk, ...], tuple[str, ...], tuple[str, ...]]


@dataclass(slots=True)
class Work:
    """A job, or those tasks of an array that wait, and its times."""

    id: str
    chunks: tuple[Chunk, ...]
    queues: tuple[str, ...]
    submitted_at: float
    tasks: int = 1
    duration_s: float | None = None
    user: str = ""
    names: tuple[str, ...] = ()
    held: bool = False
    after: str | None = None  # another job that must be over first
    nodes: tuple[str, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    end: asyncio.TimerHandle | None = None
    dead: bool = False  # a node of it died, which nobody may know
    requeues: int = 0
    started: int = 0  # tasks of this array

    @property
    def wish(self) -> Wish:
        """Jobs with the same one fit into the same room."""
        return self.chunks, self.queues, self.names

    def next_task(self) -> "Work":
        """Itself, or a task of this array that is a job of its own from now on."""
        if self.tasks == 1 and not self.started:
            return self
        self.tasks, self.started = self.tasks - 1, self.started + 1
        return replace(self, id=f"{self.id}[{self.started}]", tasks=1, started=0)

    def shown(self, state: JobState) -> QueueJob:
        return QueueJob(
            self.id,
            state,
            self.user,
            self.queues,
            self.chunks,
            self.tasks,
            self.nodes,
            self.names,
            "held" if state is JobState.HELD else "",
            self.submitted_at,
        )

    def places(self, hosts: Collection[Host]) -> dict[str, Share] | None:
        """What it would have of which nodes, the first that have room; None if there is none."""
        found: dict[str, Share] = {}
        for chunk in self.chunks:
            for _ in range(chunk.count):
                fits = (h for h in hosts if self._may_use(h.member) and _has_room(h, chunk, found))
                if (host := next(fits, None)) is None:
                    return None
                found[host.member.name] = _added(host, chunk, found)
        return found

    def _may_use(self, member: Member) -> bool:
        named = not self.names or member.name in self.names
        return named and not set(self.queues).isdisjoint(member.queues)


def _has_room(host: Host, chunk: Chunk, found: dict[str, Share]) -> bool:
    member, mine = host.member, found.get(host.member.name)
    if not chunk.accepts(set(member.features)) or (mine and chunk.spread):
        return False
    if chunk.exclusive:
        return not host.shares and not mine
    cores, memory = mine or Share(0, 0)
    return (
        host.cores_used + cores + chunk.cores <= member.cores
        and host.memory_used + memory + chunk.memory <= member.memory
    )


def _added(host: Host, chunk: Chunk, found: dict[str, Share]) -> Share:
    cores, memory = found.get(host.member.name, Share(0, 0))
    if chunk.exclusive:
        return Share(host.member.cores, host.member.memory)
    return Share(cores + chunk.cores, memory + chunk.memory)
