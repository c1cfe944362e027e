"""`tide apply`: the cluster as its file says, while it runs."""

import os

import typer

from springtide.cli import cluster_file, output, serving
from springtide.cli.changing import Change, daemon_for, finish, foresee, mention_cut_off, watch
from springtide.cli.check import parse_spec
from springtide.cli.consent import NO_CHANGE, Consent
from springtide.cli.endings import Exit
from springtide.cli.parameters import DryRun, NoWait, ServedFile, Yes, YesReally
from springtide.cli.place import Choice, ClusterOption, StateOption


def apply(
    file: ServedFile = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    yes_really: YesReally = None,
    no_wait: NoWait = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Have the running cluster follow its file.

    Nodes join, and leave when their jobs have ended. Jobs and daemon go on. It asks before any
    change, where `tide deploy` asks only if nodes would leave.
    """
    change = _foresee(file, Choice(cluster, state))
    if change.under_way and not dry_run:
        raise typer.Exit(watch(change, no_wait))
    if not change.is_one:
        _settle(change, dry_run)
    elif dry_run:
        output.put(change.render())
        output.note(NO_CHANGE)
    else:
        raise typer.Exit(_apply(change, Consent(yes, yes_really), no_wait))


def _foresee(file: str | None, choice: Choice) -> Change:
    daemon = daemon_for(file, choice)
    status = daemon.get("/status")
    mention_cut_off(status)
    found = cluster_file.find(daemon, status, file)
    change = foresee(daemon, status, found)
    if change.is_one and os.geteuid() == 0:
        serving.require_file(parse_spec(found.text, found.path))
    return change


def _settle(change: Change, dry_run: bool) -> None:
    """Nothing to do, but perhaps the file is elsewhere now; only root can say so."""
    output.put(f"cluster {change.status['cluster']} is as {change.file.path} says: {NO_CHANGE}")
    if change.moves_file and not dry_run and os.geteuid() == 0:
        change.apply()
        output.note(f"its file is {change.file.path} from now on")


def _apply(change: Change, consent: Consent, no_wait: bool) -> Exit:
    output.note(change.render())
    change.require(consent)
    return finish(change, change.apply(), no_wait)
