"""Batch systems that do not ask for nodes: they are read again and again, and told what joins.

An adapter is a Queue; `batch.polled` makes a BatchSystem of it. A reading is complete or an
error: what could not be read, or makes no sense, raises Unavailable, and decides nothing.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from springtide.ports.batch import Job


class Health(StrEnum):
    """Whether the batch system hears from a node."""

    ABSENT = "absent"
    """It does not know the node, or as one that is off."""
    JOINING = "joining"
    """It waits to hear from it for the first time since it joined."""
    UP = "up"
    DOWN = "down"
    """It has heard from it before, and does so no more."""


@dataclass(frozen=True, slots=True)
class QueueNode:
    """A node as the batch system shows it. Health, drain and jobs are independent of each other."""

    name: str
    health: Health
    words: frozenset[str] = frozenset()
    """Its state in the batch system's own words."""
    drained: bool = False
    """It takes no new jobs, by somebody's wish; that it is off or joining is no such wish."""
    reason: str = ""
    """Why, if the batch system keeps such a thing."""
    jobs: tuple[str, ...] = ()
    """The jobs on it, also those that are about to start or are being cleaned up after."""
    cores_used: int = 0
    shut: bool = False
    """It takes no new jobs by nobody's wish: for an error, an alarm or a calendar of its own."""


class JobState(StrEnum):
    """How a job matters here."""

    WAITING = "waiting"
    """It would start if there was room: this alone is demand."""
    HELD = "held"
    """By a person, for another job, for a date, by a limit, or because it is broken."""
    RUNNING = "running"
    """Or it has nodes, and is about to start or being cleaned up after."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """So many nodes (or parts of nodes) of one kind."""

    count: int = 1
    cores: int = 1
    memory: int = 0
    """MiB on each."""
    features: frozenset[str] = frozenset()
    """A node must have them all."""
    exclusive: bool = False
    """No other job may be on the same node."""
    spread: bool = True
    """Each of them on a node of its own; if not, several may share a node."""
    ways: tuple[frozenset[str], ...] = ()
    """Besides, a node must have all features of one of these; empty if it need not."""
    alike: bool = False
    """All of its nodes must have the features of the same one."""

    def accepts(self, features: Set[str]) -> bool:
        """Whether nodes with these features will do."""
        if not self.features <= features:
            return False
        return not self.ways or any(way <= features for way in self.ways)


@dataclass(frozen=True, slots=True)
class QueueJob:
    """A job, or tasks of an array that are alike and wait."""

    id: str
    state: JobState
    user: str = ""
    queues: tuple[str, ...] = ()
    """Those that it may run in; the first is where it is."""
    chunks: tuple[Chunk, ...] = (Chunk(),)
    """What each task needs, all at once."""
    tasks: int = 1
    """So many of the same; as many as may run at once, if that is limited."""
    nodes: tuple[str, ...] = ()
    """Those it has."""
    names: tuple[str, ...] = ()
    """Those it insists on, all of them; empty if any will do."""
    reason: str = ""
    """Why it waits, in the batch system's words."""
    since: float | None = None
    """When it was submitted."""
    never: str = ""
    """Why it can never start, if the batch system itself says so of one that is held."""
    avoid: frozenset[str] = frozenset()
    """Nodes of ours that it may not use."""
    over: bool = False
    """Whether it has its nodes only to be cleaned up after, as far as the batch system tells."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All nodes and all jobs that are not over, of one moment."""

    nodes: Mapping[str, QueueNode] = field(default_factory=dict)
    """All that it knows, those of the premises too."""
    jobs: Sequence[QueueJob] = ()
    started_at: float | None = None
    """When the batch system itself started, if it tells and may forget what it was told last."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node as the batch system is to know it."""

    name: str
    address: str
    cores: int
    memory: int
    """MiB."""
    features: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    """Whose jobs it takes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is ours in a file of settings that an image may have already; all else there stays."""

    lines: tuple[str, ...]
    """They take the place of all lines that begin with the same words."""
    defaults: tuple[str, ...] = ()
    """Each only if the file has no line that begins with the same word."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a machine needs to become a node: files, then a program that runs as long as it does."""

    command: tuple[str, ...]
    """Stays in the foreground."""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)
    """Written whole."""
    settings: Mapping[Path, Settings] = field(default_factory=dict)
    directories: tuple[Path, ...] = ()
    version: str = ""
    """Of the batch system, which that of the node must match; empty if it is not known."""
    versions: tuple[str, ...] = ()
    """The command that tells a node's own."""
    ready: tuple[str, ...] = ()
    """A command that succeeds once the batch system would take the node: asked until then."""
    servers: tuple[str, ...] = ()
    """The batch system's machines that the program speaks to, by names that nodes must know."""
    registered: str = ""
    """A name whose address on the server's machine is the only one by which nodes reach the server;
    empty if any address of that machine will do."""


class Queue(Protocol):
    """A batch system that is read. Everything may be called twice; all raise Unavailable."""

    programs: Sequence[str]
    """The commands that it needs; without them nothing starts."""

    async def version(self) -> str:
        """What it is, after it has been made sure that it answers (check_version)."""
        ...

    async def read(self) -> Reading:
        """Everything, with a fixed number of commands (get_status)."""
        ...

    async def require(self, members: Iterable[Member]) -> None:
        """See that it has the queues of these nodes, and that none of the names is another's.

        Changes nothing; raises Unavailable with what to do. `prepare` does the same first.
        """
        ...

    async def prepare(self, members: Iterable[Member]) -> str:
        """Have it accept jobs for these nodes while all are off; answers what that changed.

        Nodes that are there and serve stay as they are. Addresses may be empty.
        """
        ...

    async def dismantle(self, names: Iterable[str]) -> None:
        """Undo `prepare`, and have it forget these nodes; refused if they have jobs."""
        ...

    async def join(self, members: Iterable[Member]) -> None:
        """Have it expect these nodes; each takes jobs as soon as it is heard from (join_cluster).

        One that was there before counts as heard from only when it is heard from again; one that
        has jobs is refused, or left as it is. A drain of one that was not heard from yet holds.
        """
        ...

    async def leave(self, names: Iterable[str]) -> Mapping[str, str]:
        """Have it forget these nodes, which are drained, and see that it did (leave_cluster).

        Answers those that stay, because they have jobs or are refused, and why. Never harms a job.
        """
        ...

    async def drain(self, names: Iterable[str], reason: str) -> None:
        """Have nodes take no new jobs, and see that they do not."""
        ...

    async def undrain(self, names: Iterable[str]) -> None: ...

    async def requeue(self, jobs: Iterable[str]) -> None:
        """These jobs ran on nodes that are dead: back into the queue with them, if they may."""
        ...

    async def tell(self, jobs: Iterable[str], text: str) -> None:
        """Say something to their owners, where they look."""
        ...

    async def wake(self) -> None:
        """Have it look for jobs to start now, rather than at its next turn."""
        ...

    def entry(self, name: str) -> Entry:
        """What this node is started with; pure, but for files of the batch system that it needs."""
        ...


@runtime_checkable
class Remembers(Protocol):
    """A queue that still knows jobs that are over."""

    async def past_job(self, id: str) -> Job | None:
        """Such a job; None if it knows it no more."""
        ...
