"""Programs of tests that have a process space of their own, as the machine of a node has."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.e2e.real import LIMIT_S, until

SPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def cut(process: "subprocess.Popen[Any]") -> None:
    """Have all end at once that `unshare --fork` has started, and wait until it has.

    Its first process is killed, which ends only after all others of its space, and unshare only
    after that. With unshare killed instead, a slurmd might keep its port for a while, and the next
    one of that node would not start.
    """
    until(lambda: process.poll() is not None or _first(process))
    for pid in _first(process):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(timeout=LIMIT_S)


def _first(process: "subprocess.Popen[Any]") -> list[int]:
    """The child of unshare; none before it has one, or when it has ended."""
    if process.poll() is not None:
        return []
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(pid) for pid in listed.split()]
