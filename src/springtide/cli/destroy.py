"""`tide destroy`: everything that carries the cluster's tag, after a question."""

import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from springtide.cli import detached, output
from springtide.cli.check import read_spec
from springtide.cli.client import Away, Client, Json
from springtide.cli.course import follow, report
from springtide.cli.deploy import plan_from_file
from springtide.cli.endings import Complaint, Exit
from springtide.cli.parameters import DryRun
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.cli.plan import NO_CHANGE, ask, render_plan
from springtide.cli.progress import watching
from springtide.cli.standing import busy
from springtide.layout import Layout
from springtide.model import Kind
from springtide.nodeset import fold

LEAVE_S = 30.0
"""How long the daemon may take to remove its directory and end."""


@dataclass(frozen=True, slots=True)
class Doomed:
    """What is about to be destroyed, from the daemon or, if it is away, from the stored file."""

    cluster: str
    protected: bool
    plan: Json
    served: bool


def destroy(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    yes_really: Annotated[
        str | None,
        typer.Option("--yes-really", metavar="NAME", help="Do not ask, though it is protected."),
    ] = None,
    dry_run: DryRun = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Remove the cluster and all that is its.

    Its nodes, its batch system, its site, its state directory.
    """
    daemon = client(Choice(cluster, state))
    doomed = _look(daemon)
    if dry_run:
        output.put(render_plan(doomed.plan))
        output.note(NO_CHANGE)
        return
    output.note(render_plan(doomed.plan))
    _confirm(daemon, doomed, yes, yes_really)
    if not doomed.served:
        detached.start(daemon, daemon.stored_spec)
    from springtide.cli import controlled

    with controlled.leaving(daemon.layout):
        _operate(daemon, doomed)
    output.put(f"cluster {doomed.cluster} is gone: {render_left(daemon.layout)}")


def _look(daemon: Client) -> Doomed:
    try:
        status = daemon.get("/status")
        plan = ask(daemon, Kind.DESTROY)
        return Doomed(status["cluster"], status["protected"], plan, served=True)
    except Away:
        if not daemon.stored_spec.exists():
            raise
    spec = read_spec(daemon.stored_spec)
    plan = plan_from_file(spec, Kind.DESTROY, spec.managed)
    return Doomed(spec.cluster, spec.protected, plan, served=False)


def _confirm(daemon: Client, doomed: Doomed, yes: bool, yes_really: str | None) -> None:
    """A protected cluster must be named; another one needs a yes."""
    name = doomed.cluster
    if yes_really not in (None, name):
        raise Complaint(f"--yes-really names {yes_really}, this is {name}", Exit.WRONG)
    if yes_really == name or (yes and not doomed.protected):
        return
    answer, option = (name, f"--yes-really {name}") if doomed.protected else ("yes", "--yes")
    protected = f"{name} is protected; " if doomed.protected else ""
    if not sys.stdin.isatty():
        raise Complaint(f"{protected}nobody can be asked here: say {option}", Exit.WRONG)
    jobs = _render_jobs(daemon) if doomed.served else ""
    if _typed(f"{jobs}{protected}type {answer} to destroy cluster {name}") != answer:
        raise Complaint(NO_CHANGE)


def _render_jobs(daemon: Client) -> str:
    """Who would lose their work."""
    names = fold(node["name"] for node in busy(daemon.get("/nodes")["nodes"]))
    return f"jobs run on {names} and would be lost; " if names else ""


def _typed(question: str) -> str:
    """The answer; Ctrl-C and the end of input are none."""
    try:
        answer: str = typer.prompt(question, default="", show_default=False, err=True)
    except typer.Abort:
        output.note(f"\ntide: {NO_CHANGE}")
        raise typer.Exit(Exit.INTERRUPTED) from None
    return answer


def _operate(daemon: Client, doomed: Doomed) -> None:
    body = {"operation": Kind.DESTROY.value, "confirm": doomed.cluster}
    with detached.watched(daemon) as ended:
        id = daemon.post("/operations", body)["operations"][0]["id"]
        with watching(lambda: [id]) as progress:
            operation = follow(daemon, id, progress)
            if operation is not None and (code := report(operation)):
                raise typer.Exit(code)
            progress.now("… the daemon ends")
            ended(LEAVE_S)
    if daemon.layout.is_ours:
        raise Complaint(
            f"all nodes are gone, but {daemon.layout.state} is still there; see the log in it, "
            "and remove it by hand",
            Exit.PARTLY,
        )


def render_left(layout: Layout) -> str:
    """What is not the cluster's stays, and so does the directory it is in."""
    if not layout.state.exists():
        return "nothing left"
    left = ", ".join(map(output.printable, layout.found()))
    return f"{layout.state} stays, for this in it is not the cluster's: {left or 'nothing'}"
