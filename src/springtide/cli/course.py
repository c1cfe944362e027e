"""Operations watched step by step until they end, and what is said of how they ended."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from springtide.cli import output
from springtide.cli.client import Away, Client, Json, Refused
from springtide.cli.endings import Exit
from springtide.cli.operations import render_fallen, render_step, waiting
from springtide.cli.progress import Progress, looks, patiently, watching
from springtide.failures import is_unconfigured
from springtide.model import OperationState, Step
from springtide.nodeset import expand, fold

EXITS: Mapping[OperationState, Exit] = {
    OperationState.DONE: Exit.DONE,
    OperationState.PARTLY: Exit.PARTLY,
    OperationState.FAILED: Exit.FAILED,
    OperationState.CANCELLED: Exit.FAILED,
}


OF_NODES = frozenset(
    {
        Step.DRAIN,
        Step.DELETE_INSTANCES,
        Step.CREATE_INSTANCES,
        Step.WAIT_REACHABLE,
        Step.REFRESH_INVENTORY,
        Step.WAIT_REGISTERED,
        Step.UNDRAIN,
    }
)
"""Steps that do nothing once every node has fallen out."""

UNSEEN: Json = {"steps_done": 0, "fallen": {}, "done": "", "ended_at": None}
"""An operation before the first look at it."""


def conclude(daemon: Client, opened: Sequence[Json], no_wait: bool = False) -> Exit:
    """Watch operations that were just opened, or only name them; report how they ended."""
    if no_wait:
        output.put("\n".join(map(render_opened, opened)))
        return Exit.DONE
    ids = [one["id"] for one in opened]
    with watching(lambda: ids) as progress:
        ended = follow_all(daemon, ids, progress)
    return worst([report(one) for one in ended])


def render_opened(operation: Json) -> str:
    what = f"{operation['kind']} {operation['nodes']}".rstrip()
    return f"operation {operation['id']}: {what}; see `tide operations {operation['id']}`"


def worst(exits: Sequence[Exit]) -> Exit:
    """Of several operations together; some done and some not is partly done."""
    if len(set(exits)) > 1:
        return Exit.PARTLY
    return exits[0] if exits else Exit.DONE


def follow(daemon: Client, id: int, progress: Progress) -> Json | None:
    """The operation once it has ended; None if the cluster went away with its daemon."""
    ended = follow_all(daemon, [id], progress)
    return ended[0] if ended else None


def follow_all(daemon: Client, ids: Sequence[int], progress: Progress) -> list[Json]:
    """The operations once all have ended; none if the cluster went away with its daemon."""
    known: dict[int, Json] = dict.fromkeys(ids, UNSEEN)
    for _ in looks():
        for id in [id for id, one in known.items() if one["ended_at"] is None]:
            operation = patiently(partial(_look, daemon, id), progress)
            if operation is None:
                return []
            for line in render_done(known[id], operation):
                progress.past(f"{_mark(operation, ids)}{line}")
            known[id] = operation
        if going_on := [one for one in known.values() if one["ended_at"] is None]:
            progress.now("; ".join(f"… {_mark(one, ids)}{_render_now(one)}" for one in going_on))
        else:
            break
    return list(known.values())


def _mark(operation: Json, ids: Sequence[int]) -> str:
    """Which one is meant, if there are several."""
    return f"{operation['kind']}: " if len(ids) > 1 else ""


def _render_now(operation: Json) -> str:
    return waiting(operation) or f"{render_step(operation)}{operation['counts']}"


def render_done(before: Json, now: Json) -> Iterator[str]:
    """What ended between two looks, with the nodes that fell out in it."""
    if now["done"] or now["later"]:
        yield from _rounds_done(before, now)
    else:
        yield from _steps_done(before, now)
    if now["ended_at"] is not None and now["steps_done"] < len(now["steps"]):
        yield f"✗ {now['steps'][now['steps_done']]}"


def _steps_done(before: Json, now: Json) -> Iterator[str]:
    """Where several steps ended, nodes fell in the first: one that waits for nodes is seen.

    What could not be configured fell in that step, perhaps some looks before it ended.
    """
    unconfigured = {name: why for name, why in now["fallen"].items() if is_unconfigured(why)}
    newly = _newly_fallen(before, now)
    fallen = {name: why for name, why in newly.items() if name not in unconfigured}
    for step in now["steps"][before["steps_done"] : now["steps_done"]]:
        if step == Step.CONFIGURE_SOFTWARE and unconfigured:
            yield f"✗ {step}: {'; '.join(render_fallen(unconfigured))}"
        elif step not in OF_NODES:
            yield f"✓ {step}"
        elif fallen:
            yield f"✗ {step}: {'; '.join(render_fallen(fallen))}"
            fallen = {}
        elif _nobody_stands(now):
            yield f"- {step}: no node is left"
        else:
            yield f"✓ {step}"


def _rounds_done(before: Json, now: Json) -> Iterator[str]:
    """Nodes go through all steps in batches: who has, and who fell out."""
    all_of_them, ready = _names(now["nodes"]), _through(now)
    if fresh := ready - _through(before):
        yield f"✓ {fold(fresh)} ({len(ready)} of {len(all_of_them)})"
    for line in render_fallen(_newly_fallen(before, now)):
        yield f"✗ {line}"


def _through(operation: Json) -> set[str]:
    """Nodes that went through all steps; those of the last batch are there when it ends."""
    ended = operation.get("state") in (OperationState.DONE, OperationState.PARTLY)
    names = _names(operation["nodes"] if ended else operation["done"])
    return {name for name in names if name not in operation["fallen"]}


def _newly_fallen(before: Json, now: Json) -> dict[str, str]:
    return {name: why for name, why in now["fallen"].items() if name not in before["fallen"]}


def _nobody_stands(operation: Json) -> bool:
    nodes = _names(operation["nodes"])
    return bool(nodes) and operation["fallen"].keys() >= set(nodes)


def _names(hostlist: str) -> list[str]:
    """What the daemon folded; it writes no nodes as nothing."""
    return expand(hostlist) if hostlist else []


def _look(daemon: Client, id: int) -> Json | None:
    try:
        operation = daemon.get(f"/operations/{id}")
        told = _counts(daemon, operation) + _said(daemon, operation)
        return {**operation, "counts": told}
    except Away:
        if daemon.layout.record.exists():
            raise
        return None


def _counts(daemon: Client, operation: Json) -> str:
    """How many of its nodes are in which state."""
    if not operation["nodes"] or operation["ended_at"] is not None:
        return ""
    try:
        nodes = daemon.get("/nodes", names=operation["nodes"], world=0)["nodes"]
    except Refused:  # some have left the cluster file and are gone
        return ""
    states = Counter(node["state"] for node in nodes)
    return ": " + ", ".join(f"{count} {state}" for state, count in states.items())


def _said(daemon: Client, operation: Json) -> str:
    """How far a long step is, if it says so."""
    if operation["ended_at"] is not None or operation["step"] != Step.CONFIGURE_SOFTWARE:
        return ""
    last = daemon.lines("/events", operation=operation["id"], limit=1)
    said = [e for e in last if e["what"] == "progress"]
    return "".join(f"; {render_said(e['node'], e['detail'])}" for e in said)


def render_said(node: str | None, text: str) -> str:
    return output.printable(f"{node}: {text}" if node else text)


def report(operation: Json) -> Exit:
    """Say what went wrong, if something did."""
    outcome = OperationState(operation["state"])
    if outcome is not OperationState.DONE:
        why = f": {output.printable(operation['reason'])}" if operation["reason"] else ""
        output.note(f"tide: {operation['kind']} {outcome}{why}; operation {operation['id']}")
    for line in render_fallen(operation["fallen"]):
        output.note(f"tide: {line}")
    return EXITS[outcome]
