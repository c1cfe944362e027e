"""What `tide check` looks at and what a look finds; for `checks` and `file_checks`."""

import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from springtide.batch.slurm_service import PATH
from springtide.cli.client import Client, Json
from springtide.cli.endings import Complaint
from springtide.cli.whereabouts import deploying
from springtide.ports import Check
from springtide.spec import Cluster

__all__ = ["Check", "Look", "Subject", "look", "subject"]

COMMAND_S = 20.0


@dataclass(frozen=True, slots=True)
class Subject:
    """What is looked at."""

    spec: Cluster
    daemon: Client
    status: Json | None
    """The daemon's, if it answers."""
    file: Path | None = None
    """Where the spec is from; None is the copy of the last deploy."""
    offline: bool = False
    """Whether providers are not asked."""

    @property
    def deploy(self) -> str:
        """Advice: the command to deploy or attach it with."""
        file = self.file or self.daemon.stored_spec
        command = "attach" if self.spec.attached else "deploy"
        return f"run `{deploying(self.spec.state, file, command)}`"


Look = Callable[[Subject], Iterable[Check]]


def subject(spec: Cluster, file: Path | None = None) -> Subject:
    daemon = Client(spec.state)
    try:
        return Subject(spec, daemon, daemon.get("/status"), file)
    except Complaint:
        return Subject(spec, daemon, None, file)


def look(looks: Iterable[Look], subject: Subject) -> list[Check]:
    return [check for look in looks for check in look(subject)]


def search_path() -> str:
    return f"{os.environ.get('PATH', '')}:{PATH}"


def run(command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """A command that fails, if it cannot be run at all."""
    try:
        return subprocess.run(
            command,
            env={"PATH": search_path(), "LC_ALL": "C", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
