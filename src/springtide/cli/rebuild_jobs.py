"""`tide rebuild --via jobs`: Slurm runs a job for each node; watched until the node is rebuilt.

When a job starts, the daemon is asked, and an operation rebuilds the node after it. Slurm decides
when that is, so there is no operation to follow yet: jobs, rebuilds and nodes are looked at.
"""

from collections.abc import Collection, Iterable, Mapping

from springtide.cli import output
from springtide.cli.client import Client, Json
from springtide.cli.endings import Exit
from springtide.cli.operations import render_fallen
from springtide.cli.progress import Progress, looks, patiently, watching
from springtide.cli.standing import Standing
from springtide.model import NodeState
from springtide.nodeset import expand, fold

LOOKS = 10
"""So often in a row nobody must be about to rebuild a node before it is believed."""
CANCELLED = "its job was cancelled, or it was not rebuilt"


def by_jobs(daemon: Client, body: Json, no_wait: bool) -> Exit:
    """Submit the jobs and, unless nobody waits, watch until their nodes are rebuilt."""
    before = _rows(daemon, body["nodes"])
    jobs: dict[str, str] = daemon.post("/operations", body)["jobs"]
    output.put("\n".join(f"{name}: job {id}" for name, id in jobs.items()))
    if no_wait or not jobs:
        return Exit.DONE
    was = {row["name"]: row for row in before if row["name"] in jobs}
    with watching(tuple) as progress:
        standing = _watch(daemon, jobs, was, progress)
    for line in render_fallen(dict(standing.fallen)):
        output.note(f"tide: {line}")
    if standing.done:
        output.put(f"{fold(standing.done)}: rebuilt")
    return standing.exit


def _rows(daemon: Client, names: str) -> list[Json]:
    rows: list[Json] = daemon.get("/nodes", names=names)["nodes"]
    return rows


def _watch(
    daemon: Client, jobs: Mapping[str, str], was: Mapping[str, Json], progress: Progress
) -> Standing:
    """Nodes are looked at last: what rebuilds that are over have made of them is seen then."""
    names = fold(was)
    idle: dict[str, int] = {}
    for _ in looks():
        idle = count_idle(idle, jobs, patiently(lambda: daemon.get("/rebuilds"), progress))
        rows = patiently(lambda: _rows(daemon, names), progress)
        standing = decide_rebuilt(was, rows, [n for n, times in idle.items() if times >= LOOKS])
        if not standing.waiting:
            break
        progress.now(f"… rebuild {names}: {standing.render()}; see `squeue`")
    return standing


def count_idle(before: Mapping[str, int], jobs: Mapping[str, str], seen: Json) -> dict[str, int]:
    """Nodes whose job is over and that no rebuild is at, and at how many looks in a row.

    A batch system that does not answer says nothing of its jobs.
    """
    if seen["jobs"] is None:
        return {}
    waiting, begun = set(seen["jobs"]), set(expand(seen["nodes"]) if seen["nodes"] else ())
    idle = [name for name, id in jobs.items() if id not in waiting and name not in begun]
    return {name: before.get(name, 0) + 1 for name in idle}


def decide_rebuilt(
    was: Mapping[str, Json], rows: Iterable[Json], idle: Collection[str] = ()
) -> Standing:
    """Who runs what the file wants since the jobs were submitted, and who never will.

    A rebuild that fails before the node was touched returns it to service, with the reason. The
    `idle` are those that nobody is about to rebuild any more.
    """
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
        elif state == NodeState.READY and row["reason"] not in ("", was[name]["reason"]):
            fallen[name] = row["reason"]
        elif state == NodeState.READY and name in idle:
            fallen[name] = CANCELLED
        else:
            waiting[name] = state
    return Standing(tuple(done), fallen, waiting)


def _is_fresh(was: Json, row: Json) -> bool:
    """It was started since: a node that was right before is only rebooted."""
    return bool(was["outdated"]) or _start(was) != _start(row)


def _start(row: Json) -> tuple[object, ...]:
    return row["generation"], row["batch"] and row["batch"]["boot_at"]
