"""`tide status`: the cluster at a glance."""

import time

from springtide.cli import output
from springtide.cli.client import Json
from springtide.cli.cluster_file import edited
from springtide.cli.maintenance import render_maintenance
from springtide.cli.operations import render_step
from springtide.cli.output import JsonOption
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.model import Kind


def status(
    json: JsonOption = False, cluster: ClusterOption = None, state: StateOption = None
) -> None:
    """The cluster at a glance.

    Its batch system, nodes by state, and the operations that run.
    """
    answer = client(Choice(cluster, state)).get("/status")
    if json:
        output.put_json(answer)
    else:
        output.put(render_status(answer, time.time()))
        if news := edited(answer):
            output.note(f"tide: {news}")
        for group in answer["boots"]:
            if group["advice"]:
                output.note(f"tide: {group['advice']}")


def render_status(answer: Json, now: float) -> str:
    pairs = [
        ("cluster", answer["cluster"]),
        ("file", _file(answer)),
        ("state in", answer["state_directory"]),
        ("control", _control(answer)),
        ("batch", _batch(answer["batch"], answer["stopped"])),
        *_record(answer),
        ("nodes", _nodes(answer["nodes"])),
    ]
    running = [(f"operation {one['id']}", _operation(one, now)) for one in answer["operations"]]
    return output.render_pairs([*pairs, *_brakes(answer, now), *running])


def _brakes(answer: Json, now: float) -> list[tuple[str, str]]:
    """What keeps nodes from being started or repaired, and what waits for people, if any."""
    pairs = [(f"calendar {one['group']}", one["text"]) for one in answer["calendar"]]
    pairs += _holds(answer)
    if found := answer["maintenance"]:
        pairs.append(("maintenance", render_maintenance(found, now)))
    told = [(what, line) for what, lines in answer["troubles"].items() for line in lines]
    return [*pairs, *told]


def _holds(answer: Json) -> list[tuple[str, str]]:
    held = answer["held"].items()
    if answer["holds"] and not held:
        return [("holds", f"{answer['holds']}, but no whole group; see `tide holds`")]
    return [(f"held {group}", f"{why}; see `tide holds`") for group, why in held]


def _file(answer: Json) -> str:
    """Where people have it, and whether the cluster follows it."""
    file: str = answer["file"] or "the copy in the state directory"
    if is_cut_off(answer):
        command = "attach" if answer["attached"] else "apply"
        return f"{file}; not applied to its end: run `tide {command}`"
    return f"{file}; being applied" if applying(answer) else file


def is_cut_off(answer: Json) -> bool:
    """Whether the cluster does not follow its file, and nobody is at it."""
    up = answer["control_address"] is not None and not answer["stopped"]
    return up and not answer["applied"] and not applying(answer)


def applying(answer: Json) -> list[Json]:
    """The operations that follow from the cluster file; an update of nodes is somebody's wish."""
    return [
        one
        for one in answer["operations"]
        if one["kind"] in (Kind.ENLARGE, Kind.SHRINK)
        or (one["kind"] == Kind.UPDATE and not one["nodes"])
    ]


def _control(answer: Json) -> str:
    if answer["control_address"] is None:
        return f"not deployed; run `tide {'attach' if answer['attached'] else 'deploy'} FILE`"
    if answer["stopped"]:
        return "stopped; run `tide start`"
    places = {"here": "on this machine", "container": "in a container of its own"}
    return f"{answer['control_address']}, {places[answer['control']]}"


def _batch(batch: Json, stopped: bool) -> str:
    if stopped:
        return f"{batch['kind']}, stopped with the cluster"
    if batch["problem"]:
        return f"{batch['kind']} does not answer: {batch['problem']}"
    lacks = f", but {batch['lacks']}" if batch.get("lacks") else ""
    return f"{batch['kind']} {batch['version']}{lacks}"


def _record(answer: Json) -> list[tuple[str, str]]:
    """Only if something is wrong with it."""
    problem = answer["record"]["problem"]
    told = f"{problem}; make room in {answer['state_directory']}"
    return [("record", told)] if problem else []


def _nodes(counts: dict[str, int]) -> str:
    known = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"{sum(counts.values())}: {known}" if known else "none"


def _operation(operation: Json, now: float) -> str:
    what = f"{operation['kind']} {operation['nodes']}".rstrip()
    return f"{what}: {render_step(operation)}, {output.render_age(operation['created_at'], now)}"
