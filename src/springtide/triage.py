"""What is wrong with a node, whose it is to mend that, by when and how: one table, pure.

Record, batch system and cloud each have a view of a node. RULES covers every combination of the
three (and of who drained it); the first rule that fits holds. It is about nodes that no
operation is at: those are the operation's. The reconciler looks nodes up here, a repair looks
again before it acts, and the docs print the table.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache

from springtide.model import STARTING, Node, NodeState
from springtide.ports import ITSELF, OURS, BatchNode, Instance, InstanceState, Power
from springtide.spec import Timing


class Batch(StrEnum):
    """How the batch system sees a node."""

    UNKNOWN = "unknown"
    OFF = "off"
    STUCK = "off and down"
    """It would not start it, though jobs may need it."""
    WANTED = "wanted"
    SERVING = "idle"
    BUSY = "busy"
    SILENT = "silent"
    """It does not hear from it, and has not given it up."""
    DOWN = "down"
    LEAVING = "leaving"


class Drained(StrEnum):
    """Who wants a node to take no jobs."""

    NOBODY = "nobody"
    US = "us"
    SLURM = "Slurm"
    """For a fault that it found, such as less memory than the node should have."""
    PERSON = "a person"
    """Drained, or put down."""


class Cloud(StrEnum):
    """What the provider has for a node."""

    NONE = "none"
    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    BROKEN = "broken"
    GOING = "going"
    STRANGE = "strange"
    """Only of a generation that the record does not know."""
    TWINS = "twins"
    """The right one, and others."""


class Owner(StrEnum):
    """Whose turn it is."""

    NOBODY = "nobody"
    BATCH = "batch system"
    US = "Springtide"
    PERSON = "a person"


class Repair(StrEnum):
    """What is done when the time is up."""

    REST = "nothing"
    REPORT = "tell people"
    # The record follows the world; nothing else changes.
    ADOPT = "adopt its instance"
    FORGET = "record it as failed"
    RETURN = "record it as ready"
    # One call for all such nodes.
    RELEASE = "release it"
    UNDRAIN = "undrain it"
    PRUNE = "delete its other instances"
    # One operation for all such nodes.
    RESUME = "resume"
    SUSPEND = "suspend"
    REPAIR = "repair"


class After(StrEnum):
    """How long a combination may last."""

    ALWAYS = "for ever"
    AT_ONCE = "at once"
    GRACE = "timing.grace"
    START = "timing.start"


View = tuple[NodeState, Batch, Drained, Cloud]


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the table."""

    name: str
    record: frozenset[NodeState]
    batch: frozenset[Batch]
    cloud: frozenset[Cloud]
    owner: Owner
    after: After
    repair: Repair
    why: str
    """What is wrong, for people; completes "c3: …"."""
    drained: frozenset[Drained] = frozenset(Drained)

    def fits(self, view: View) -> bool:
        record, batch, drained, cloud = view
        return (
            record in self.record
            and batch in self.batch
            and drained in self.drained
            and cloud in self.cloud
        )


_B, _C, _D, _R = Batch, Cloud, Drained, Repair
_US, _BATCH, _PERSON, _NOBODY = Owner.US, Owner.BATCH, Owner.PERSON, Owner.NOBODY
_ALWAYS, _AT_ONCE, _GRACE, _START = After.ALWAYS, After.AT_ONCE, After.GRACE, After.START

_OFF, _READY = frozenset({NodeState.OFF}), frozenset({NodeState.READY})
_DRAINING = frozenset({NodeState.DRAINING})
_REMAINS = frozenset({NodeState.FAILED, NodeState.DELETING})

_ANY, _ANYTHING = frozenset(Batch), frozenset(Cloud)
_HEARD, _UNHEARD = frozenset({_B.SERVING, _B.BUSY}), frozenset({_B.SILENT, _B.DOWN})
_LET_GO = frozenset({_B.OFF, _B.STUCK, _B.LEAVING})
_WANTED, _UNKNOWN = frozenset({_B.WANTED}), frozenset({_B.UNKNOWN})
_SILENT, _DOWN = frozenset({_B.SILENT}), frozenset({_B.DOWN})
_IDLE, _BUSY = frozenset({_B.SERVING}), frozenset({_B.BUSY})
_AT_REST, _STUCK, _LEAVING = (frozenset({one}) for one in (_B.OFF, _B.STUCK, _B.LEAVING))
_NO_SERVICE = _STUCK | _UNHEARD

_ABSENT, _ALIVE = frozenset({_C.NONE, _C.GOING}), frozenset({_C.PENDING, _C.RUNNING})
_DEAD, _THERE = frozenset({_C.STOPPED, _C.BROKEN}), _ANYTHING - _ABSENT
_STRANGE, _TWINS = frozenset({_C.STRANGE}), frozenset({_C.TWINS})
_SERVES = frozenset({_C.RUNNING, _C.STRANGE, _C.TWINS})

