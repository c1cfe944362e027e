"""Operations, and the table of the steps that each of them takes: PLANS."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class Step(StrEnum):
    """Every step there is, in the one canonical order."""

    PREPARE_SITE = "prepare site"
    DRAIN = "drain, wait drained"
    GIVE_BACK = "give back"
    DELETE_INSTANCES = "delete instances"
    CREATE_INSTANCES = "create instances"
    WAIT_REACHABLE = "wait reachable"
    REFRESH_INVENTORY = "refresh inventory, write hosts"
    CONFIGURE_SOFTWARE = "configure software"
    WRITE_BATCH_CONFIG = "write batch config, reload"
    WAIT_REGISTERED = "wait registered"
    UNDRAIN = "undrain"
    STOP_BATCH = "stop batch system"
    REMOVE_SITE = "remove site"


class Kind(StrEnum):
    """The operations."""

    DEPLOY = "deploy"
    RESUME = "resume"
    SUSPEND = "suspend"
    ENLARGE = "enlarge"
    SHRINK = "shrink"
    REBUILD = "rebuild"
    UPDATE = "update"
    REPAIR = "repair"
    STOP = "stop"
    DESTROY = "destroy"


PLANS: Mapping[Kind, tuple[Step, ...]] = {
    Kind.DEPLOY: (
        Step.PREPARE_SITE,
        Step.CREATE_INSTANCES,
        Step.WAIT_REACHABLE,
        Step.REFRESH_INVENTORY,
        Step.CONFIGURE_SOFTWARE,
        Step.WRITE_BATCH_CONFIG,
        Step.WAIT_REGISTERED,
    ),
    Kind.RESUME: (
        Step.CREATE_INSTANCES,
        Step.REFRESH_INVENTORY,
        Step.WAIT_REGISTERED,
    ),
    Kind.SUSPEND: (
        Step.DELETE_INSTANCES,
        Step.REFRESH_INVENTORY,
    ),
    Kind.ENLARGE: (
        Step.CREATE_INSTANCES,
        Step.WAIT_REACHABLE,
        Step.REFRESH_INVENTORY,
        Step.CONFIGURE_SOFTWARE,
        Step.WRITE_BATCH_CONFIG,
        Step.WAIT_REGISTERED,
    ),
    Kind.SHRINK: (
        Step.DRAIN,
        Step.DELETE_INSTANCES,
        Step.REFRESH_INVENTORY,
        Step.WRITE_BATCH_CONFIG,
    ),
    Kind.REBUILD: (
        Step.DRAIN,
        Step.DELETE_INSTANCES,
        Step.CREATE_INSTANCES,
        Step.REFRESH_INVENTORY,
        Step.WAIT_REGISTERED,
        Step.UNDRAIN,
    ),
    Kind.UPDATE: (
        Step.DRAIN,
        Step.CONFIGURE_SOFTWARE,
        Step.WRITE_BATCH_CONFIG,
        Step.WAIT_REGISTERED,
        Step.UNDRAIN,
    ),
    Kind.REPAIR: (
        Step.GIVE_BACK,
        Step.DELETE_INSTANCES,
        Step.REFRESH_INVENTORY,
    ),
    Kind.STOP: (
        Step.DRAIN,
        Step.DELETE_INSTANCES,
        Step.REFRESH_INVENTORY,
        Step.STOP_BATCH,
    ),
    Kind.DESTROY: (
        Step.DELETE_INSTANCES,
        Step.STOP_BATCH,
        Step.REMOVE_SITE,
    ),
}
"""Each operation as the subsequence of the canonical order that it runs."""

SITE = "@site"
"""The lease of operations that change the site; no node can be called so."""

CHANGES_SITE = frozenset({Kind.DEPLOY, Kind.STOP, Kind.DESTROY})

STARTS_NODES = frozenset({Kind.DEPLOY, Kind.RESUME, Kind.ENLARGE})
"""Operations that bring up nodes which nobody had."""

IN_ROUNDS = frozenset({Kind.REBUILD, Kind.UPDATE})
"""Operations that take nodes in batches, those first that have no jobs."""

DRAINS = frozenset(kind for kind, plan in PLANS.items() if Step.DRAIN in plan)
"""Operations that take nodes out of service first, and give back those that fall out."""


class OperationState(StrEnum):
    """How far an operation is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    PARTLY = "partly done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        return self not in (OperationState.QUEUED, OperationState.RUNNING)


@dataclass(frozen=True, slots=True)
class Operation:
    """One run of a plan over some nodes, as the store keeps it."""

    id: int
    kind: Kind
    nodes: tuple[str, ...]
    state: OperationState = OperationState.QUEUED
    next_step: int = 0
    fallen: Mapping[str, str] = field(default_factory=dict)
    done: tuple[str, ...] = ()
    """Nodes that it let go: they went through all that they need, or fell out and are in order."""
    later: tuple[str, ...] = ()
    """Nodes that this round goes on without."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """How it was asked for: see `api.asked.OPTIONS`; also `via: batch` and `action` of a reboot by
    the batch system, `wide`, the jobs of several nodes that a resume is for, with their host lists,
    `lost` nodes of a deploy, and `ends_for`, who wants this round to be last."""
    verdict: OperationState | None = None
    """How it will end: on disk before the cleaning up, which may take long."""
    asked_by: str = ""
    reason: str = ""
    """Why it was asked for; once it ended badly, what went wrong."""
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def step(self) -> Step | None:
        """The step it is at, or None when all are done."""
        plan = PLANS[self.kind]
        return plan[self.next_step] if self.next_step < len(plan) else None

    @property
    def claims(self) -> tuple[str, ...]:
        """What it leases: its nodes, and the site if it changes that or is about nothing else."""
        done = frozenset(self.done)
        nodes = tuple(name for name in self.nodes if name not in done)
        return (*nodes, SITE) if self.kind in CHANGES_SITE or not self.nodes else nodes

    @property
    def standing(self) -> tuple[str, ...]:
        """The nodes that have not fallen out."""
        return tuple(name for name in self.nodes if name not in self.fallen)

    @property
    def left(self) -> tuple[str, ...]:
        """The nodes that stand and have not gone through all steps yet."""
        done = frozenset(self.done)
        return tuple(name for name in self.standing if name not in done)

    @property
    def round(self) -> tuple[str, ...]:
        """The nodes that take the steps now."""
        later = frozenset(self.later)
        return tuple(name for name in self.left if name not in later)

    def past(self, fallen: Mapping[str, str], later: Iterable[str]) -> "Operation":
        """It after its step; after the last one, at the first of its next round if there is one."""
        after = replace(self, fallen={**self.fallen, **fallen}, next_step=self.next_step + 1)
        after = replace(after, later=tuple(dict.fromkeys((*self.later, *later))))
        if after.step is not None or not after.later:
            return after
        again = replace(after, done=(*after.done, *after.round), later=())
        return replace(again, next_step=0) if again.left else again
