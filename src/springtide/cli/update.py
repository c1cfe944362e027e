"""`tide update`: running nodes get the configuration of now, in batches."""

import typer

from springtide.cli import output
from springtide.cli.consent import NO_CHANGE, Consent
from springtide.cli.course import conclude
from springtide.cli.foresight import ask, render_plan
from springtide.cli.parameters import (
    BatchOption,
    DeadlineOption,
    DryRun,
    MaybeHosts,
    NoWait,
    PauseOption,
    Yes,
    count,
    given,
    hosts,
    parse_duration,
)
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.model import Kind


def update(
    hostlist: MaybeHosts = None,
    batch: BatchOption = None,
    pause: PauseOption = None,
    deadline: DeadlineOption = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    no_wait: NoWait = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Configure running nodes again.

    When their jobs have ended; they keep their image.
    """
    names = None if hostlist is None else hosts(hostlist)
    options = given(
        batch=count(batch, "--batch"), pause=parse_duration(pause), limit=parse_duration(deadline)
    )
    daemon = client(Choice(cluster, state))
    plan = ask(daemon, Kind.UPDATE, names)
    if not plan["count"]:
        output.put(f"no such node is in service: {NO_CHANGE}")
    elif dry_run:
        output.put(render_plan(plan))
        output.note(NO_CHANGE)
    else:
        output.note(render_plan(plan))
        name = daemon.get("/status")["cluster"]
        Consent(yes).require(name, f"configure {plan['nodes']} again")
        body = {"operation": Kind.UPDATE.value, "nodes": plan["nodes"], "options": options}
        opened = daemon.post("/operations", body)["operations"]
        raise typer.Exit(conclude(daemon, opened, no_wait))
