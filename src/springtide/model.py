"""The nouns of Springtide and the two tables it turns on: TRANSITIONS and PLANS.

Every layer may import this module; it imports nothing of ours and does no I/O.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class NodeState(StrEnum):
    """What our record says of a node. Slurm's view and the cloud's are kept beside it."""

    OFF = "off"
    REQUESTED = "requested"
    BOOTING = "booting"
    JOINING = "joining"
    READY = "ready"
    DRAINING = "draining"
    DELETING = "deleting"
    FAILED = "failed"


_S = NodeState

TRANSITIONS: Mapping[NodeState, frozenset[NodeState]] = {
    _S.OFF: frozenset(
        {
            _S.REQUESTED,  # somebody needs it: the intent is on disk before the launch
            _S.DELETING,  # the world holds an instance that the record does not know
            _S.READY,  # the world has it in service: the record had lost it, and adopts it
        }
    ),
    _S.REQUESTED: frozenset(
        {
            _S.BOOTING,  # the provider made (or already had) its instance
            _S.FAILED,  # no provider would make it
            _S.DELETING,  # no longer wanted; an instance may exist all the same
            _S.READY,  # it serves: the record was behind the world, and adopts it
        }
    ),
    _S.BOOTING: frozenset(
        {
            _S.JOINING,  # its address is known to the batch system
            _S.FAILED,  # the instance vanished or its address could not be told
            _S.DELETING,  # no longer wanted
            _S.READY,  # it serves: the record was behind the world, and adopts it
        }
    ),
    _S.JOINING: frozenset(
        {
            _S.READY,  # the batch system heard from it
            _S.FAILED,  # it did not report in time
            _S.DELETING,  # no longer wanted
        }
    ),
    _S.READY: frozenset(
        {
            _S.DRAINING,  # it must go, but its jobs may finish
            _S.DELETING,  # the batch system has let go of it
            _S.FAILED,  # its instance died
        }
    ),
    _S.DRAINING: frozenset(
        {
            _S.READY,  # given back to service
            _S.DELETING,  # drained
            _S.REQUESTED,  # drained, and started afresh in place: its instance stays
            _S.FAILED,  # its instance died while it drained
        }
    ),
    _S.DELETING: frozenset(
        {
            _S.OFF,  # the provider lists it no more
            _S.READY,  # it serves all the same: the record was behind the world
        }
    ),
    _S.FAILED: frozenset(
        {
            _S.DELETING,  # whatever it left behind is removed before it is tried again
            _S.READY,  # it serves all the same: the record was behind the world
        }
    ),
}

STARTING = frozenset({_S.REQUESTED, _S.BOOTING, _S.JOINING})
"""States of a node on its way up."""


class IllegalMoveError(ValueError):
    """A move that is no edge of TRANSITIONS: a defect of ours, never the user's."""


@dataclass(frozen=True, slots=True)
class Node:
    """Our record of one node."""

    name: str
    group: str
    state: NodeState = NodeState.OFF
    generation: int = 0
    instance: str | None = None
    address: str | None = None
    zone: str | None = None
    flavor: str | None = None
    image: str | None = None
    reason: str = ""
    changed_at: float = 0.0
    rebuilds: int = 0
    """How often it got a fresh instance while it was in service."""
    config: str = ""
    """The fingerprint of the configuration that it was started with."""

    def to(self, state: NodeState, **changes: Any) -> "Move":
        """The move of this node to `state`, with other changes to its record."""
        if state not in TRANSITIONS[self.state]:
            raise IllegalMoveError(f"{self.name} cannot go from {self.state} to {state}")
        return Move(self, replace(self, state=state, **changes))


@dataclass(frozen=True, slots=True)
class Move:
    """A compare-and-set change of a node's record: it holds only if `before` still does."""

    before: Node
    after: Node


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


@dataclass(frozen=True, slots=True)
class Request:
    """What the batch system (or an admin through it) asked of us, before it is an operation."""

    id: str
    program: str
    nodes: tuple[str, ...]
    received_at: float = 0.0
    jobs: tuple[str, ...] = ()
    wide: Mapping[str, str] = field(default_factory=dict)
    """The jobs of several nodes among them, and their nodes as a host list."""


class Cause(StrEnum):
    """Why nothing is launched somewhere for a while."""

    CAPACITY = "capacity"
    QUOTA = "quota"
    DENIED = "denied"
    REJECTED = "rejected"
    BOOTS = "boots"


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing is launched at a place, in a group or with a provider; then one node is tried."""

    key: str
    cause: Cause
    reason: str
    count: int
    """How often in a row it came to this."""
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, past tense, to a node or an operation."""

    at: float
    what: str
    node: str | None = None
    operation: int | None = None
    detail: str = ""
    id: int = 0
