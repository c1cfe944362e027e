"""`tide resume` and `tide suspend`: nodes up and down by hand, watched until they are."""

from typing import Annotated

import typer

from springtide.cli import output
from springtide.cli.client import Client
from springtide.cli.consent import NO_CHANGE
from springtide.cli.foresight import ask, render_plan
from springtide.cli.operations import render_fallen
from springtide.cli.parameters import DryRun, HostsArgument, NoWait, hosts, parse_duration
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.cli.progress import watching
from springtide.cli.standing import GOALS, Standing
from springtide.cli.watch import Watch
from springtide.model import Kind
from springtide.nodeset import expand, fold

Timeout = Annotated[
    str | None,
    typer.Option("--timeout", metavar="TIME", help="Watch no longer than this, such as 90s, 10m."),
]


def resume(
    hostlist: HostsArgument,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    timeout: Timeout = None,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Have nodes up, and wait until they are ready."""
    names, timeout_s = hosts(hostlist), parse_duration(timeout)
    daemon = client(Choice(cluster, state))
    if dry_run:
        _put_plan(daemon, Kind.RESUME, names)
    else:
        _change(daemon, Kind.RESUME, names, no_wait, timeout_s)


def suspend(
    hostlist: HostsArgument,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    timeout: Timeout = None,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Have nodes gone, and wait until they are off. Jobs on them end first."""
    names, timeout_s = hosts(hostlist), parse_duration(timeout)
    daemon = client(Choice(cluster, state))
    if dry_run:
        _put_plan(daemon, Kind.SUSPEND, names)
    else:
        mention_min(daemon, names)
        _change(daemon, Kind.SUSPEND, names, no_wait, timeout_s)


def mention_min(daemon: Client, names: list[str]) -> None:
    """They may go, but not for long."""
    always = ask(daemon, Kind.DEPLOY)["nodes"]
    kept = set(names) & set(expand(always) if always else ())
    if kept:
        output.note(
            f"{fold(kept)}: one of the `min` that are always up, so it comes back by itself; "
            "`tide resize` has fewer of them up"
        )


def _put_plan(daemon: Client, kind: Kind, names: list[str]) -> None:
    output.put(render_plan(ask(daemon, kind, names)))
    output.note(NO_CHANGE)


def _change(
    daemon: Client, kind: Kind, names: list[str], no_wait: bool, timeout_s: float | None
) -> None:
    watch = Watch(daemon, kind, names)
    watch.ask()
    if no_wait:
        output.put(watch.render_asked())
        return
    with watching(lambda: watch.operations) as progress:
        standing = watch.until_nobody_waits(progress, timeout_s)
    _report(kind, standing)
    raise typer.Exit(standing.exit)


def _report(kind: Kind, standing: Standing) -> None:
    if standing.done:
        output.put(f"{fold(standing.done)}: {GOALS[kind]}")
    for line in render_fallen(dict(standing.fallen)):
        output.note(f"tide: {line}")
    if kind is Kind.RESUME and standing.fallen:
        output.note(f"tide: `tide why {next(iter(standing.fallen))}` tells more")
    if standing.waiting:
        late = fold(standing.waiting)
        output.note(
            f"tide: {late}: not {GOALS[kind]} in time ({standing.render()}); "
            f"it goes on in the daemon; see `tide nodes {late}`"
        )
