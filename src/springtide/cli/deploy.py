"""`tide deploy`: a cluster from its file. Twice changes nothing."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from springtide.cli import detached, output
from springtide.cli.check import read_spec, render_checks
from springtide.cli.client import Away, Client, Json
from springtide.cli.course import follow, report
from springtide.cli.endings import Complaint, Exit, cannot_write
from springtide.cli.parameters import DryRun
from springtide.cli.place import Choice, ClusterOption, FileArgument, StateOption, spec_file
from springtide.cli.plan import NO_CHANGE, ask, put_plan
from springtide.cli.progress import watching
from springtide.cli.whereabouts import option
from springtide.model import PLANS, Kind, OperationState
from springtide.nodeset import fold

if TYPE_CHECKING:
    from springtide.spec import Cluster

MANY = 100_000
"""The most that the daemon answers at once."""


def deploy(
    file: FileArgument = None,
    dry_run: DryRun = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Make the cluster that a file describes.

    Its site, its batch system, and the nodes that are always up. Twice changes nothing.
    """
    path = spec_file(file, Choice(cluster, state))
    spec = read_spec(path)
    daemon = Client(spec.state)
    before = _status(daemon)
    if dry_run:
        _put_plan(daemon, spec, before)
        return
    news = _have_daemon(daemon, spec, path, before)
    operation = _operate(daemon)
    code = report(operation)
    if operation["state"] in (OperationState.DONE, OperationState.PARTLY):
        _tell(daemon, [*news, *_changes(daemon, operation)])
    else:
        output.note(f"tide: {render_left(daemon.get('/status'), daemon.layout.state)}")
    raise typer.Exit(code)


def render_left(status: Json, state: Path) -> str:
    """What a deploy that failed leaves behind, and what to do now."""
    left = ["the daemon"]
    if address := status["control_address"]:
        left.append(f"the network of {address}")
        left += [] if status["batch"]["problem"] else ["slurmctld"]
    verb = "stays" if len(left) == 1 else "stay"
    return (
        f"{', '.join(left)} {verb}: correct what is wrong and run `tide deploy` again, "
        f"or remove all of it with `tide destroy {option(state)}`"
    )


def _status(daemon: Client) -> Json | None:
    try:
        return daemon.get("/status")
    except Away:
        return None


def _put_plan(daemon: Client, spec: "Cluster", status: Json | None) -> None:
    """The daemon's plan, unless it does not know this file yet."""
    if status is not None and _knows(status, spec):
        put_plan(ask(daemon, Kind.DEPLOY))
    else:
        put_plan(plan_from_file(spec, Kind.DEPLOY, spec.always_up))
    output.note(NO_CHANGE)


def plan_from_file(spec: "Cluster", kind: Kind, names: tuple[str, ...]) -> Json:
    """What the file alone tells of a plan; the state of nodes is the daemon's to know."""
    return {
        "operation": kind.value,
        "nodes": fold(names),
        "count": len(names),
        "steps": [step.value for step in PLANS[kind]],
        "states": {},
        "price_per_hour": None,
    }


def _knows(status: Json, spec: "Cluster") -> bool:
    from springtide.api.fingerprint import fingerprint

    same: bool = status["spec"] == fingerprint(spec)
    return same


# --- the daemon --------------------------------------------------------------------------


def _have_daemon(daemon: Client, spec: "Cluster", path: Path, status: Json | None) -> list[str]:
    """See that a daemon serves this very file; answers what had to be done for it."""
    if status is not None and _knows(status, spec):
        return []
    if status is not None and status["cluster"] != spec.cluster:
        raise Complaint(
            f"{spec.state} belongs to cluster {status['cluster']}; give {spec.cluster} a state "
            "directory of its own",
            Exit.WRONG,
        )
    _require(spec)
    if refusal := daemon.layout.refusal():
        raise Complaint(refusal, Exit.WRONG)
    _store(path, daemon)
    if status is not None:
        output.note(f"{path} has changed: the daemon is started again with it")
        detached.stop(daemon)
    detached.start(daemon, path)
    if not _knows(daemon.get("/status"), spec):
        raise Complaint(
            f"somebody else started a daemon for {spec.state} from another file; start that one "
            f"again with {path}"
        )
    return ["the daemon was started" if status is None else "the daemon was started again"]


def _require(spec: "Cluster") -> None:
    from springtide.cli.checks import REQUIRED
    from springtide.cli.subject import look, subject

    wrong = [check for check in look(REQUIRED, subject(spec)) if check.ok is False]
    if wrong:
        lines = "\n".join(render_checks(wrong))
        raise Complaint(f"{spec.cluster} cannot be deployed here:\n{lines}")


def _store(path: Path, daemon: Client) -> None:
    """Keep a copy, so that the cluster can be served and destroyed without the file."""
    copy = daemon.stored_spec
    if path == copy:
        return
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        fresh = copy.with_name(f".{copy.name}.new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(path.read_bytes())
        fresh.replace(copy)
    except OSError as error:
        raise cannot_write(str(copy), error) from error


# --- the operation -----------------------------------------------------------------------


def _operate(daemon: Client) -> Json:
    id = daemon.post("/operations", {"operation": Kind.DEPLOY.value})["operations"][0]["id"]
    with watching(lambda: [id]) as progress:
        operation = follow(daemon, id, progress)
    if operation is None:
        raise Complaint(f"{daemon.layout.state} was removed meanwhile: the cluster is destroyed")
    return operation


def _changes(daemon: Client, operation: Json) -> list[str]:
    """What the operation did beyond looking; nothing, if all was as it should be."""
    events = list(daemon.lines("/events", operation=operation["id"], limit=MANY))
    started = {event["node"] for event in events if event["what"] == "node registered"}
    changed = [event["detail"] for event in events if event["what"] == "batch system changed"]
    return changed + ([f"{fold(started)} started"] if started else [])


def _tell(daemon: Client, news: list[str]) -> None:
    """What happened, and how to use the cluster."""
    status = daemon.get("/status")
    ready, total = status["nodes"]["ready"], sum(status["nodes"].values())
    output.put(
        f"cluster {status['cluster']} is up: {'; '.join(news) or 'nothing had to be changed'}\n"
        f"control address {status['control_address']}, {ready} of {total} nodes ready\n"
        f"  export SLURM_CONF={daemon.layout.conf / 'slurm.conf'}\n"
        "  sinfo\n"
        "  sbatch -N1 --wrap hostname"
    )
