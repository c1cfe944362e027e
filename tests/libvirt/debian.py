"""A whole Debian for virtual machines: systemd, cloud-init, sshd, an NFS client, munge and slurmd.

`debian_image()` answers the image, built if need be: less than a minute with mmdebstrap, packages
from where this machine has its own. The initial ram disk is the small node's.

It is what a site would have as an image of its nodes: there is no key in it, no user, no name, and
neither munged nor slurmd starts by itself. What takes long at boot and is of no use to a test is
switched off: timers, consoles, and parts of cloud-init.
"""

import shutil
import subprocess
from pathlib import Path
from platform import freedesktop_os_release

from tests.libvirt import initrd, kernel
from tests.libvirt.kept import Image, digest, kept, write_disk

CMDLINE = (
    "console=ttyS0 quiet loglevel=3 mitigations=off tsc=reliable no_timer_check panic=-1 "
    "net.ifnames=0 apparmor=0 selinux=0 audit=0 systemd.show_status=0 systemd.gpt_auto=0"
)
SIZE_MB = 1536
RELEASE = freedesktop_os_release()["VERSION_CODENAME"]
"""This machine's: slurmctld takes slurmds that are not much older, and none that are newer."""
PACKAGES = (
    "cloud-init", "dbus", "iproute2", "kmod", "munge", "nfs-common", "openssh-server", "procps",
    "python3", "slurmd", "systemd-sysv", "udev",
)  # fmt: skip
LEFT_OUT = ("doc", "info", "locale", "man")
MASKED = (
    "apt-daily-upgrade.timer", "apt-daily.timer", "dpkg-db-backup.timer", "e2scrub_all.timer",
    "e2scrub_reap.service", "fstrim.timer", "systemd-tmpfiles-clean.timer",
    "getty@tty1.service", "serial-getty@ttyS0.service", "networking.service", "rpcbind.service",
    "rpcbind.socket", "rpc-statd-notify.service", "nfs-blkmap.service",
    "systemd-pstore.service", "systemd-firstboot.service", "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service", "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service", "cloud-init-hotplugd.socket",
    "dev-hugepages.mount", "dev-mqueue.mount", "proc-sys-fs-binfmt_misc.automount",
    "run-rpc_pipefs.mount", "sys-fs-fuse-connections.mount", "sys-kernel-config.mount",
    "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "systemd-binfmt.service",
    "systemd-hostnamed.service", "systemd-logind.service", "modprobe@configfs.service",
    "modprobe@dm_mod.service", "modprobe@drm.service", "modprobe@efi_pstore.service",
    "modprobe@fuse.service", "modprobe@loop.service",
)  # fmt: skip
OFF = ("munge.service", "slurmd.service")
"""Started by who joins a cluster."""
NODE = Path(__file__).with_name("debian_node")


def debian_image() -> Image:
    """The image of this checkout and of the kernel that Debian has now."""
    package = kernel.newest()
    here = Path(__file__).parent
    sources = [here / name for name in ("debian.py", "initrd.py", "kernel.py", "kept.py")]
    files = [*sources, initrd.INIT, *sorted(NODE.iterdir())]
    key = digest(files, [RELEASE, package.name, package.version])
    return kept(f"debian-{key}", CMDLINE, lambda work, new: _build(package, work, new))


def _build(package: kernel.Package, work: Path, new: Image) -> None:
    unpacked = kernel.unpack(package, work)
    shutil.copy(unpacked.image, new.kernel)
    initrd.write(work / "initrd", unpacked, new.initrd)
    root = work / "root"
    _install(work, root)
    _plant_modules(root, unpacked)
    _settle(root)
    write_disk(root, SIZE_MB, new.disk)


def _install(work: Path, root: Path) -> None:
    sources = work / "sources.list"
    sources.write_text(_sources())
    unwanted = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--format=directory"]
    command += ["--dpkgopt=force-unsafe-io", *unwanted, f"--include={','.join(PACKAGES)}"]
    subprocess.run([*command, RELEASE, str(root), str(sources)], check=True)


def _sources() -> str:
    """Where this machine has its packages from; `kernel.newest` has seen to its lists."""
    form = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    command = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = {line for line in shown.splitlines() if f" {RELEASE}" in line}
    assert lines, f"apt knows no archive with {RELEASE}: run `apt-get update`"
    return "".join(f"{line}\n" for line in sorted(lines))


def _plant_modules(root: Path, unpacked: kernel.Unpacked) -> None:
    to = root / "usr" / "lib" / "modules" / unpacked.release
    shutil.copytree(unpacked.modules, to, symlinks=True)


def _settle(root: Path) -> None:
    """Nothing of the machine that built it, and nothing of a cluster."""
    units = root / "etc" / "systemd" / "system"
    # A newer cloud-init runs its stages in one process, which waits for each to be asked for.
    staged = (root / "usr/lib/systemd/system/cloud-init-main.service").exists()
    for name in MASKED if staged else (*MASKED, "cloud-config.service"):
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")
    for name in OFF:
        (units / "multi-user.target.wants" / name).unlink()
    presets = root / "etc" / "systemd" / "system-preset"
    presets.mkdir()
    shutil.copy(NODE / "presets", presets / "00-node.preset")
    _enable(root, "systemd-networkd.service", "multi-user.target")
    _enable(root, "systemd-networkd-wait-online.service", "network-online.target")
    shutil.copy(NODE / "cloud.cfg", root / "etc" / "cloud" / "cloud.cfg")
    for path in [*root.glob("etc/ssh/ssh_host_*"), root / "etc" / "munge" / "munge.key"]:
        path.unlink(missing_ok=True)
    (root / "etc" / "machine-id").write_text("")
    (root / "etc" / "hostname").write_text("localhost\n")
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n")


def _enable(root: Path, unit: str, target: str) -> None:
    wants = root / "etc" / "systemd" / "system" / f"{target}.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / unit).symlink_to(f"/lib/systemd/system/{unit}")