_BY_US, _BY_SLURM = frozenset({_D.US}), frozenset({_D.SLURM})
_BY_PERSON = frozenset({_D.PERSON})

UNFIT = "unfit"

# fmt: off
RULES: Sequence[Rule] = (
    # What an operation left that could not end well, or a record that is older than the world.
    Rule("serves all the same", STARTING | _REMAINS, _HEARD, _SERVES, _US, _GRACE, _R.ADOPT,
         "it serves, but the record has it between two states"),
    Rule("abandoned start", STARTING, _ANY, _ANYTHING, _US, _AT_ONCE, _R.FORGET,
         "nobody goes on with its start"),
    Rule("abandoned drain", _DRAINING, _ANY, _ANYTHING, _US, _AT_ONCE, _R.RETURN,
         "nobody goes on with the operation that drained it"),
    Rule("abandoned remains", _REMAINS, _ANY, _ANYTHING, _US, _AT_ONCE, _R.REPAIR,
         "what it left behind was not removed"),
    # Nodes that are off by the record.
    Rule("lost by the record", _OFF, _HEARD, _SERVES, _US, _GRACE, _R.ADOPT,
         "it serves, but the record had lost it"),
    Rule("orphan", _OFF, _ANY, _THERE, _US, _GRACE, _R.REPAIR,
         "it is off, but has an instance"),
    Rule("unknown name", _OFF, _UNKNOWN, _ABSENT, _PERSON, _GRACE, _R.REPORT,
         "the batch system does not know it; `tide deploy` tells it"),
    Rule("forgotten request", _OFF, _WANTED, _ABSENT, _US, _GRACE, _R.RESUME,
         "the batch system waits for it, but nothing starts it"),
    Rule("rogue", _OFF, _HEARD, _ABSENT, _PERSON, _GRACE, _R.REPORT,
         "a slurmd answers in its name, but it has no instance; `tide kill` ends its service"),
    Rule("down by a person", _OFF, _NO_SERVICE, _ABSENT, _PERSON, _ALWAYS, _R.REST,
         "a person took it out of service", _BY_PERSON),
    Rule("down without instance", _OFF, _UNHEARD, _ABSENT, _US, _GRACE, _R.REPAIR,
         "the batch system has it in service, but it has no instance"),
    Rule("stuck and drained", _OFF, _STUCK, _ABSENT, _US, _AT_ONCE, _R.UNDRAIN,
         "nothing holds it back any more, but it is drained, and down", _BY_US),
    Rule("stuck off", _OFF, _STUCK, _ABSENT, _US, _GRACE, _R.RELEASE,
         "it is off, and the batch system would not start it"),
    Rule("leaving and drained", _OFF, _LEAVING, _ABSENT, _US, _AT_ONCE, _R.UNDRAIN,
         "nothing holds it back any more, but it is drained, and counts as leaving", _BY_US),
    Rule("leaving for good", _OFF, _LEAVING, _ABSENT, _BATCH, _GRACE, _R.RELEASE,
         "its instance is gone, but the batch system waits on"),
    Rule("drain forgotten", _OFF, _AT_REST, _ABSENT, _US, _AT_ONCE, _R.UNDRAIN,
         "nothing holds it back any more, but it is drained", _BY_US),
    Rule("unfit and off", _OFF, _AT_REST, _ABSENT, _US, _GRACE, _R.UNDRAIN,
         "Slurm drained it for a fault of an instance that is gone", _BY_SLURM),
    Rule("off", _OFF, _AT_REST, _ABSENT, _NOBODY, _ALWAYS, _R.REST,
         "it is off until a job needs it"),
    # Nodes that are ready by the record.
    Rule("unknown and ready", _READY, _UNKNOWN, _ANYTHING, _PERSON, _GRACE, _R.REPORT,
         "it runs, but the batch system does not know it; `tide deploy` tells it"),
    Rule("asked for afresh", _READY, _WANTED, _ANYTHING, _US, _GRACE, _R.RESUME,
         "the batch system asks for it afresh, but its request was lost"),
    Rule("let go", _READY, _LET_GO, _ANYTHING, _US, _GRACE, _R.SUSPEND,
         "the batch system has powered it down, but its instance is still there"),
    Rule("replaced", _READY, _HEARD, _STRANGE, _US, _GRACE, _R.ADOPT,
         "it serves with an instance that the record does not know"),
    Rule("twins", _READY, _HEARD, _TWINS, _US, _GRACE, _R.PRUNE,
         "it has more than one instance"),
    Rule("unlisted", _READY, _BUSY, _ABSENT, _BATCH, _START, _R.REPORT,
         "it has jobs and is heard from, but its provider does not list it"),
    Rule("vanished", _READY, _ANY, _ABSENT, _US, _GRACE, _R.REPAIR,
         "its instance is gone"),
    Rule("died", _READY, _ANY, _DEAD, _US, _GRACE, _R.REPAIR,
         "its instance died"),
    Rule("put down", _READY, _DOWN, _THERE, _PERSON, _ALWAYS, _R.REST,
         "a person took it out of service", _BY_PERSON),
    Rule("down", _READY, _DOWN, _THERE, _US, _GRACE, _R.REPAIR,
         "the batch system has given it up, though its instance runs"),
    Rule("silent", _READY, _SILENT, _THERE, _BATCH, _START, _R.REPORT,
         "its instance runs, but the batch system does not hear from it"),
    Rule("held back", _READY, _HEARD, _ALIVE, _US, _GRACE, _R.UNDRAIN,
         "no operation is at it, but it is drained by one", _BY_US),
    Rule("unfit and busy", _READY, _BUSY, _ALIVE, _BATCH, _ALWAYS, _R.REST,
         "Slurm drained it for a fault; its jobs go on to their end", _BY_SLURM),
    Rule(UNFIT, _READY, _IDLE, _ALIVE, _US, _GRACE, _R.REPAIR,
         "Slurm drained it for a fault", _BY_SLURM),
    Rule("in service", _READY, _HEARD, _ALIVE, _NOBODY, _ALWAYS, _R.REST,
         "it is in service"),
)
# fmt: on
"""Every combination, and what follows from it; the first that fits holds."""


