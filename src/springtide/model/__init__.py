"""The nouns of Springtide and the two tables it turns on: TRANSITIONS and PLANS.

Every layer may import this package; it imports nothing of ours and does no I/O.
"""

from springtide.model.nodes import (
    STARTING,
    TRANSITIONS,
    IllegalMoveError,
    Move,
    Node,
    NodeState,
)
from springtide.model.operations import (
    CHANGES_SITE,
    DRAINS,
    IN_ROUNDS,
    PLANS,
    SITE,
    STARTS_NODES,
    Kind,
    Operation,
    OperationState,
    Step,
)
from springtide.model.records import (
    NOT_TAKEN,
    Cause,
    Event,
    Hold,
    MadeImage,
    Making,
    Phase,
    Request,
    Ticket,
)

__all__ = [
    "CHANGES_SITE",
    "DRAINS",
    "IN_ROUNDS",
    "NOT_TAKEN",
    "PLANS",
    "SITE",
    "STARTING",
    "STARTS_NODES",
    "TRANSITIONS",
    "Cause",
    "Event",
    "Hold",
    "IllegalMoveError",
    "Kind",
    "MadeImage",
    "Making",
    "Move",
    "Node",
    "NodeState",
    "Operation",
    "OperationState",
    "Phase",
    "Request",
    "Step",
    "Ticket",
]
