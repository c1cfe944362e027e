"""`tide destroy`: everything that carries the cluster's tag, after a question."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import typer

from springtide.cli import detached, output, serving
from springtide.cli.check import read_spec
from springtide.cli.client import Away, Client, Json
from springtide.cli.consent import NO_CHANGE, Consent
from springtide.cli.course import follow, report
from springtide.cli.endings import Complaint, Exit
from springtide.cli.foresight import ask, render_mind, render_plan
from springtide.cli.parameters import DryRun, Yes, YesReally, given
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.cli.progress import watching
from springtide.cli.words import left_in, terms
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
    kind: str
    """Of its batch system."""
    silent: bool = False
    """Whether that does not answer."""


class Kept(NamedTuple):
    """What this machine keeps of the cluster's users."""

    accounts: Sequence[str]
    homes: Sequence[str]
    groups: Sequence[str]


LeaveBatch = Annotated[
    bool,
    typer.Option(
        "--leave-batch",
        help="Also if a batch system that is watched does not answer: it keeps what it has of "
        "the nodes.",
    ),
]


def destroy(
    yes: Yes = False,
    yes_really: YesReally = None,
    leave_batch: LeaveBatch = False,
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
    if leave_batch:
        mind += f"what {terms(doomed.kind).system} has of the nodes stays in it; "
    Consent(yes, yes_really).require(
        name, f"destroy cluster {name}", protected=doomed.protected, mind=mind
    )
    with serving.undone_if_refused(daemon):
        kept = _destroy(daemon, doomed, leave_batch)
    left = render_left(daemon.layout, users=any(kept))
    output.put(f"cluster {doomed.cluster} is gone: {left}")
    if leave_batch and doomed.plan["nodes"]:
        output.note(render_in_batch(doomed))
    for line in render_kept(kept):
        output.note(line)


def _destroy(daemon: Client, doomed: Doomed, leave_batch: bool) -> Kept:
    """Answers what stays of users."""
    from springtide.cli import controlled

    if not doomed.served:
        detached.start(daemon, daemon.stored_spec)
    kept = kept_of(daemon)
    with controlled.leaving(daemon.layout):
        end(daemon, doomed.cluster, **given(leave_batch=leave_batch))
        _refuse_remains(daemon.layout)
    return kept


def render_in_batch(doomed: Doomed) -> str:
    """What stays in a batch system that nobody could tell; how it is removed by hand."""
    system, nodes = terms(doomed.kind).system, doomed.plan["nodes"]
    away = f"{system} did not answer:" if doomed.silent else f"if {system} did not answer,"
    return (
        f"{away} it still has what it had of {nodes}, and shows jobs on them as running; when it "
        f"is back, {left_in(doomed.kind)}"
    )


def kept_of(daemon: Client) -> Kept:
    """What is in a container of its own goes with it, but homes are of this machine."""
    found, kept = daemon.get("/users")["users"], daemon.get("/users/kept")
    if daemon.layout.control.exists():
        return Kept([], kept["homes"], [])
    return Kept([one["name"] for one in found if one["own_account"]], kept["homes"], kept["groups"])


def render_kept(kept: Kept) -> Iterator[str]:
    """A line each for accounts, homes and groups, and how they are removed."""
    accounts, homes, groups = (output.printable(", ".join(sorted(part))) for part in kept)
    if accounts:
        made = "accounts of this machine that `tide user add` made stay"
        yield f"{made}: {accounts}; `userdel NAME` removes one"
    if homes:
        yield f"homes of users stay: {homes}; their numbers are given to nobody else"
    if groups:
        given = "groups of this machine that users were given stay"
        yield f"{given}: {groups}; `groupdel NAME` removes one, if nobody else needs it"


def _leave(daemon: Client, consent: Consent, *, dry_run: bool) -> None:
    """A cluster in a Slurm that is not its own leaves that; then there is nothing else to do."""
    if not daemon.stored_spec.exists():
        return
    if not os.access(daemon.stored_spec, os.R_OK):
        if daemon.get("/status")["attached"]:
            raise Complaint("only root can take a cluster out of a Slurm that is not its own")
        return
    spec = read_spec(daemon.stored_spec)
    if spec.attached:
        from springtide.cli.attach_remove import remove_attached

        raise typer.Exit(remove_attached(spec, consent, dry_run=dry_run))


def _look(daemon: Client) -> Doomed:
    try:
        status = daemon.get("/status")
        plan = ask(daemon, Kind.DESTROY)
        kind, problem = status["batch"]["kind"], status["batch"]["problem"]
        silent = bool(problem) and not status["stopped"]
        return Doomed(status["cluster"], status["protected"], plan, True, kind, silent)
    except Away:
        if not daemon.stored_spec.exists():
            raise _nothing(daemon.layout) from None
    spec = read_spec(daemon.stored_spec)
    plan = serving.plan_from_file(spec, Kind.DESTROY, spec.managed)
    return Doomed(spec.cluster, spec.protected, plan, served=False, kind=spec.batch.kind)


def _nothing(layout: Layout) -> Away:
    """Why nothing can be destroyed: there is nothing, or nobody knows what."""
    if not layout.is_ours:
        return Away(f"there is no cluster in {layout.state}: nothing to destroy")
    return Away(
        f"no daemon answers on {layout.socket}, and {layout.state} has no copy of the cluster's "
        "file: serve it with `tide daemon FILE`, and run `tide destroy` beside it"
    )


def end(daemon: Client, cluster: str, **options: object) -> None:
    """All nodes, then the batch system and the site, then the daemon."""
    body = {"operation": Kind.DESTROY.value, "confirm": cluster, "options": options}
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


def render_left(layout: Layout, users: bool = False) -> str:
    """What is not the cluster's stays, and so does the directory it is in."""
    if not layout.state.exists():
        return "nothing left but what is its users'" if users else "nothing left"
    left = ", ".join(map(output.printable, layout.found()))
    return f"{layout.state} stays, for this in it is not the cluster's: {left or 'nothing'}"
