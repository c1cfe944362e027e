"""Which cluster a command is about: by option, by environment, or the only one there is."""

import os
import re
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from springtide.cli import output
from springtide.cli.client import Away, Client
from springtide.cli.endings import Complaint, Exit
from springtide.cli.whereabouts import CLUSTERS
from springtide.layout import STORED_SPEC

if TYPE_CHECKING:
    from springtide.spec import Cluster

DEFAULT_FILE = Path("cluster.yaml")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")

ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="NAME", help="The cluster, if there are several; or TIDE_CLUSTER."
    ),
]
StateOption = Annotated[
    str | None,
    typer.Option("--state", metavar="DIR", help="Its state directory; or TIDE_STATE."),
]
FileArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="The cluster's file; left out, ./cluster.yaml or the only cluster's copy.",
    ),
]


@dataclass(frozen=True, slots=True)
class Choice:
    """What somebody said about which cluster; in the environment a directory counts more."""

    cluster: str | None = None
    state: str | None = None

    @property
    def directory(self) -> Path | None:
        if self.state:
            return Path(self.state).absolute()
        if self.cluster is None:
            return None
        if not _NAME.fullmatch(self.cluster):
            raise Complaint(
                f"{self.cluster[:60]!r} is no name of a cluster: those are of a-z, 0-9 and '-', a "
                "letter first; a directory goes with --state",
                Exit.WRONG,
            )
        return CLUSTERS / self.cluster


BEFORE_COMMAND: ContextVar[Choice | None] = ContextVar("before_command", default=None)
"""Options that were given before the command's name."""


def client(choice: Choice) -> Client:
    """The daemon that a command asks."""
    return Client(_there(chosen(choice)) or the_only_one(CLUSTERS))


def chosen(choice: Choice) -> Path | None:
    """The state directory that was named, nearest to the command first."""
    surrounding = Choice(os.environ.get("TIDE_CLUSTER") or None, os.environ.get("TIDE_STATE"))
    for each in (choice, BEFORE_COMMAND.get()):
        if each is not None and each.cluster and each.state:
            raise Complaint("say --cluster or --state, not both", Exit.WRONG)
    for each in (choice, BEFORE_COMMAND.get(), surrounding):
        if each is not None and (directory := each.directory):
            return directory
    return None


def _there(directory: Path | None) -> Path | None:
    """A cluster that goes by its name has its directory among the others."""
    if directory is None or directory.parent != CLUSTERS or directory.exists():
        return directory
    known = ", ".join(path.name for path in _with(CLUSTERS, STORED_SPEC))
    raise Complaint(
        f"there is no cluster {directory.name}; "
        + (f"known are {known}" if known else f"there is none in {CLUSTERS}"),
        Exit.WRONG,
    )


def the_only_one(clusters: Path) -> Path:
    """The state directory with a daemon, or the one that had one, if there is no doubt."""
    serving = _with(clusters, "tide.sock")
    found = serving or _with(clusters, STORED_SPEC)
    if len(found) == 1:
        return found[0]
    if not found:
        raise Away(
            f"there is no cluster in {clusters}; make one with `tide deploy FILE`, "
            "or say where it is with --state"
        )
    names = ", ".join(path.name for path in found)
    raise Complaint(f"there are several clusters: {names}; choose with --cluster", Exit.WRONG)


def _with(clusters: Path, name: str) -> list[Path]:
    try:
        return sorted(path for path in clusters.iterdir() if (path / name).exists())
    except OSError:
        return []


def spec_file(file: str | None, choice: Choice) -> Path:
    """The cluster's file: as given, of a named cluster, right here, or of the only cluster."""
    if file is not None:
        return Path(file).absolute()
    path = _found(choice)
    if os.path.exists(path) and not os.access(path, os.R_OK):  # noqa: PTH110 - raises nothing
        raise Complaint(
            f"only root may read {path}; run it as root, or name a FILE of yours", Exit.WRONG
        )
    return path


def _found(choice: Choice) -> Path:
    if directory := _there(chosen(choice)):
        return directory / STORED_SPEC
    here = DEFAULT_FILE.absolute()
    return here if here.exists() else _stored(here)


def refuse_elsewhere(spec: "Cluster", file: str | None, choice: Choice) -> None:
    """A FILE says itself which cluster it is of, and where; an option must not say otherwise."""
    if file is None:
        return
    for each in (choice, BEFORE_COMMAND.get() or Choice()):
        if each.state and each.directory != spec.state:
            raise Complaint(
                f"--state {each.state} is not where {file} has its cluster: that is {spec.state}; "
                f"leave out --state, or write `state: {each.directory}` in the file",
                Exit.WRONG,
            )
        if each.cluster and not each.state and each.cluster != spec.cluster:
            raise Complaint(
                f"{file} describes cluster {spec.cluster}, not {each.cluster}; leave out "
                "--cluster, or name another FILE",
                Exit.WRONG,
            )


def _stored(here: Path) -> Path:
    """The copy of the only cluster's last deploy, as there is no file here."""
    known = _with(CLUSTERS, STORED_SPEC)
    if not known:
        return here
    if len(known) > 1:
        names = ", ".join(path.name for path in known)
        raise Complaint(
            f"{here}: there is no such file; name a FILE, or a cluster with --cluster: {names}",
            Exit.WRONG,
        )
    stored = known[0] / STORED_SPEC
    output.note(f"there is no {here}; taking {stored}")
    return stored
