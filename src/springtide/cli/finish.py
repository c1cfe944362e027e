"""`tide finish`: the last step on a control host that configured itself when it booted.

People can log in long before that is over. It does what remains, and until it can it says why not.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from springtide.cli import output, serving
from springtide.cli.client import Client
from springtide.cli.consent import NO_CHANGE
from springtide.cli.deploy import deploy
from springtide.cli.endings import Complaint, Exit
from springtide.cli.importing import ControlAd, ControlShape, Shapes, import_
from springtide.cli.parameters import DryRun, Yes, YesReally
from springtide.cli.place import (
    BEFORE_COMMAND,
    DEFAULT_FILE,
    Choice,
    ClusterOption,
    FileArgument,
    StateOption,
    spec_file,
)
from springtide.model import Kind, OperationState

if TYPE_CHECKING:
    from springtide.spec import Cluster

LIMITS = Path("limits.yaml")
UNBEGUN = ("not run", "not started")
ENABLED = Path("/run/cloud-init/enabled")
"""There if cloud-init will run in this boot."""
LOOK_S = 2.0
"""Between two looks, with --wait."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why it cannot be finished."""

    text: str
    passes: bool = False
    """Whether it goes by itself, so that waiting helps."""


def finish(
    file: FileArgument = None,
    limits: Annotated[
        str | None,
        typer.Option("--limits", metavar="FILE", help="To be imported; or ./limits.yaml, if any."),
    ] = None,
    shapes: Shapes = None,
    control_shape: ControlShape = None,
    control_ad: ControlAd = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until what must be over is over.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    yes_really: YesReally = None,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Do what remains after the first configuration.

    Imports limits.yaml, if there is one, and deploys the cluster. Refuses while it cannot, and
    says why: cloud-init or a deploy is under way or has failed, or something is missing.
    """
    found = Path(limits).absolute() if limits else LIMITS.absolute()
    choice = Choice(cluster, state)

    def look() -> list[Reason]:
        wanted = found if limits or found.exists() else None
        return list(reasons(_own_file(file, choice), wanted))

    _require(look, wait)
    path = str(_own_file(file, choice))
    if found.exists():
        import_(
            str(found),
            into=path,
            shapes=shapes,
            control_shape=control_shape,
            control_ad=control_ad,
            dry_run=dry_run,
        )
    if dry_run:
        output.note(f"then {path} would be deployed; {NO_CHANGE}")
        return
    deploy(path, yes=yes, yes_really=yes_really)


def _own_file(file: str | None, choice: Choice) -> Path:
    """A person's, which an import may change, before the copy that the environment names."""
    named = choice.directory or ((before := BEFORE_COMMAND.get()) and before.directory)
    if file is None and not named and DEFAULT_FILE.exists():
        return DEFAULT_FILE.absolute()
    return spec_file(file, choice)


def _require(look: Callable[[], list[Reason]], wait: bool) -> None:
    told: list[Reason] = []
    while found := look():
        if not wait or not all(reason.passes for reason in found):
            lines = "\n".join(f"- {reason.text}" for reason in found)
            raise Complaint(f"this cannot be finished yet:\n{lines}", Exit.FAILED)
        for reason in found:
            if reason not in told:
                output.note(f"waiting: {reason.text}")
        told = found
        time.sleep(LOOK_S)


# --- reasons ---------------------------------------------------------------------------------


def reasons(path: Path, limits: Path | None) -> Iterator[Reason]:
    """All that is in the way, looked at and not changed."""
    yield from first_configuration()
    if limits is not None and not limits.exists():
        yield Reason(f"there is no {limits}: write it, or leave --limits out")
    if not path.exists():
        yield Reason(f"there is no {path} yet: write it, or begin with `tide init {path}`")
        return
    from springtide.cli.check import read_spec

    spec = read_spec(path)
    if limits is None and not spec.node_group:
        yield Reason(f"{path} has no nodes, and there are no limits: write {LIMITS} first")
    deploying = list(of_deploys(Client(spec.state), path))
    yield from deploying
    if not deploying:
        yield from of_checks(spec, path)


def first_configuration() -> Iterator[Reason]:
    """Of this machine by cloud-init, where there is one."""
    from springtide.cli.subject import run

    said = run(["cloud-init", "status"]).stdout
    word = said.partition("status:")[2].strip().partition("\n")[0].strip()
    if word == "running" or (word in UNBEGUN and ENABLED.exists()):
        todo = "`cloud-init status --wait` tells when it is over"
        yield Reason(f"cloud-init still configures this machine; {todo}", passes=True)
    if word == "error":
        todo = "see `cloud-init status --long`; `tide deploy` goes on all the same"
        yield Reason(f"cloud-init failed on this machine: {todo}")


def of_deploys(daemon: Client, path: Path) -> Iterator[Reason]:
    """The last one, if it is not over or did not end well."""
    if serving.status_of(daemon) is None:
        return
    deploys = [
        one for one in daemon.get("/operations")["operations"] if one["kind"] == Kind.DEPLOY.value
    ]
    if not deploys:
        return
    last = deploys[0]
    state = OperationState(last["state"])
    name = f"operation {last['id']} (deploy)"
    if not state.finished:
        yield Reason(f"{name} is under way; `tide operations {last['id']}` shows it", passes=True)
    elif state is OperationState.FAILED:
        why = last["reason"] or "see `tide events`"
        yield Reason(f"{name} failed: {why}; correct that and run `tide deploy {path}`")


def of_checks(spec: "Cluster", path: Path) -> Iterator[Reason]:
    """What a deploy would fail at, and what providers would refuse."""
    from springtide.cli import provider_checks
    from springtide.cli.checks import REQUIRED
    from springtide.cli.subject import look, subject

    for check in look([*REQUIRED, *provider_checks.ALL], subject(spec, path)):
        if check.ok is False:
            todo = f"; {check.todo}" if check.todo else ""
            yield Reason(f"{check.name}: {check.text}{todo}")
