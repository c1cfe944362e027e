"""What a daemon does that runs in a control container. `compose` calls it for every file."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from springtide.ports import Unavailable

VARIABLE = "TIDE_CONTROL"
"""In its environment, the daemon's only sign that it is in a container."""
MOUNT_S = 30.0


def is_inside() -> bool:
    return os.environ.get(VARIABLE) == "container"


def share(paths: Iterable[Path]) -> None:
    """Let nodes write directories that the file names since the container was made."""
    if not is_inside():
        return
    for path in paths:
        if path.is_dir() and not os.access(path, os.W_OK):
            _mount("--rbind", str(path), str(path))
            _mount("-o", "remount,bind,rw", str(path))


def _mount(*arguments: str) -> None:
    done = subprocess.run(
        ["mount", "-n", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MOUNT_S,
        check=False,
    )
    if done.returncode:
        raise Unavailable(f"cannot share {arguments[-1]} with nodes: {done.stderr.strip()}")
