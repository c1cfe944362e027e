"""`tide stop` and `tide start`: a whole cluster, its queue kept meanwhile."""

from typing import Annotated

import typer

from springtide.cli import output, serving
from springtide.cli.check import read_spec
from springtide.cli.client import Client
from springtide.cli.consent import NO_CHANGE, Consent
from springtide.cli.course import conclude
from springtide.cli.foresight import ask, render_mind, render_plan
from springtide.cli.parameters import (
    DeadlineOption,
    DryRun,
    NoWait,
    Yes,
    YesReally,
    given,
    parse_duration,
)
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.cli.rising import bring_up
from springtide.cli.whereabouts import option
from springtide.model import Kind

NowOption = Annotated[
    bool,
    typer.Option("--now", help="Do not wait for jobs: they go back to the queue."),
]


def stop(
    now: NowOption = False,
    deadline: DeadlineOption = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    yes_really: YesReally = None,
    no_wait: NoWait = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Stop the cluster until `tide start`.

    All nodes and the batch system, when the jobs have ended. What waits in the queue stays.
    """
    options = given(now=now, limit=parse_duration(deadline))
    daemon = client(Choice(cluster, state))
    status = daemon.get("/status")
    name = status["cluster"]
    if status["stopped"]:
        output.put(f"cluster {name} is stopped already: {NO_CHANGE}")
        return
    plan = ask(daemon, Kind.STOP, None, **given(now=now))
    if dry_run:
        output.put(render_plan(plan))
        output.note(NO_CHANGE)
        return
    output.note(render_plan(plan))
    Consent(yes, yes_really).require(
        name, f"stop cluster {name}", protected=status["protected"], mind=render_mind(plan)
    )
    body = {"operation": Kind.STOP.value, "confirm": name, "options": options}
    code = conclude(daemon, daemon.post("/operations", body)["operations"], no_wait)
    if not code and not no_wait:
        again = f"`tide start {option(daemon.layout.state)}`"
        output.put(f"cluster {name} is stopped; {again} starts it")
    raise typer.Exit(code)


def start(
    dry_run: DryRun = False, cluster: ClusterOption = None, state: StateOption = None
) -> None:
    """Start a stopped cluster.

    Its batch system with its queue, and the nodes that are always up; its daemon, if need be.
    """
    daemon = client(Choice(cluster, state))
    if dry_run:
        output.put(render_plan(ask(daemon, Kind.DEPLOY), "start"))
        output.note(NO_CHANGE)
    else:
        with serving.undone_if_refused(daemon):
            code = bring_up(daemon, _have_daemon(daemon))
        raise typer.Exit(code)


def _have_daemon(daemon: Client) -> list[str]:
    """A daemon that is away is started from the copy of the last file."""
    if serving.status_of(daemon) is not None or not daemon.stored_spec.exists():
        return []
    serving.start(daemon, read_spec(daemon.stored_spec), daemon.stored_spec)
    return ["the daemon was started"]
