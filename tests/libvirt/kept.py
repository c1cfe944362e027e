"""Images of virtual machines, built once and kept outside the checkout. Called by those who build.

An image is three files in a directory whose name has a digest of all that it is made from. Its disk
is a whole ext4 without partitions: a machine starts `kernel` and `initrd` directly and has a clone
of `disk` as its first virtio disk, so what the node writes is on a disk of its own.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

KEPT = 2
"""Images of a kind that are kept beside the newest."""
NAMES = ("kernel", "initrd", "disk.qcow2")


@dataclass(frozen=True, slots=True)
class Image:
    directory: Path
    cmdline: str
    """What its kernel is told."""

    @property
    def kernel(self) -> Path:
        return self.directory / "kernel"

    @property
    def initrd(self) -> Path:
        return self.directory / "initrd"

    @property
    def disk(self) -> Path:
        return self.directory / "disk.qcow2"


def kept(name: str, cmdline: str, build: Callable[[Path, Image], None]) -> Image:
    """The image of this name; `build` makes its files, with a directory for its work."""
    image = Image(_home() / name, cmdline)
    with _locked(image.directory.with_suffix(".lock")):
        if not _is_whole(image.directory):
            _build(image, build)
            _forget_old(image.directory)
    return image


def digest(files: Iterable[Path], words: Sequence[object]) -> str:
    """Changes with everything that an image is made from."""
    seen = hashlib.sha256()
    for path in files:
        seen.update(path.name.encode() + b"\0" + path.read_bytes())
    seen.update(json.dumps(words).encode())
    return seen.hexdigest()[:16]


def write_disk(root: Path, size_mb: int, disk: Path) -> None:
    """An ext4 with all that is in a directory."""
    raw = disk.with_suffix(".raw")
    with raw.open("wb") as file:
        file.truncate(size_mb * 1024 * 1024)
    options = ["-q", "-F", "-t", "ext4", "-J", "size=4", "-L", "node", "-d", str(root)]
    _run("mke2fs", *options, str(raw))
    _run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(disk))
    raw.unlink()


def _home() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "springtide")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two runs do not build at once; the second finds what the first has built."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_whole(home: Path) -> bool:
    try:
        told = json.loads((home / "sums").read_text())
        return bool(told == _sums(home))
    except (OSError, ValueError):
        return False


def _sums(home: Path) -> dict[str, str]:
    return {name: _sum(home / name) for name in NAMES}


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _build(image: Image, build: Callable[[Path, Image], None]) -> None:
    """Beside its place, and moved there when it is whole."""
    home = image.directory
    shutil.rmtree(home, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=home.parent) as name:
        work = Path(name)
        new = replace(image, directory=work / "image")
        new.directory.mkdir()
        build(work, new)
        (new.directory / "sums").write_text(json.dumps(_sums(new.directory)))
        new.directory.rename(home)


def _forget_old(home: Path) -> None:
    """Of the same kind; those of other checkouts may be in use."""
    kind = home.name.partition("-")[0]
    old = [path for path in home.parent.glob(f"{kind}-*") if path.is_dir() and path != home]
    for path in sorted(old, key=lambda path: path.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def _run(*command: str) -> None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    subprocess.run(command, check=True, env={**os.environ, "PATH": path})
