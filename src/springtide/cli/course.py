"""One operation on the whole cluster, watched step by step; for `deploy` and `destroy`."""

from collections import Counter
from collections.abc import Iterator, Mapping

from springtide.cli import output
from springtide.cli.client import Away, Client, Json
from springtide.cli.endings import Exit
from springtide.cli.operations import render_fallen, render_step
from springtide.cli.progress import Progress, looks, patiently
from springtide.model import OperationState, Step
from springtide.nodeset import expand

EXITS: Mapping[OperationState, Exit] = {
    OperationState.DONE: Exit.DONE,
    OperationState.PARTLY: Exit.PARTLY,
    OperationState.FAILED: Exit.FAILED,
    OperationState.CANCELLED: Exit.FAILED,
}


OF_NODES = frozenset(
    {
        Step.DELETE_INSTANCES,
        Step.CREATE_INSTANCES,
        Step.WAIT_REACHABLE,
        Step.REFRESH_INVENTORY,
        Step.WAIT_REGISTERED,
    }
)
"""Steps that do nothing once every node has fallen out."""


def follow(daemon: Client, id: int, progress: Progress) -> Json | None:
    """The operation once it has ended; None if the cluster went away with its daemon."""
    before: Json = {"steps_done": 0, "fallen": {}}
    for _ in looks():
        operation = patiently(lambda: _look(daemon, id), progress)
        if operation is None:
            return None
        for line in render_done(before, operation):
            progress.past(line)
        before = operation
        if operation["ended_at"] is not None:
            return operation
        progress.now(f"… {render_step(operation)}{operation['counts']}")
    raise AssertionError("looks without a limit do not end")


def render_done(before: Json, now: Json) -> Iterator[str]:
    """The steps that ended between two looks, with the nodes that fell out in them.

    Where several did, nodes fell in the first: a step that waits for nodes is seen by itself.
    """
    fallen = {name: why for name, why in now["fallen"].items() if name not in before["fallen"]}
    for step in now["steps"][before["steps_done"] : now["steps_done"]]:
        if step not in OF_NODES:
            yield f"✓ {step}"
        elif fallen:
            yield f"✗ {step}: {'; '.join(render_fallen(fallen))}"
            fallen = {}
        elif _nobody_stands(now):
            yield f"- {step}: no node is left"
        else:
            yield f"✓ {step}"
    if now["ended_at"] is not None and now["steps_done"] < len(now["steps"]):
        yield f"✗ {now['steps'][now['steps_done']]}"


def _nobody_stands(operation: Json) -> bool:
    nodes = expand(operation["nodes"]) if operation["nodes"] else []
    return bool(nodes) and operation["fallen"].keys() >= set(nodes)


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