@cache
def rule_of(view: View) -> Rule:
    """The rule for a combination; there is one for each."""
    return next(rule for rule in RULES if rule.fits(view))


def limit_s(after: After, timing: Timing) -> float | None:
    """The time that a combination may last; None is for ever."""
    match after:
        case After.ALWAYS:
            return None
        case After.AT_ONCE:
            return 0.0
        case After.GRACE:
            return timing.grace
        case After.START:
            return timing.start


# --- views ---------------------------------------------------------------------------------


def view(node: Node, seen: BatchNode | None, instances: Iterable[Instance]) -> View:
    """How the three see a node."""
    return (
        node.state,
        batch_view(seen),
        drained_view(seen),
        cloud_view(node.generation, tuple(instances)),
    )


def heard(seen: Mapping[str, BatchNode], instances: Iterable[Instance]) -> Mapping[str, BatchNode]:
    """The batch system asks an address whether somebody is there, and not who: one that another
    node has by now says nothing of the node that had it before."""
    living = (InstanceState.PENDING, InstanceState.RUNNING)
    owners: dict[str | None, set[str]] = {}
    for one in instances:
        if one.address and one.state in living:
            owners.setdefault(one.address, set()).add(one.node)

    def is_another(node: BatchNode) -> bool:
        return node.name not in owners.get(node.address, {node.name})

    return {
        name: replace(node, registered=False) if is_another(node) else node
        for name, node in seen.items()
    }


def batch_view(seen: BatchNode | None) -> Batch:
    if seen is None:
        return Batch.UNKNOWN
    match seen.power:
        case Power.GOING_UP:
            return Batch.WANTED
        case Power.GOING_DOWN:
            return Batch.LEAVING
        case Power.DOWN:
            stuck = seen.state == "DOWN" or "NOT_RESPONDING" in seen.flags
            return Batch.STUCK if stuck else Batch.OFF
    if seen.state in ("DOWN", "ERROR", "FAIL"):
        return Batch.DOWN
    if not seen.registered:
        return Batch.SILENT
    return Batch.BUSY if seen.busy else Batch.SERVING


def drained_view(seen: BatchNode | None) -> Drained:
    if seen is None or not (seen.drained or seen.state == "DOWN"):
        return Drained.NOBODY
    if seen.owner == OURS:
        return Drained.US if seen.drained else Drained.NOBODY
    if seen.owner in (None, ITSELF):
        return Drained.SLURM if seen.drained else Drained.NOBODY
    return Drained.PERSON


def has_lost_drain(node: BatchNode) -> bool:
    """Whether a person's drain went with the power of its node."""
    going = node.power in (Power.DOWN, Power.GOING_DOWN) and node.state != "DOWN"
    return going and not node.drained and node.owner not in (None, OURS, ITSELF)


def has_forgotten_drain(node: BatchNode) -> bool:
    """Whether nobody can say any more who drained it."""
    return node.drained and node.owner != OURS and not node.reason


_SINGLE: Mapping[InstanceState, Cloud] = {
    InstanceState.PENDING: Cloud.PENDING,
    InstanceState.RUNNING: Cloud.RUNNING,
    InstanceState.STOPPED: Cloud.STOPPED,
    InstanceState.BROKEN: Cloud.BROKEN,
}


def cloud_view(generation: int, instances: Collection[Instance]) -> Cloud:
    """What of a node's instances is there to stay."""
    if not instances:
        return Cloud.NONE
    staying = [one for one in instances if one.state is not InstanceState.DELETING]
    if not staying:
        return Cloud.GOING
    right = [one for one in staying if one.generation == generation]
    if not right:
        return Cloud.STRANGE
    return _SINGLE[right[0].state] if len(staying) == 1 else Cloud.TWINS
