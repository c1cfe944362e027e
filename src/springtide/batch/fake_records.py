"""What a FakeScheduler keeps of each node and job, and its timing."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from springtide.nodeset import fold
from springtide.ports import ITSELF, OURS, BatchNode, Job, Power


@dataclass(slots=True)
class Timing:
    """How long things take; the names are Slurm's where it has one."""

    latency_s: float = 0.0  # of a question or command, before its effect and after
    join_s: float = 2.0  # from a running instance to a registered node
    idle_s: float = 300.0  # SuspendTime
    resume_timeout_s: float = 600.0
    suspend_timeout_s: float = 30.0
    slurmd_timeout_s: float = 60.0
    requeue_s: float = 11.0  # until a requeued job may start again


@dataclass(slots=True)
class FakeJob:
    """A job and its times, from which waiting is measured."""

    id: str
    size: int
    duration_s: float
    submitted_at: float
    state: str = "PENDING"
    nodes: tuple[str, ...] = ()
    held: bool = False  # requeued a moment ago
    requeues: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    end: asyncio.TimerHandle | None = None
    only: str | None = None  # a rebuild job's node
    rebuilds: bool = False  # and its prolog asks for the rebuild
    in_prolog: bool = False

    def shown(self) -> Job:
        nodes = fold(self.nodes) if self.nodes else ""
        reason = "BeginTime" if self.held else ""
        partition = "rebuild" if self.only else ""
        return Job(
            self.id,
            self.state,
            partition=partition,
            nodes=nodes,
            node_count=self.size,
            reason=reason,
        )


class Reboot(StrEnum):
    """How far a reboot is; the names are Slurm's."""

    REQUESTED = "REBOOT_REQUESTED"
    ISSUED = "REBOOT_ISSUED"


_FLAGS: Mapping[Power, frozenset[str]] = {
    Power.DOWN: frozenset({"CLOUD", "POWERED_DOWN"}),
    Power.GOING_UP: frozenset({"CLOUD", "POWERING_UP"}),
    Power.UP: frozenset({"CLOUD"}),
    Power.GOING_DOWN: frozenset({"CLOUD", "POWERING_DOWN"}),
}


@dataclass(slots=True)
class FakeNode:
    """A node as the scheduler sees it."""

    name: str
    power: Power = Power.DOWN
    down: bool = False  # Slurm's base state DOWN, which says nothing of power
    registered: bool = False
    leaving: bool = False  # powers down once its job has ended
    wanted: bool = False  # powers up once it is down
    drained: bool = False
    owner: str | None = None  # of its drain, or of one that it lost when it was powered down
    reboot: Reboot | None = None
    address: str | None = None
    reason: str = ""
    boot_at: float | None = None
    job: FakeJob | None = None
    busy_at: float | None = None
    limit: asyncio.TimerHandle | None = None  # of its time in this state
    joining: asyncio.TimerHandle | None = None

    @property
    def free(self) -> bool:
        usable = self.registered or self.power is Power.DOWN
        return usable and not (self.job or self.down or self.leaving or self.drained)

    @property
    def is_persons(self) -> bool:
        """Whether the drain that it has, or had, is not ours."""
        return self.owner not in (None, OURS, ITSELF)

    def shown(self) -> BatchNode:
        rebooting = self.reboot is Reboot.ISSUED
        marks = {"DRAIN"} if self.drained else set()
        if self.leaving:
            marks.add("POWER_DOWN")
        return BatchNode(
            self.name,
            state="DOWN" if self.down else "ALLOCATED" if self.job else "IDLE",
            flags=_FLAGS[self.power] | marks | ({self.reboot.value} if self.reboot else set()),
            power=Power.GOING_UP if rebooting else self.power,
            registered=self.registered,
            address=self.address,
            reason=self.reason,
            boot_at=self.boot_at,
            busy=self.job is not None,
            busy_at=self.busy_at,
            drained=self.drained,
            owner=self.owner,
        )
