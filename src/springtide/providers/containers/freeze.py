"""Having all processes of a node stand still while its files are copied.

Otherwise a file could change under the copy, and root of the node could lead it elsewhere.
"""

import fcntl
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from springtide.ports import Rejected, Transient
from springtide.providers.containers.instances import (
    Process,
    is_alive,
    open_process,
    parse_process,
    parse_stat,
)

LIMIT_S = 10.0
"""Whoever forks for longer than this is not to be stopped."""
PAUSE_S = 0.002


def notes(directory: Path) -> Path:
    """A file for each node that stands still, locked by whoever has it do so."""
    return directory / "frozen"


@contextmanager
def frozen(process: Process, note: Path) -> Iterator[None]:
    """For the length of the block; what a killed daemon leaves stopped `thaw_left` finds."""
    descriptor = open_process(process)
    if descriptor is None:
        raise Rejected("it runs no more")
    try:
        with _noted(note, process), _stopped(_namespace(process.pid)):
            yield
    finally:
        os.close(descriptor)


@contextmanager
def _noted(note: Path, process: Process) -> Iterator[None]:
    """It gets its name when it is written and locked: one that is free is of a daemon that died."""
    note.parent.mkdir(mode=0o700, exist_ok=True)
    fresh = note.with_name(f".{note.name}")
    with fresh.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{process.boot} {process.pid} started={process.started}\n")
        file.flush()
        fresh.rename(note)
        try:
            yield
        finally:
            note.unlink(missing_ok=True)


@contextmanager
def _stopped(namespace: str) -> Iterator[None]:
    """What stood still before, such as a job that Slurm suspended, does so after as well."""
    told = set[int]()
    try:
        _stop_all(namespace, told)
        yield
    finally:
        for pid in told.intersection(_members(namespace)):
            _send(pid, signal.SIGCONT)


def thaw_left(directory: Path) -> None:
    """Nodes that a killed daemon left stopped go on: all of it, for nobody knows who was."""
    with suppress(FileNotFoundError):
        for note in notes(directory).glob("[!.]*"):
            with suppress(FileNotFoundError, BlockingIOError):
                _thaw(note)


def _thaw(note: Path) -> None:
    with note.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process = parse_process(file.read())
        if process is not None and is_alive(process):
            with suppress(Rejected):
                for pid in _members(_namespace(process.pid)):
                    _send(pid, signal.SIGCONT)
        note.unlink()


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except OSError as error:
        raise Rejected("it runs no more") from error


def _stop_all(namespace: str, told: set[int]) -> None:
    """Until none is found that moves: those that run may start others meanwhile."""
    end = time.monotonic() + LIMIT_S
    while moving := [pid for pid in _members(namespace) if not _is_still(pid, pid in told)]:
        if time.monotonic() > end:
            raise Transient("its processes did not stand still")
        for pid in moving:
            told.add(pid)
            _send(pid, signal.SIGSTOP)
        time.sleep(PAUSE_S)


def _members(namespace: str) -> set[int]:
    """Its processes, and what those have started in namespaces of their own."""
    found, children = list[int](), defaultdict[int, list[int]](list)
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pid = int(path.name)
            children[_parent((path / "stat").read_text(errors="replace"))].append(pid)
            if os.readlink(path / "ns" / "pid") == namespace:  # noqa: PTH115
                found.append(pid)
    members = set[int]()
    while found:
        if (pid := found.pop()) not in members:
            members.add(pid)
            found += children[pid]
    return members


def _parent(stat: str) -> int:
    """The name of a process may hold anything, so look behind it."""
    return int(stat.rpartition(")")[2].split()[1])


def _is_still(pid: int, told: bool) -> bool:
    """Stopped or dead; or it waits in the kernel, perhaps for a child that is stopped itself, and
    will go no further when that is over."""
    try:
        state = parse_stat(Path(f"/proc/{pid}/stat").read_text(errors="replace"))[1]
    except OSError:
        return True
    return state in "TtZX" or (told and state == "D")


def _send(pid: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, what)
