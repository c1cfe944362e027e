"""`tide operations`: what is being done, was done, and how far it is."""

import time
from collections.abc import Iterable
from typing import Annotated

import typer

from springtide.cli import output
from springtide.cli.client import Client, Json
from springtide.cli.endings import Complaint, Exit
from springtide.cli.output import JsonOption
from springtide.cli.parameters import LimitOption, number
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.nodeset import fold

COLUMNS = ("id", "operation", "nodes", "state", "step", "asked by", "created", "took", "reason")


def operations(
    id: Annotated[str | None, typer.Argument(metavar="ID", help="One of them.")] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Stop it; nodes on their way up are given back.")
    ] = False,
    limit: LimitOption = "20",
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Operations, newest first.

    With ID one of them, with its steps and the nodes that fell out.
    """
    where = Choice(cluster, state)
    if id is not None:
        one = number(id, "the ID of an operation")
        _one(client(where), one, cancel, json)
    elif cancel:
        raise Complaint("--cancel needs the ID of an operation; see `tide operations`", Exit.WRONG)
    else:
        newest = number(limit, "--limit")
        _all(client(where), newest, json)


def _one(daemon: Client, id: int, cancel: bool, json: bool) -> None:
    if cancel:
        daemon.get(f"/operations/{id}")
        daemon.post(f"/operations/{id}/cancel", {}, timeout_s=None)
    answer = daemon.get(f"/operations/{id}")
    if json:
        output.put_json(answer)
        return
    output.put(render_operation(answer, time.time()))
    if cancel and answer["ended_at"] is None:
        output.note(f"tide: {_yet_to_do(answer)}")


def _yet_to_do(operation: Json) -> str:
    """Of one that is cancelled and has not ended."""
    if operation["reason"].startswith("cancelled"):
        return f"it is cancelled, and cleans up; `tide operations {operation['id']}` shows its end"
    return "it ends when the nodes that it has begun with have come back"


def _all(daemon: Client, limit: int, json: bool) -> None:
    answer = daemon.get("/operations", limit=limit)
    if json:
        output.put_json(answer)
        return
    now = time.time()
    output.put_table(COLUMNS, [row(operation, now) for operation in answer["operations"]])


def row(operation: Json, now: float) -> list[str]:
    return [
        str(operation["id"]),
        operation["kind"],
        operation["nodes"],
        operation["state"],
        render_step(operation) if operation["step"] and not waiting(operation) else "",
        operation["asked_by"],
        output.render_age(operation["created_at"], now),
        _took(operation, now),
        _why(operation),
    ]


def render_step(operation: Json) -> str:
    """Where it is: its step and how many there are."""
    if operation["step"] is None or operation["state"] == "queued":
        return waiting(operation) or str(operation["state"])
    return f"{operation['step']} ({operation['steps_done'] + 1} of {len(operation['steps'])})"


def waiting(operation: Json) -> str:
    """What goes first, if something does; a daemon of an older Springtide does not say."""
    ahead = operation.get("waits_for", "")
    return f"waits for {output.printable(ahead)}" if ahead else ""


def _took(operation: Json, now: float) -> str:
    if operation["started_at"] is None:
        return ""
    return output.render_duration((operation["ended_at"] or now) - operation["started_at"])


def _why(operation: Json) -> str:
    """The reason, what it waits for, and the fallen nodes if there are any."""
    others = {node: why for node, why in operation["fallen"].items() if why != operation["reason"]}
    fallen = output.brief("; ".join(render_fallen(others)))
    told = (output.brief(operation["reason"]), waiting(operation), fallen)
    return "; ".join(text for text in told if text)


def render_fallen(fallen: dict[str, str]) -> list[str]:
    """Nodes that fell out, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, why in fallen.items():
        by_reason.setdefault(why, []).append(name)
    return [f"{fold(names)}: {output.printable(why)}" for why, names in by_reason.items()]


def render_operation(operation: Json, now: float) -> str:
    pairs = [
        ("operation", f"{operation['id']}, {operation['kind']}"),
        ("nodes", operation["nodes"]),
        *_rounds(operation),
        ("state", "; ".join(filter(None, (operation["state"], waiting(operation))))),
        ("asked by", operation["asked_by"]),
        ("reason", operation["reason"]),
        ("created", output.render_time(operation["created_at"])),
        ("started", output.render_time(operation["started_at"])),
        ("ended", output.render_time(operation["ended_at"])),
        ("took", _took(operation, now)),
    ]
    lines = [output.render_pairs(pairs), *_steps(operation)]
    lines += [f"fallen   {line}" for line in render_fallen(operation["fallen"])]
    return "\n".join(lines)


def _rounds(operation: Json) -> list[tuple[str, str]]:
    """How far it is with its batches, if it takes nodes in such."""
    known = (("done", operation["done"]), ("later", operation["later"]))
    return [(name, nodes) for name, nodes in known if nodes]


def _steps(operation: Json) -> Iterable[str]:
    over = operation["ended_at"] is not None
    for index, step in enumerate(operation["steps"]):
        if index < operation["steps_done"]:
            yield f"done     {step}"
        elif over:
            yield f"not done {step}"
        else:
            now = index == operation["steps_done"] and operation["state"] == "running"
            yield f"{'now' if now else 'next':8} {step}"
