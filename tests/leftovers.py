"""What a test run that was killed has left on this machine: found by the next one, and removed.

Nothing is touched of a directory in which a test lives (`owned`) or a demo, which holds a lock on
its directory itself; nor the process that looks and those that it comes from.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PLACES = Path("/var/tmp")
OLD_S = 3600.0
"""Directories that nobody says he owns are left to their test for so long."""
PATIENCE_S = 5.0
"""For processes to end that are asked to."""
END_S = 30.0
"""For those that are killed."""
SITES = ("site.json", *(f"{'*/' * depth}containers/site.json" for depth in range(5)))
"""Where container clusters, and networks of tests, say which bridge is theirs."""
WHEREABOUTS = (b"PWD=", b"OLDPWD=", b"_=")
"""What a shell tells of where it has been, to all that is ever started from it."""


@contextmanager
def owned(root: Path) -> Iterator[None]:
    """Have others see that a test lives here, for the length of the block or of the process.

    The file gets its name when it is locked: one that is free would be of a test that is over, and
    somebody else's run may be clearing up just then.
    """
    fresh = root / ".owned"
    descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    fresh.rename(root / "owned")
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def place() -> Iterator[Path]:
    """A directory that everybody can enter, owned, and removed unless its test has done so."""
    root = Path(tempfile.mkdtemp(prefix="tide-", dir=PLACES))
    root.chmod(0o755)
    with owned(root):
        try:
            yield root
        finally:
            _clear(root)


def _clear(root: Path) -> None:
    """Whoever ends late may still write there, or remove what it wrote."""
    end = time.monotonic() + END_S
    while root.exists():
        try:
            shutil.rmtree(root)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def remove_leftovers() -> None:
    """Clusters whose test is over: their processes, mounts, links and directories."""
    for root in filter(Path.is_dir, PLACES.glob("tide-*")):
        claim = _claim(root)
        if claim is not None:
            try:
                _remove(root)
            finally:
                os.close(claim)


def _claim(root: Path) -> int | None:
    """The lock of whoever lives here, held so that nobody else clears up as well; None if it is
    not to be had, or nobody ever had it and the directory is not old yet."""
    lock = root / "owned"
    try:
        young = not lock.exists() and time.time() - root.stat().st_mtime <= OLD_S
        descriptor = os.open(lock if lock.exists() else root, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        young = True
    if young:
        os.close(descriptor)
        return None
    return descriptor


def _remove(root: Path) -> None:
    if not any(_belongs(pid, root) for pid in _lineage()):
        sweep(root)


def sweep(root: Path) -> None:
    """A directory stays for the next run if something in it does not go: what is mounted there
    may be somebody else's files."""
    if _end_processes(root) and _unmount(root):
        for bridge in _bridges(root) - _bridges_of_others(root):
            subprocess.run(["ip", "link", "delete", bridge], check=False, capture_output=True)
        shutil.rmtree(root, ignore_errors=True)


# --- processes -----------------------------------------------------------------------------


def _end_processes(root: Path) -> bool:
    """Those that begin meanwhile too. First processes of containers do not listen to SIGTERM."""
    for number, limit_s in ((signal.SIGTERM, PATIENCE_S), (signal.SIGKILL, END_S)):
        end = time.monotonic() + limit_s
        while (found := _processes(root)) and time.monotonic() < end:
            for pid in found:
                _signal(pid, root, number)
            time.sleep(0.1)
    return not _processes(root)


def _processes(root: Path) -> list[int]:
    pids = {int(path.name) for path in Path("/proc").glob("[0-9]*")}
    return sorted(pid for pid in pids - _lineage() if _belongs(pid, root))


def _signal(pid: int, root: Path, number: signal.Signals) -> None:
    """Its pid may be another's by now: what is looked at again is what the descriptor means."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            if _belongs(pid, root):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _belongs(pid: int, root: Path) -> bool:
    """Whether it is in the directory, or was told of it by arguments or variables."""
    proc = Path("/proc", str(pid))
    try:
        told = (proc / "environ").read_bytes().split(b"\0")
        words = [(proc / "cmdline").read_bytes()]
        words += [bytes((proc / name).readlink()) for name in ("cwd", "root")]
    except OSError:  # it has ended, or is another user's
        return False
    words += [one for one in told if not one.startswith(WHEREABOUTS)]
    name = re.compile(rb"(?<![\w.-])" + re.escape(bytes(root)) + rb"(?![\w.-])")
    return any(name.search(word) for word in words)


def _lineage() -> set[int]:
    """This process and those that it comes from."""
    found, pid = set[int](), os.getpid()
    with suppress(OSError):  # one has ended just now
        while pid:
            found.add(pid)
            stat = Path(f"/proc/{pid}/stat").read_text()
            pid = int(stat.rpartition(")")[2].split()[1])
    return found


# --- mounts, links -------------------------------------------------------------------------


def _unmount(root: Path) -> bool:
    for point in reversed(_mounts(root)):
        subprocess.run(["umount", point], check=False, capture_output=True)
    return not _mounts(root)


def _mounts(root: Path) -> list[Path]:
    """Oldest first; the kernel writes blanks in octal."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(line.split()[4].encode().decode("unicode_escape")) for line in lines]
    return [point for point in points if point.is_relative_to(root)]


def _bridges(root: Path) -> set[str]:
    """Ports on them go with the processes of nodes."""
    found = set()
    with suppress(FileNotFoundError):  # another's test may end while we look
        for site in (path for pattern in SITES for path in root.glob(pattern)):
            with suppress(OSError, ValueError, KeyError):
                found.add(json.loads(site.read_text())["bridge"])
    return found


def _bridges_of_others(root: Path) -> set[str]:
    """Clusters of one name have bridges of one name, and one may be made again meanwhile."""
    others = (other for other in PLACES.glob("tide-*") if other != root)
    return {bridge for other in others for bridge in _bridges(other)}
