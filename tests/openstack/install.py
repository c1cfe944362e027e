"""The servers' environment and the state they start from, made once and kept between runs.

Both lie outside the checkout, each named after what it was made from. They are made beside
their place and moved there when whole, so what is there is either whole or was damaged later;
the control plane then fails to start, and throws them away.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
LOCKED = HERE.parents[1] / "requirements" / "openstack.txt"
LOCK = Path("/run/lock/springtide-openstack")
UNUSED_S = 3 * 86400.0
"""What no run has used for so long is removed when something new is made."""


def cache() -> Path:
    chosen = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(chosen) if chosen else Path.home() / ".cache") / "springtide"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def only_one() -> Iterator[None]:
    """One control plane, and one installation, on this machine at a time; others wait.

    Not in the cache: ports and place are the machine's, whosever cache a run uses.
    """
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def environment_path() -> Path:
    return cache() / f"openstack-{_digest([LOCKED])}"


def state_path() -> Path:
    sources = [path for path in HERE.rglob("*.py") if not path.name.startswith("test_")]
    return cache() / f"openstack-state-{_digest([LOCKED, *sorted(sources)])}"


def environment() -> Path:
    return kept(environment_path(), _install)


def kept(path: Path, make: Callable[[Path], None]) -> Path:
    """Make it when it is not there; nobody ever sees half of it."""
    if not path.exists():
        half = path.with_name(f"{path.name}.half")
        shutil.rmtree(half, ignore_errors=True)
        make(half)
        half.rename(path)
        _remove_unused()
    os.utime(path)
    return path


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256(sys.version.encode())
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _install(folder: Path) -> None:
    """Relocatable: it is moved when it is whole."""
    uv = str(Path(sys.executable).parent / "uv")
    python = str(folder / "bin" / "python")
    making = (uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(folder))
    filling = (uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python)
    subprocess.run(making, check=True)
    subprocess.run([*filling, "--require-hashes", "-r", str(LOCKED)], check=True)


def _remove_unused() -> None:
    for path in cache().glob("openstack-*"):
        if time.time() - path.stat().st_mtime > UNUSED_S:
            shutil.rmtree(path, ignore_errors=True)
