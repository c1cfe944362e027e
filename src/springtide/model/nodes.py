"""A node as our record has it: the states it may be in, and the moves between them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
