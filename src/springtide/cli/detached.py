"""A daemon in a session of its own, started by `tide deploy`, `tide start` and `tide destroy`."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from springtide.cli.check import read_spec
from springtide.cli.client import DISK_FULL, Away, Client
from springtide.cli.endings import Complaint, cannot_write
from springtide.cli.progress import looks

START_S = 60.0
STOP_S = 30.0
LAST_LINES = 10


class NotStarted(Complaint):
    """The daemon ended before it answered, and said why."""


def answers(daemon: Client) -> bool:
    """Whether somebody serves the state directory; a question that costs nothing."""
    try:
        daemon.get("/plan")
    except Away:
        return False
    return True


def start(daemon: Client, file: Path) -> None:
    """Start a daemon; returns when it answers, and complains with its last words if it dies."""
    out = daemon.layout.log / "daemon.out"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        said = out.stat().st_size if out.exists() else 0
        fell = _begin(file, out, said)
    except OSError as error:
        raise cannot_write(f"the log {out}", error) from error
    for _ in looks(START_S):
        if answers(daemon):
            return
        if fell():
            raise _not_started(out, said)
    raise Complaint(
        f"the daemon does not answer {START_S:.0f} s after its start; see {daemon.layout.log}"
    )


def _begin(file: Path, out: Path, said: int) -> Callable[[], bool]:
    """Start it where the file wants it; answers how to see that it did not come up."""
    from springtide.cli import controlled

    spec = read_spec(file)
    if spec.control == "here":
        process = _spawn(file, out)
        return lambda: process.poll() is not None
    try:
        controlled.have(spec)
    except Complaint as complaint:
        words = _words(out, said)
        raise Complaint(f"{complaint}: {words}" if words else str(complaint)) from None
    return controlled.fallen(spec, out, said)


def _spawn(file: Path, out: Path) -> "subprocess.Popen[bytes]":
    with out.open("ab") as stream:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "springtide.cli.main", "daemon", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            cwd="/",
            start_new_session=True,
        )


def _not_started(out: Path, said: int) -> Complaint:
    """With its last words; without any, its log is all that there is to look at."""
    if words := _words(out, said):
        return NotStarted(f"the daemon did not start: {words}")
    return Complaint(f"the daemon did not start: it ended without a word; see {out.parent}")


def _words(out: Path, said: int) -> str:
    if not out.exists():
        return ""
    with out.open("rb") as stream:
        stream.seek(said)
        lines = stream.read().decode(errors="replace").strip().splitlines()
    words = "\n".join(line.removeprefix("tide: ") for line in lines[-LAST_LINES:])
    if DISK_FULL in words:
        words = f"{words}; make room in {out.parent.parent}"
    return words


def stop(daemon: Client) -> bool:
    """End whoever serves now; whether it did in time."""
    with _handle(daemon.daemon_pid()) as handle:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        return _ended(handle, STOP_S)


@contextmanager
def watched(daemon: Client) -> Iterator[Callable[[float], bool]]:
    """How to wait, so many seconds at most, for the end of whoever serves now."""
    with _handle(daemon.daemon_pid()) as handle:
        yield partial(_ended, handle)


@contextmanager
def _handle(pid: int) -> Iterator[int]:
    """A descriptor that stays this process whatever becomes of its pid."""
    handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        os.close(handle)


def _ended(handle: int, limit_s: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(limit_s * 1000))
