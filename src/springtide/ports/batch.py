"""The scheduler in front of the nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from springtide.ports.providers import Site


class Unavailable(Exception):
    """The batch system did not answer, or not sensibly: decide nothing from it."""


class NotTaken(Unavailable):
    """It answers, and does not take some nodes; others it has taken."""

    def __init__(self, text: str, why: Mapping[str, str]) -> None:
        super().__init__(text)
        self.why = why
        """By node."""


class Power(StrEnum):
    """Where the batch system believes a node is on its way up or down."""

    DOWN = "powered down"
    GOING_UP = "powering up"
    UP = "up"
    GOING_DOWN = "powering down"


@dataclass(frozen=True, slots=True)
class BatchNode:
    """A node as the batch system shows it: base state, flags, and what we read from them."""

    name: str
    state: str
    flags: frozenset[str] = frozenset()
    power: Power = Power.UP
    registered: bool = False
    address: str | None = None
    reason: str = ""
    boot_at: float | None = None
    busy: bool = False
    """It has jobs, or they are being cleaned up after."""
    busy_at: float | None = None
    """When it had one last, if the batch system tells."""
    drained: bool = False
    """It takes no new jobs, by somebody's wish."""
    owner: str | None = None
    """Whose wish that was: OURS, or a person."""
    leaving: bool = False
    """It goes as soon as it has no jobs, unless it is asked for before that."""


OURS = "springtide"
"""The owner of what our operations drain."""
ITSELF = "slurm"
"""The owner of what the batch system drains by itself."""
HELD = "held"
"""How the reasons begin of waiting jobs that would take no node, in batch systems that are read."""
CALENDAR = "calendar:"
"""How reasons begin of what we drain by the calendar; the next one takes the place of such."""
UNREADY = "Ansible has yet to set it up"
"""How reasons begin of what we drain before it is made, whether or not anybody can see that."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as far as nodes depend on it."""

    id: str
    state: str
    user: str = ""
    partition: str = ""
    nodes: str = ""
    node_count: int = 0
    reason: str = ""
    ended_at: float | None = None

    @property
    def configuring(self) -> bool:
        return self.state == "CONFIGURING"


class BatchSystem(Protocol):
    """The scheduler in front of the nodes."""

    @property
    def reboots(self) -> bool:
        """Whether it reboots nodes by itself, when their jobs have ended, and runs rebuild jobs."""
        ...

    async def version(self) -> str: ...

    async def standing(self) -> str:
        """What of it should run and does not, in words; empty if all is well, or not ours."""
        ...

    async def nodes(self, names: Iterable[str] | None = None) -> Mapping[str, BatchNode]:
        """All nodes (or those named) with one query; raises Unavailable."""
        ...

    async def jobs(self) -> Sequence[Job]:
        """All jobs that are not over, with one query; raises Unavailable."""
        ...

    async def past_job(self, id: str) -> Job | None:
        """One that is over, as long as the batch system keeps it; raises Unavailable."""
        ...

    async def set_addresses(self, addresses: Mapping[str, str]) -> None:
        """Tell where nodes are reached, with one folded call per batch.

        May raise NotTaken, when all others have been told.
        """
        ...

    async def set_instances(self, instances: Mapping[str, tuple[str, str]]) -> None:
        """Tell what instance each node is, and of what type, to a batch system that keeps it."""
        ...

    async def give_back(self, nodes: Iterable[str], reason: str) -> None:
        """These nodes cannot start: their jobs are requeued, and they may be asked for again."""
        ...

    async def release(self, nodes: Iterable[str]) -> None:
        """The instances of these nodes are gone: they may be asked for again at once."""
        ...

    async def power_up(self, nodes: Iterable[str]) -> None:
        """Have the batch system ask for these nodes, as an admin would."""
        ...

    async def power_down(self, nodes: Iterable[str]) -> None:
        """Have the batch system let these nodes go once their jobs have ended."""
        ...

    async def drain(self, nodes: Iterable[str], reason: str, by: str = OURS) -> None:
        """Have these nodes take no new jobs; those that a person drained already stay theirs.

        Those of ours keep their reason, but for one of the calendar that becomes another. For
        UNREADY a drain that has lost its reason becomes ours.
        """
        ...

    async def undrain(self, nodes: Iterable[str], by: str | None = OURS) -> None:
        """Back to service, but only what this owner drained; None is whoever did."""
        ...

    async def reboot(self, nodes: Iterable[str], reason: str) -> None:
        """Have it reboot these nodes when their jobs have ended; they stay drained."""
        ...

    async def expect(self, nodes: Iterable[str]) -> None:
        """These nodes start afresh: they count as registered only when heard from again.

        Drains stay whose they are.
        """
        ...

    async def fail(self, nodes: Iterable[str], reason: str) -> None:
        """Out of service, for all to see why, until heard from again."""
        ...

    async def submit_rebuilds(self, nodes: Iterable[str], command: str | None) -> Mapping[str, str]:
        """One job for each node, ahead of all others, that has it rebuilt; answers their ids.

        With a command the jobs run that, and nothing is rebuilt.
        """
        ...

    async def close(self) -> None:
        """Start no more jobs, until it is opened or started again."""
        ...

    async def open(self) -> None:
        """Start jobs again."""
        ...

    async def reopen(self) -> None:
        """Start jobs again, if the last `reload` has left it closed, and nobody closed it since."""
        ...

    async def tell(self, job: str, text: str) -> None:
        """Say something to the owner of a job, or of several, separated by commas."""
        ...

    async def reload(self, site: Site) -> str:
        """Write the configuration and have the batch system run with it; says what that changed."""
        ...

    async def stop(self, for_good: bool = True) -> None:
        """Stop what `reload` started, if it was us who started it.

        One that runs on takes jobs for our nodes meanwhile, unless it is for good.
        """
        ...
