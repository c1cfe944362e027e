"""A node on its way, with an operation that has it: how far it is, and when it arrives. Pure.

`node` calls it for every state of the record that is not rest.
"""

from collections.abc import Iterable

from springtide.failures import is_unconfigured
from springtide.model import NOT_TAKEN, PLANS, STARTING, Kind, Node, NodeState, Operation
from springtide.story.case import NodeCase
from springtide.story.telling import Told, by, clock, jobs_named, lasting, named, since


def holder(operations: Iterable[Operation], node: Node) -> Operation | None:
    """Of unfinished operations the one that has the node, or the next that will."""
    found = [one for one in operations if node.name in one.claims and not _is_done(one, node)]
    return min(found, key=lambda one: (one.started_at is None, one.id), default=None)


def _is_done(operation: Operation, node: Node) -> bool:
    """Whether it has nothing to do with a node that is off: that fell out, or was to go."""
    over = node.name in operation.fallen or operation.kind is Kind.SUSPEND
    return over and node.state is NodeState.OFF


def in_operation(case: NodeCase, now: float) -> Told:
    operation = case.operation
    assert operation is not None
    see = f"`tide operations {operation.id}` shows how far it is; --cancel ends it"
    if operation.started_at is None:
        then = f"{named(operation)} begins with it when operations before it are done with it"
        return Told(f"{state(case, now)}; {named(operation)} waits for it", then, see)
    if case.name in operation.fallen:
        why = operation.fallen[case.name]
        return Told(f"{state(case, now)}: {why}", _after_fall(operation, why), see)
    if case.state in STARTING and (stuck := case.hindrance):
        stands, then = f"{state(case, now)}; {stuck.now}", _unless(case, stuck.next, now)
        return Told(stands, then, stuck.do)
    if case.state in STARTING:
        return Told(f"{state(case, now)}{_refused(case)}", _arrival(case, now), see)
    why = f", because {operation.reason}" if operation.asked_by == "reconcile" else ""
    on = f"; {jobs(case)} still on it" if case.jobs else ""
    stands = f"{state(case, now)}, by {named(operation)}{why}{on}"
    return Told(stands, _steps(case, operation), see)


def _after_fall(operation: Operation, why: str) -> str:
    """What becomes of a node that fell out: an update gives back what merely lacks Ansible."""
    if operation.kind is Kind.UPDATE and is_unconfigured(why):
        return f"{named(operation)} gives it back to service as it is, once it has registered"
    return f"{named(operation)} removes what it left; then it may be started again"


def _refused(case: NodeCase) -> str:
    """What the batch system says against it, as far as it has not joined since."""
    last = case.events[-1] if case.events else None
    if case.state is not NodeState.BOOTING or last is None or last.what != NOT_TAKEN:
        return ""
    return f"; the batch system does not take it: {last.detail}"


def _arrival(case: NodeCase, now: float) -> str:
    """When a node on its way up is expected, and what if it does not come."""
    assert case.operation is not None
    began = [e.at for e in case.events if e.what in ("node requested", "reboot requested")]
    usual = f"{named(case.operation)} goes on until it is in service"
    if began and case.usual_s is not None:
        usual = f"it is in service {_expected(began[-1] + case.usual_s, case.usual_s, now)}"
    return _unless(case, usual, now)


def _unless(case: NodeCase, then: str, now: float) -> str:
    """What comes next, and what if it does not come up."""
    if case.state is not NodeState.JOINING:
        return then
    late = clock(case.changed_at + case.timing.start, now)
    return f"{then}; if not by {late} (timing.start), it is removed and its job waits again"


def _expected(at: float, usual_s: float, now: float) -> str:
    took = f"a start takes {lasting(usual_s)} as a rule"
    return f"{by(at, now)}: {took}" if at > now else f"soon, though late: {took}"


def _steps(case: NodeCase, operation: Operation) -> str:
    """What the operation has yet to do."""
    steps = [step.value for step in PLANS[operation.kind][operation.next_step :]]
    if not steps:
        return f"{named(operation)} cleans up and ends"
    if operation.kind is Kind.SUSPEND or (case.state is NodeState.DELETING and len(steps) <= 2):
        return "it is off when its provider lists its instance no more"
    more = f", then {', '.join(steps[1:])}" if len(steps) > 1 else ""
    return f"{steps[0]}{more}"


def state(case: NodeCase, now: float) -> str:
    """What the record says."""
    assert case.node is not None
    name, at = case.name, since(case.changed_at, now)
    match case.state:
        case NodeState.OFF:
            return f"{name} is off"
        case NodeState.REQUESTED:
            return f"{name} starts: its instance is asked of the provider {at}"
        case NodeState.BOOTING:
            return f"{name} starts: its instance {case.node.instance} is there {at}"
        case NodeState.JOINING:
            return f"{name} boots: Slurm waits for its slurmd to report {at}"
        case NodeState.READY:
            return f"{name} is in service {at}"
        case NodeState.DRAINING:
            return f"{name} takes no new jobs {at}"
        case NodeState.DELETING:
            return f"{name} is going: its instance is being deleted {at}"
        case NodeState.FAILED:
            return f"{name} could not start"


def jobs(case: NodeCase) -> str:
    return jobs_named([job.id for job in case.jobs])
