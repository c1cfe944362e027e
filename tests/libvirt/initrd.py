"""The initial ram disk of virtual machines: drivers of the disk, and on to it. Called by images."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.libvirt.kernel import Unpacked

INIT = Path(__file__).with_name("node") / "initrd-init"
MODULES = ("virtio_pci", "virtio_blk")


def write(root: Path, kernel: Unpacked, to: Path) -> None:
    for name in ("bin", "dev", "modules", "root"):
        (root / name).mkdir(parents=True)
    plant_busybox(root, ["sh", "insmod", "mount", "sleep", "switch_root"])
    shutil.copy(INIT, root / "init")
    paths = [kernel.modules / path for path in kernel.with_needed(MODULES)]
    for path in paths:
        shutil.copy(path, root / "modules")
    (root / "modules" / "order").write_text("".join(f"{path.name}\n" for path in paths))
    _pack(root, to)


def _pack(root: Path, to: Path) -> None:
    """Not compressed: it is small, and a machine without KVM is slow to unpack."""
    names = "".join(f"{path.relative_to(root)}\n" for path in sorted(root.rglob("*")))
    with to.open("wb") as out:
        command = ["cpio", "--quiet", "--create", "--format=newc", "--owner=0:0"]
        subprocess.run(command, check=True, cwd=root, input=names.encode(), stdout=out)


def plant_busybox(root: Path, names: Iterable[str]) -> None:
    shutil.copy("/bin/busybox", root / "bin" / "busybox")
    for name in names:
        link = root / "bin" / name
        if not link.exists():
            link.symlink_to("busybox")
