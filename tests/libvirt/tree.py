"""The files of a small node, gathered from the packages of this machine. Called by `image`."""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.libvirt.initrd import plant_busybox
from tests.libvirt.kernel import Unpacked

NODE = Path(__file__).with_name("node")
PACKAGES = ("busybox-static", "libc6", "munge", "slurm-wlm-basic-plugins", "slurmd", "bash", "dash")
VERSIONED = Path("/usr/bin/python3").readlink().name
PYTHON = (f"lib{VERSIONED}-minimal", f"lib{VERSIONED}-stdlib", f"{VERSIONED}-minimal")
"""An interpreter with its standard library, for the agent."""
PROGRAMS = (
    "/bin/bash", "/bin/dash", "/usr/bin/getent", "/usr/bin/munge", f"/usr/bin/{VERSIONED}",
    "/usr/bin/scontrol", "/usr/bin/setpriv", "/usr/bin/srun", "/usr/bin/unmunge",
    "/usr/sbin/munged", "/usr/sbin/slurmd", "/usr/sbin/slurmstepd",
)  # fmt: skip
PLUGINS = Path("/usr/lib/x86_64-linux-gnu/slurm-wlm")
UNUSED = re.compile(
    "burst_buffer|cray|dbv|hypercube|knl|lua|mysql|nonstop|openapi|pmix|rest_auth|spank|torus"
)
"""Plugins that no node needs; some would bring libraries with them."""
USERS = ("root", "munge", "slurm", "nobody")
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
    command = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES, *PYTHON]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    return sorted(shown.stdout.splitlines())


def plant(root: Path, kernel: Unpacked) -> None:
    """The root file system."""
    for name in DIRECTORIES:
        (root / name).mkdir(parents=True)
    plant_busybox(root, _applets())
    plugins = [path for path in PLUGINS.glob("*.so") if not UNUSED.search(path.name)]
    library = _library()
    loaded = [path for path in library if path.suffix == ".so"]
    for path in with_libraries([*map(Path, PROGRAMS), *plugins, *loaded]) + library:
        _plant_file(root, path)
    _plant_modules(root, kernel)
    _plant_settings(root)
    _plant_users(root)


def _applets() -> list[str]:
    """But those that come as programs of their own, which can more."""
    listed = subprocess.run(["busybox", "--list"], check=True, capture_output=True, text=True)
    better = {"sh", *(Path(program).name for program in PROGRAMS)}
    return [name for name in listed.stdout.split() if name not in better]


def _library() -> list[Path]:
    """Of Python, and as it is compiled already: a machine without KVM takes long for that."""
    command = ["dpkg-query", "-L", *PYTHON]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    files = [Path(line) for line in listed.splitlines() if line.startswith("/usr/lib/python3")]
    tag = VERSIONED.removeprefix("python").replace(".", "")
    compiled = [path.parent / "__pycache__" / f"{path.stem}.cpython-{tag}.pyc" for path in files]
    return [path for path in [*files, *compiled] if path.is_file()]


def with_libraries(files: Iterable[Path]) -> list[Path]:
    """The files and all that they load, as the dynamic linker names it."""
    paths = [*files]
    shown = subprocess.run(["ldd", *map(str, paths)], check=True, capture_output=True, text=True)
    libraries = re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", shown.stdout, re.MULTILINE)
    return sorted({*paths, *map(Path, libraries)})


def _plant_file(root: Path, path: Path) -> None:
    """A link of the name leads nowhere in the node: what it leads to is put in its place.

    With its time: what Python has compiled is of a file of that time.
    """
    to = root / path.relative_to("/")
    to.parent.mkdir(parents=True, exist_ok=True)
    to.unlink(missing_ok=True)
    shutil.copy2(path, to)


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
    (root / "usr" / "bin" / "python3").symlink_to(VERSIONED)
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
