"""`tide attach`: elastic nodes for a Slurm that is there already, and away again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from springtide.cli import output, serving
from springtide.cli.changing import foresee
from springtide.cli.check import read_spec, render_checks
from springtide.cli.client import Client, Json
from springtide.cli.cluster_file import ClusterFile, read
from springtide.cli.consent import NO_CHANGE, Consent
from springtide.cli.course import conclude, report
from springtide.cli.endings import Complaint, Exit
from springtide.cli.parameters import DryRun, Yes, YesReally
from springtide.cli.place import (
    Choice,
    ClusterOption,
    FileArgument,
    StateOption,
    refuse_elsewhere,
    spec_file,
)
from springtide.cli.rising import operate

if TYPE_CHECKING:
    from springtide.cli.attach_checks import Sight
    from springtide.cli.subject import Check
    from springtide.spec import Cluster

Remove = Annotated[
    bool, typer.Option("--remove", help="Leave that Slurm, with nothing of ours left behind.")
]


def attach(
    file: FileArgument = None,
    remove: Remove = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    yes_really: YesReally = None,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Give an existing Slurm elastic nodes.

    Checks it, prepares all that is ours, and prints the lines to add to its slurm.conf. Nothing
    else of it is changed. Exit code 3 says that it waits for those lines; run it again then.
    """
    path = spec_file(file, Choice(cluster, state))
    spec = read_spec(path)
    refuse_elsewhere(spec, file, Choice(cluster, state))
    _refuse_own(spec, path)
    consent = Consent(yes, yes_really)
    if remove:
        from springtide.cli.attach_remove import remove_attached

        raise typer.Exit(remove_attached(spec, consent, dry_run=dry_run))
    raise typer.Exit(_attach(spec, path, consent, dry_run=dry_run))


def _refuse_own(spec: "Cluster", path: Path) -> None:
    if spec.polled:
        raise Complaint(
            f"{path} describes nodes for a {spec.batch.kind} that is watched and stays as it is: "
            "nothing is attached to it; use `tide deploy` and `tide destroy`",
            Exit.WRONG,
        )
    if not spec.attached:
        raise Complaint(
            f"{path} describes a cluster with a batch system of its own; use `tide deploy` and "
            "`tide destroy`, or name the slurm.conf of yours: "
            "`batch: {kind: slurm, attach: /etc/slurm/slurm.conf}`",
            Exit.WRONG,
        )


def _attach(spec: "Cluster", path: Path, consent: Consent, *, dry_run: bool) -> Exit:
    from springtide.cli.attached import look_around, required, restore, will_be_attached
    from springtide.cli.subject import subject

    daemon = Client(spec.state)
    status = serving.status_of(daemon)
    serving.refuse_other(status, spec)
    if not dry_run:
        restore(spec)
    about = subject(spec, path)
    found = required(about)
    if dry_run or _is_wrong(found):
        return _end_early(spec, path, found, dry_run)
    news = _have_daemon(daemon, spec, path, status, consent)
    # Before that Slurm knows our nodes it ends early, of which more is told than its steps do.
    operation = operate(daemon, quiet=not will_be_attached(about))
    checks, sight = look_around(subject(spec, path))
    output.put("\n".join(render_checks(checks)))
    return _conclude(sight, operation, news, wrong=_is_wrong(checks))


def _is_wrong(checks: "list[Check]") -> bool:
    return any(check.ok is False for check in checks)


def _end_early(spec: "Cluster", path: Path, found: "list[Check]", dry_run: bool) -> Exit:
    """What is wrong; or, if nobody wants more, what would be done and written."""
    from springtide.cli.attached import render_intent
    from springtide.cli.subject import subject

    output.put("\n".join(render_checks(found)))
    wrong = _is_wrong(found)
    if not wrong:
        output.put(render_intent(subject(spec, path)))
    output.note(NO_CHANGE)
    return Exit.FAILED if wrong else Exit.DONE


def _have_daemon(
    daemon: Client, spec: "Cluster", path: Path, status: Json | None, consent: Consent
) -> list[str]:
    """See that a daemon serves this very file; answers what had to be done for it."""
    if status is None:
        serving.start(daemon, spec, path)
        return ["the daemon was started"]
    if serving.knows(status, spec):
        return []
    file = ClusterFile(path, read(path), ours=path == daemon.stored_spec)
    change = foresee(daemon, status, file)
    output.note(f"{path} has changed:\n{change.render()}")
    if change.shrinks:
        change.require(consent)
    conclude(daemon, change.apply())
    return [f"{path} was applied"]


def _conclude(sight: "Sight", operation: Json, news: list[str], *, wrong: bool) -> Exit:
    """A deploy that failed only because that Slurm does not know us yet is no failure."""
    from springtide.cli.attached import has_failed, is_working, render_attached, render_waiting

    if wrong or has_failed(operation):
        report(operation)
        return Exit.FAILED
    if not is_working(sight):
        output.put(render_waiting(sight))
        return Exit.PARTLY
    code = report(operation)
    if code is not Exit.FAILED:
        output.put(render_attached(sight, news, operation))
    return code
