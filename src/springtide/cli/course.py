"""One operation on the whole cluster, watched step by step; for `deploy` and `destroy`."""

from collections import Counter
from collections.abc import Mapping

from springtide.cli import output
from springtide.cli.client import Away, Client, Json
from springtide.cli.endings import Exit
from springtide.cli.operations import render_fallen, render_step
from springtide.cli.progress import Progress, looks, patiently
from springtide.model import OperationState

EXITS: Mapping[OperationState, Exit] = {
    OperationState.DONE: Exit.DONE,
    OperationState.PARTLY: Exit.PARTLY,
    OperationState.FAILED: Exit.FAILED,
    OperationState.CANCELLED: Exit.FAILED,
}


def follow(daemon: Client, id: int, progress: Progress) -> Json | None:
    """The operation once it has ended; None if the cluster went away with its daemon."""
    shown = 0
    for _ in looks():
        operation = patiently(lambda: _look(daemon, id), progress)
        if operation is None:
            return None
        for step in operation["steps"][shown : operation["steps_done"]]:
            progress.past(f"✓ {step}")
        shown = operation["steps_done"]
        if operation["ended_at"] is not None:
            return operation
        progress.now(f"… {render_step(operation)}{operation['counts']}")
    raise AssertionError("looks without a limit do not end")


def _look(daemon: Client, id: int) -> Json | None:
    try:
        operation = daemon.get(f"/operations/{id}")
        return {**operation, "counts": _counts(daemon, operation)}
    except Away:
        if daemon.layout.record.exists():
            raise
        return None


def _counts(daemon: Client, operation: Json) -> str:
    """How many of its nodes are in which state."""
    if not operation["nodes"] or operation["ended_at"] is not None:
        return ""
    nodes = daemon.get("/nodes", names=operation["nodes"], world=0)["nodes"]
    states = Counter(node["state"] for node in nodes)
    return ": " + ", ".join(f"{count} {state}" for state, count in states.items())


def report(operation: Json) -> Exit:
    """Say what went wrong, if something did."""
    outcome = OperationState(operation["state"])
    if outcome is not OperationState.DONE:
        why = f": {output.printable(operation['reason'])}" if operation["reason"] else ""
        output.note(f"tide: {operation['kind']} {outcome}{why}; operation {operation['id']}")
    for line in render_fallen(operation["fallen"]):
        output.note(f"tide: {line}")
    return EXITS[outcome]
