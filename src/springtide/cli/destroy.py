"""`tide destroy`: everything that carries the cluster's tag, after a question."""

import os
from dataclasses import dataclass

import typer

from springtide.cli import detached, output
from springtide.cli.check import is_attached, read_spec
from springtide.cli.client import Away, Client, Json
from springtide.cli.consent import NO_CHANGE, Consent
from springtide.cli.course import follow, report
from springtide.cli.endings import Complaint, Exit
from springtide.cli.foresight import ask, render_mind, render_plan
from springtide.cli.parameters import DryRun, Yes, YesReally
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.cli.progress import watching
from springtide.cli.serving import plan_from_file
from springtide.layout import Layout
from springtide.model import Kind

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
    yes: Yes = False,
    yes_really: YesReally = None,
    dry_run: DryRun = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Remove the cluster and all that is its.

    Its nodes, its batch system, its site, its state directory.
    """
    daemon = client(Choice(cluster, state))
    _leave(daemon, Consent(yes, yes_really), dry_run=dry_run)
    doomed = _look(daemon)
    if dry_run:
        output.put(render_plan(doomed.plan))
        output.note(NO_CHANGE)
        return
    output.note(render_plan(doomed.plan))
    name, mind = doomed.cluster, render_mind(doomed.plan)
    Consent(yes, yes_really).require(
        name, f"destroy cluster {name}", protected=doomed.protected, mind=mind
    )
    if not doomed.served:
        detached.start(daemon, daemon.stored_spec)
    from springtide.cli import controlled

    with controlled.leaving(daemon.layout):
        end(daemon, doomed.cluster)
        _refuse_remains(daemon.layout)
    output.put(f"cluster {doomed.cluster} is gone: {render_left(daemon.layout)}")


def _leave(daemon: Client, consent: Consent, *, dry_run: bool) -> None:
    """A cluster in a Slurm that is not its own leaves that; then there is nothing else to do."""
    if not daemon.stored_spec.exists():
        return
    if not os.access(daemon.stored_spec, os.R_OK):
        if daemon.get("/status")["attached"]:
            raise Complaint("only root can take a cluster out of a Slurm that is not its own")
        return
    spec = read_spec(daemon.stored_spec)
    if is_attached(spec):
        from springtide.cli.attach_remove import remove_attached

        raise typer.Exit(remove_attached(spec, consent, dry_run=dry_run))


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


def end(daemon: Client, cluster: str) -> None:
    """All nodes, then the batch system and the site, then the daemon."""
    body = {"operation": Kind.DESTROY.value, "confirm": cluster}
    with detached.watched(daemon) as ended:
        id = daemon.post("/operations", body)["operations"][0]["id"]
        with watching(lambda: [id]) as progress:
            operation = follow(daemon, id, progress)
            if operation is not None and (code := report(operation)):
                raise typer.Exit(code)
            progress.now("… the daemon ends")
            ended(LEAVE_S)


def _refuse_remains(layout: Layout) -> None:
    if layout.is_ours:
        raise Complaint(
            f"all nodes are gone, but {layout.state} is still there; see the log in it, "
            "and remove it by hand",
            Exit.PARTLY,
        )


def render_left(layout: Layout) -> str:
    """What is not the cluster's stays, and so does the directory it is in."""
    if not layout.state.exists():
        return "nothing left"
    left = ", ".join(map(output.printable, layout.found()))
    return f"{layout.state} stays, for this in it is not the cluster's: {left or 'nothing'}"
