"""`tide deploy`: a cluster from its file. Twice changes nothing."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from springtide.cli import output, serving
from springtide.cli.changing import foresee
from springtide.cli.check import read_spec
from springtide.cli.client import Client, Json
from springtide.cli.cluster_file import ClusterFile, read
from springtide.cli.consent import NO_CHANGE, Consent
from springtide.cli.course import conclude, worst
from springtide.cli.endings import Complaint, Exit
from springtide.cli.foresight import ask, render_plan
from springtide.cli.parameters import DryRun, Yes, YesReally
from springtide.cli.place import (
    Choice,
    ClusterOption,
    FileArgument,
    StateOption,
    refuse_elsewhere,
    spec_file,
)
from springtide.cli.rising import bring_up
from springtide.model import Kind

if TYPE_CHECKING:
    from springtide.spec import Cluster


def deploy(
    file: FileArgument = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    yes_really: YesReally = None,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Make the cluster that a file describes.

    Its site, its batch system, and the nodes that are always up. Twice changes nothing; it asks
    only if nodes would leave a cluster that is up.
    """
    path = spec_file(file, Choice(cluster, state))
    spec = read_spec(path)
    refuse_elsewhere(spec, file, Choice(cluster, state))
    _refuse_attached(spec, path)
    daemon = Client(spec.state)
    before = serving.status_of(daemon)
    serving.refuse_other(before, spec)
    if dry_run:
        output.put(_render_plan(daemon, spec, path, before))
        output.note(NO_CHANGE)
    else:
        raise typer.Exit(_deploy(daemon, spec, path, before, Consent(yes, yes_really)))


def _refuse_attached(spec: "Cluster", path: Path) -> None:
    if spec.attached:
        raise Complaint(
            f"{path} describes nodes for a Slurm that is there already; use `tide attach {path}`",
            Exit.WRONG,
        )


def _render_plan(daemon: Client, spec: "Cluster", path: Path, status: Json | None) -> str:
    """The daemon's plan; before there is one, what the file tells."""
    if status is None:
        from springtide.calendar import kept_up

        up = kept_up(spec, datetime.now(UTC))
        return render_plan(serving.plan_from_file(spec, Kind.DEPLOY, up))
    if not serving.knows(status, spec):
        return foresee(daemon, status, _file(daemon, path)).render()
    return render_plan(ask(daemon, Kind.DEPLOY))


def _file(daemon: Client, path: Path) -> ClusterFile:
    return ClusterFile(path, read(path), ours=path == daemon.stored_spec)


def _deploy(
    daemon: Client, spec: "Cluster", path: Path, status: Json | None, consent: Consent
) -> Exit:
    with serving.undone_if_refused(daemon):
        codes = _bring_up(daemon, spec, path, status, consent)
    _keep_whereabouts(daemon, path)
    return worst(codes)


def _bring_up(
    daemon: Client, spec: "Cluster", path: Path, status: Json | None, consent: Consent
) -> list[Exit]:
    from springtide.cli import controlled

    codes, news = [], []
    if status is None:
        serving.start(daemon, spec, path)
        news.append("the daemon was started")
    elif not serving.knows(status, spec):
        codes.append(_apply(daemon, status, spec, path, consent))
        news.append(f"{path} was applied")
    codes.append(bring_up(daemon, [*news, *controlled.have(spec)]))
    return codes


def _apply(daemon: Client, status: Json, spec: "Cluster", path: Path, consent: Consent) -> Exit:
    """Have the cluster follow the file; asks if that takes nodes away."""
    serving.require(spec)
    change = foresee(daemon, status, _file(daemon, path))
    output.note(f"{path} has changed:\n{change.render()}")
    if change.shrinks:
        change.require(consent)
    return conclude(daemon, change.apply())


def _keep_whereabouts(daemon: Client, path: Path) -> None:
    """Tell the daemon where people have the file, if it thinks otherwise; only root can."""
    status = daemon.get("/status")
    if os.geteuid() == 0 and str(path) not in (str(daemon.stored_spec), status["file"]):
        change = foresee(daemon, status, _file(daemon, path))
        if not change.is_one:
            change.apply()
