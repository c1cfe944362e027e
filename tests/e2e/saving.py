"""What a killed slurmctld finds again when it starts: only what it had written down before."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.e2e.real import until


def await_saved(slurm: Callable[..., object], place: Path, job: str, node: str) -> None:
    """Until all that Slurm knows now is in its files, those of jobs and of nodes.

    It writes within seconds, and only what has changed: so the job and the node get a comment, and
    this is looked for. `slurm` runs a command, `place` is slurmctld's StateSaveLocation.
    """
    mark = f"saved-{time.time_ns()}"
    slurm("scontrol", "update", f"jobid={job}", f"comment={mark}")
    slurm("scontrol", "update", f"nodename={node}", f"comment={mark}")
    until(lambda: all(holds(place / name, mark) for name in ("job_state", "node_state")))


def holds(path: Path, mark: str) -> bool:
    """Such a file is not there for an instant while it is replaced."""
    with suppress(FileNotFoundError):
        return mark.encode() in path.read_bytes()
    return False
