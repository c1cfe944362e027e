"""What a test run that was killed has left on this machine: found by the next one, and removed."""

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLACES = Path("/var/tmp")
OLD_S = 3600.0
"""Directories that nobody says he owns are left to their test for so long."""


@contextmanager
def owned(root: Path) -> Iterator[None]:
    """Have others see that a test lives here, for the length of the block or of the process."""
    descriptor = os.open(root / "owned", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def remove_leftovers() -> None:
    """Clusters whose test is over: their links and their directories."""
    for root in PLACES.glob("tide-*"):
        if _is_left(root):
            _remove(root)


def _is_left(root: Path) -> bool:
    try:
        descriptor = os.open(root / "owned", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return root.exists() and time.time() - root.stat().st_mtime > OLD_S
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _remove(root: Path) -> None:
    site = root / "s" / "containers" / "site.json"
    if site.exists():
        bridge = json.loads(site.read_text())["bridge"]
        subprocess.run(["ip", "link", "delete", bridge], check=False, capture_output=True)
    shutil.rmtree(root, ignore_errors=True)
