"""A small node for virtual machines: Debian's cloud kernel, busybox, munged and slurmd.

`node_image()` answers the image, built if need be and kept outside the checkout. Its disk is a
whole ext4 without partitions: a machine starts `kernel` and `initrd` directly (with `CMDLINE`) and
has a clone of `disk` as its first virtio disk, so what the node writes is on a disk of its own.

The node does what a machine with cloud-init does, see `node/rc` and `node/first`: it takes its
name from a seed labelled `cidata` (virtio disk, IDE or virtio-scsi CD), its address from
network-config or by DHCP, and runs the user data once per instance id, as root, if it begins
with `#!`. Scripts below /var/lib/cloud/scripts/per-boot run at every boot. All that is said goes
to the serial console. Controllers of cgroup v1 are mounted, /run/munge is there; no daemon is
started and there is no munge key: that is up to user data.

User data that has it join a Slurm writes the control host into /etc/hosts and the key into
/etc/munge/munge.key (owner munge, mode 400), starts munged as munge, and then
`slurmd --conf-server ADDRESS:PORT -b -N NAME`. That asks for the configuration over munge's
usual socket; if slurm.conf names another, it must lead there.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.libvirt import kernel, tree

CMDLINE = "console=ttyS0 quiet loglevel=3 mitigations=off tsc=reliable no_timer_check panic=-1"
SIZE_MB = 512
NAMES = ("kernel", "initrd", "disk.qcow2")


@dataclass(frozen=True, slots=True)
class Image:
    directory: Path

    @property
    def kernel(self) -> Path:
        return self.directory / "kernel"

    @property
    def initrd(self) -> Path:
        return self.directory / "initrd"

    @property
    def disk(self) -> Path:
        return self.directory / "disk.qcow2"


def node_image() -> Image:
    """The image of this checkout and of the packages of this machine."""
    package = kernel.newest()
    home = _home() / f"vm-{_key(package)}"
    with _locked(home.with_suffix(".lock")):
        if not _is_whole(home):
            _build(home, package)
    return Image(home)


def _home() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "springtide")


def _key(package: kernel.Package) -> str:
    """Changes with everything that the image is made from."""
    here = Path(__file__).parent
    sources = [here / "image.py", here / "kernel.py", here / "tree.py"]
    seen = hashlib.sha256()
    for path in [*sources, *sorted((here / "node").iterdir())]:
        seen.update(path.name.encode() + b"\0" + path.read_bytes())
    seen.update(json.dumps([package.name, package.version, tree.versions()]).encode())
    return seen.hexdigest()[:16]


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
    return {name: hashlib.sha256((home / name).read_bytes()).hexdigest() for name in NAMES}


def _build(home: Path, package: kernel.Package) -> None:
    """Beside its place, and moved there when it is whole."""
    shutil.rmtree(home, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=home.parent) as name:
        work = Path(name)
        new = work / "image"
        new.mkdir()
        unpacked = kernel.unpack(package, work)
        shutil.copy(unpacked.image, new / "kernel")
        tree.write_initrd(work / "initrd", unpacked, new / "initrd")
        tree.plant(work / "root", unpacked)
        _write_disk(work, new / "disk.qcow2")
        (new / "sums").write_text(json.dumps(_sums(new)))
        new.rename(home)


def _write_disk(work: Path, disk: Path) -> None:
    raw = work / "disk.raw"
    with raw.open("wb") as file:
        file.truncate(SIZE_MB * 1024 * 1024)
    options = ["-q", "-F", "-t", "ext4", "-J", "size=4", "-L", "node", "-d", str(work / "root")]
    _run("mke2fs", *options, str(raw))
    _run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(disk))


def _run(*command: str) -> None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    subprocess.run(command, check=True, env={**os.environ, "PATH": path})
