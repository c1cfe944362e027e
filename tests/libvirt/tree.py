"""The files of a small node, gathered from the packages of this machine. Called by `image`."""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.libvirt.kernel import Unpacked

NODE = Path(__file__).with_name("node")
PACKAGES = ("busybox-static", "libc6", "munge", "slurm-wlm-basic-plugins", "slurmd", "bash", "dash")
PROGRAMS = (
    "/bin/bash", "/bin/dash", "/usr/bin/getent", "/usr/bin/munge", "/usr/bin/scontrol",
    "/usr/bin/setpriv", "/usr/bin/srun", "/usr/bin/unmunge", "/usr/sbin/munged",
    "/usr/sbin/slurmd", "/usr/sbin/slurmstepd",
)  # fmt: skip
PLUGINS = Path("/usr/lib/x86_64-linux-gnu/slurm-wlm")
UNUSED = re.compile(
    "burst_buffer|cray|dbv|hypercube|knl|lua|mysql|nonstop|openapi|pmi|rest_auth|spank|torus"
)
"""Plugins that no node needs; some would bring libraries with them."""
USERS = ("root", "munge", "slurm", "nobody")
FIRST_MODULES = ("virtio_pci", "virtio_blk")
MODULES = (
    "virtio_net", "virtio_rng", "isofs", "button", "evdev",
    "ata_piix", "sr_mod", "virtio_scsi",
)  # fmt: skip
DIRECTORIES = (
    "bin", "dev", "etc/acpi/PWRF", "etc/munge", "etc/slurm", "home", "lib64", "mnt", "proc",
    "root", "run", "sbin", "sys", "tmp", "usr/bin", "usr/sbin", "var/lib/cloud/scripts/per-boot",
    "var/lib/munge", "var/log/munge", "var/log/slurm", "var/spool/slurmd", "var/tmp",
)  # fmt: skip


def versions() -> list[str]:
    command = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    return sorted(shown.stdout.splitlines())


def write_initrd(root: Path, kernel: Unpacked, to: Path) -> None:
    for name in ("bin", "dev", "modules", "root"):
        (root / name).mkdir(parents=True)
    _plant_busybox(root, ["sh", "insmod", "mount", "sleep", "switch_root"])
    shutil.copy(NODE / "initrd-init", root / "init")
    paths = [kernel.modules / path for path in kernel.with_needed(FIRST_MODULES)]
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


def plant(root: Path, kernel: Unpacked) -> None:
    """The root file system."""
    for name in DIRECTORIES:
        (root / name).mkdir(parents=True)
    _plant_busybox(root, _applets())
    plugins = [path for path in PLUGINS.glob("*.so") if not UNUSED.search(path.name)]
    for path in with_libraries([*map(Path, PROGRAMS), *plugins]):
        _plant_file(root, path)
    _plant_modules(root, kernel)
    _plant_settings(root)
    _plant_users(root)


def _applets() -> list[str]:
    """But those that come as programs of their own, which can more."""
    listed = subprocess.run(["busybox", "--list"], check=True, capture_output=True, text=True)
    better = {"sh", *(Path(program).name for program in PROGRAMS)}
    return [name for name in listed.stdout.split() if name not in better]


def _plant_busybox(root: Path, names: Iterable[str]) -> None:
    shutil.copy("/bin/busybox", root / "bin" / "busybox")
    for name in names:
        link = root / "bin" / name
        if not link.exists():
            link.symlink_to("busybox")


def with_libraries(files: Iterable[Path]) -> list[Path]:
    """The files and all that they load, as the dynamic linker names it."""
    paths = [*files]
    shown = subprocess.run(["ldd", *map(str, paths)], check=True, capture_output=True, text=True)
    libraries = re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", shown.stdout, re.MULTILINE)
    return sorted({*paths, *map(Path, libraries)})


def _plant_file(root: Path, path: Path) -> None:
    """A link of the name leads nowhere in the node: what it leads to is put in its place."""
    to = root / path.relative_to("/")
    to.parent.mkdir(parents=True, exist_ok=True)
    to.unlink(missing_ok=True)
    shutil.copy(path, to)


def _plant_modules(root: Path, kernel: Unpacked) -> None:
    for path in kernel.with_needed(MODULES):
        to = root / "lib" / "modules" / kernel.release / path
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kernel.modules / path, to)
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(kernel.modules / name, root / "lib" / "modules" / kernel.release)
    subprocess.run(["/usr/sbin/depmod", "-b", str(root), kernel.release], check=True)


def _plant_settings(root: Path) -> None:
    for name in ("rc", "first", "dhcp", "inittab"):
        shutil.copy(NODE / name, root / "etc" / name)
    shutil.copy(NODE / "power", root / "etc" / "acpi" / "PWRF" / "00000080")
    # That of busybox takes its own programs for those of the same name on PATH.
    (root / "bin" / "sh").symlink_to("dash")
    (root / "sbin" / "init").symlink_to("/bin/busybox")
    (root / "sbin" / "modprobe").symlink_to("/bin/busybox")
    (root / "usr" / "bin" / "env").symlink_to("/bin/busybox")
    names = ("passwd", "group", "shadow", "hosts")
    (root / "etc" / "nsswitch.conf").write_text("".join(f"{name}: files\n" for name in names))


def _plant_users(root: Path) -> None:
    """With the ids that they have on this machine, where slurmctld runs."""
    users = [pwd.getpwnam(name) for name in USERS]
    lines = [f"{u.pw_name}:x:{u.pw_uid}:{u.pw_gid}::{u.pw_dir}:/bin/sh\n" for u in users]
    (root / "etc" / "passwd").write_text("".join(lines))
    groups = [f"{u.pw_name}:x:{u.pw_gid}:\n" for u in users]
    (root / "etc" / "group").write_text("".join(groups))
    munge = pwd.getpwnam("munge")
    for name in ("etc/munge", "var/lib/munge", "var/log/munge"):
        os.chown(root / name, munge.pw_uid, munge.pw_gid)
        (root / name).chmod(0o700)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
