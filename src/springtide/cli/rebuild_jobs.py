"""`tide rebuild --via jobs`: Slurm runs a job for each node, which reboots it; watched by its end.

There is no operation to follow, for Slurm decides when each job starts; the nodes are looked at.
"""

from collections.abc import Iterable, Mapping

from springtide.cli import output
from springtide.cli.client import Client, Json
from springtide.cli.endings import Exit
from springtide.cli.operations import render_fallen
from springtide.cli.progress import Progress, looks, patiently, watching
from springtide.cli.standing import Standing
from springtide.model import NodeState
from springtide.nodeset import fold


def by_jobs(daemon: Client, body: Json, no_wait: bool) -> Exit:
    """Submit the jobs and, unless nobody waits, watch until their nodes are rebuilt."""
    before = _rows(daemon, body["nodes"])
    jobs: dict[str, str] = daemon.post("/operations", body)["jobs"]
    output.put("\n".join(f"{name}: job {id}" for name, id in jobs.items()))
    if no_wait or not jobs:
        return Exit.DONE
    was = {row["name"]: row for row in before if row["name"] in jobs}
    with watching(tuple) as progress:
        standing = _watch(daemon, was, progress)
    for line in render_fallen(dict(standing.fallen)):
        output.note(f"tide: {line}")
    if standing.done:
        output.put(f"{fold(standing.done)}: rebuilt")
    return standing.exit


def _rows(daemon: Client, names: str) -> list[Json]:
    rows: list[Json] = daemon.get("/nodes", names=names)["nodes"]
    return rows


def _watch(daemon: Client, was: Mapping[str, Json], progress: Progress) -> Standing:
    names = fold(was)
    for _ in looks():
        rows = patiently(lambda: _rows(daemon, names), progress)
        standing = decide_rebuilt(was, rows)
        if not standing.waiting:
            break
        progress.now(f"… rebuild {names}: {standing.render()}; see `squeue`")
    return standing


def decide_rebuilt(was: Mapping[str, Json], rows: Iterable[Json]) -> Standing:
    """Who runs what the file wants since the jobs were submitted, and who never came back."""
    done: list[str] = []
    fallen: dict[str, str] = {}
    waiting: dict[str, str] = {}
    for row in rows:
        name, state = row["name"], row["state"]
        if state == NodeState.OFF and not row["reason"]:
            done.append(name)  # it starts with what the file wants
        elif state in (NodeState.OFF, NodeState.FAILED):
            fallen[name] = row["reason"] or f"it is {state}"
        elif state == NodeState.READY and not row["outdated"] and _is_fresh(was[name], row):
            done.append(name)
        else:
            waiting[name] = state
    return Standing(tuple(done), fallen, waiting)


def _is_fresh(was: Json, row: Json) -> bool:
    """It was started since: a node that was right before is only rebooted."""
    return bool(was["outdated"]) or _start(was) != _start(row)


def _start(row: Json) -> tuple[object, ...]:
    return row["generation"], row["batch"] and row["batch"]["boot_at"]
