"""What qsub's options make of a job."""

import getopt
import re
from dataclasses import dataclass
from typing import Any

from tests.batch.torque_standin.server import Server

Json = dict[str, Any]


@dataclass(frozen=True)
class Ask:
    arguments: str
    queue: str
    name: str
    resources: dict[str, str]
    tasks: list[int]
    """Numbers of an array, if it is one."""
    request: str
    """How they were asked for."""
    held: bool
    after: list[str]
    rerun: bool


def parse(arguments: list[str]) -> Ask:
    options, _ = getopt.getopt(arguments, "q:N:l:t:hW:r:")
    values = dict(options)
    listed = ",".join(value for option, value in options if option == "-l")
    depend = values.get("-W", "").removeprefix("depend=").partition(":")[2]
    return Ask(
        " ".join(arguments),
        values.get("-q", "batch"),
        values.get("-N", "STDIN"),
        dict(pair.split("=", 1) for pair in listed.split(",") if pair),
        _numbers(values.get("-t", "")),
        values.get("-t", ""),
        "-h" in values,
        [id for id in depend.split(":") if id],
        values.get("-r") != "n",
    )


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in filter(None, text.partition("%")[0].split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def submit(server: Server, ask: Ask, user: str, script: str) -> str:
    number = server.state["next"]
    server.state["next"] = number + 1
    tasks: list[int | None] = [*ask.tasks] or [None]
    for task in tasks:
        _add(server, ask, number, task, user, script)
    for other in ask.after if not ask.tasks else ():
        if _runs(server, other):
            server.jobs[other]["depend"] = f"beforeok:{number}.{server.name}"
    return f"{number}[].{server.name}" if ask.tasks else f"{number}.{server.name}"


def _add(server: Server, ask: Ask, number: int, task: int | None, user: str, script: str) -> None:
    where = "" if task is None else f"[{task}]"
    id = f"{number}{where}.{server.name}"
    after = [other for other in ask.after if _runs(server, other)]
    at = int(server.now())
    server.jobs[id] = {
        "id": id,
        "number": number,
        "task": task,
        "name": ask.name if task is None else f"{ask.name}-{task}",
        "user": user,
        "queue": ask.queue,
        "state": "H" if ask.held or after else "Q",
        "hold": "u" if ask.held else "s" if after else "n",
        "waits_for": after,
        "depend": f"afterok:{':'.join(after)}" if after else None,
        "resources": _with_defaults(ask.resources, server.state["queues"][ask.queue]["default"]),
        "slots": {},
        "comment": None,
        "ctime": at,
        "mtime": at,
        "submit_args": ask.arguments,
        "rerun": ask.rerun,
        "explicit": "nodes" in ask.resources,
        "request": ask.request,
        "script": script,
    }


def _runs(server: Server, id: str) -> bool:
    return id in server.jobs and server.jobs[id]["state"] != "C"


def _with_defaults(resources: dict[str, str], default: dict[str, str]) -> dict[str, Any]:
    """What is not asked for comes before what it is counted from, or after all."""
    lacking = {key: value for key, value in default.items() if key not in resources}
    if "procs" in resources:
        return {**resources, **{key: value for key, value in lacking.items() if key != "nodes"}}
    nodes = resources.get("nodes") or default.get("nodes", "1")
    counts = [re.match(r"\d+", part) for part in nodes.split("+")]
    count = str(sum(int(found[0]) if found else 1 for found in counts))
    if "nodes" in resources:
        return {**resources, "nodect": count, **lacking}
    return {**resources, **lacking, "nodes": nodes, "nodect": count}
