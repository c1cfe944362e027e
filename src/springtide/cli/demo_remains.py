"""What a cluster of containers can leave on a machine, looked for independently of its record.

`tide demo` looks after it has removed its cluster, and before it makes one, for what a demo left
that was killed.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from springtide.batch.slurm_service import read
from springtide.providers.containers import links

PROC = Path("/proc")


def remains(state: Path, cluster: str, nodes: Iterable[str]) -> list[str]:
    """Everything that still knows the cluster, one line each."""
    mark = f"{state}/"
    names = [links.bridge_name(cluster), *(links.port_name(cluster, node) for node in nodes)]
    return [
        *_processes(mark),
        *_mounts(mark),
        *(f"link {name}" for name in names if links.exists(name)),
        *([f"directory {state}"] if state.exists() else []),
    ]


def _processes(mark: str) -> Iterator[str]:
    for pid in _pids():
        words = read(PROC / str(pid) / "cmdline").split("\0")
        if any(mark in word for word in words):
            yield f"process {pid}: {' '.join(words).strip()}"


def _mounts(mark: str) -> Iterator[str]:
    """Also those of other mount namespaces, each of which some process is in."""
    seen = set()
    for pid in _pids():
        for line in read(PROC / str(pid) / "mountinfo").splitlines():
            if mark in line and line not in seen:
                seen.add(line)
                yield f"mount {line.split()[4]}, seen by process {pid}"


def _pids() -> list[int]:
    found = (int(path.name) for path in PROC.iterdir() if path.name.isdecimal())
    return sorted(pid for pid in found if pid != os.getpid())


# --- demos that were killed --------------------------------------------------------------


def hold(directory: Path) -> int:
    """Show, as long as this process keeps the descriptor, that somebody minds the directory."""
    descriptor = _open(directory)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def abandoned(directories: Iterable[Path]) -> list[Path]:
    """Those of the directories that are ours and that nobody holds."""
    return [each for each in directories if _is_ours(each) and not _is_held(each)]


def _is_ours(directory: Path) -> bool:
    """Others can make directories there too, and we shall not advise to work with those."""
    with suppress(OSError):
        return directory.lstat().st_uid == os.geteuid()
    return False


def _is_held(directory: Path) -> bool:
    """One that cannot be opened went meanwhile, or is no directory; neither is to be removed."""
    try:
        descriptor = _open(directory)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _open(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
