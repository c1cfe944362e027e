"""A small node for virtual machines: Debian's cloud kernel, busybox, Python, munged and slurmd.

`node_image()` answers the image, built if need be and kept outside the checkout (see `kept`). A
machine starts its kernel with `CMDLINE`.

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

import shutil
from pathlib import Path

from tests.libvirt import initrd, kernel, tree
from tests.libvirt.kept import Image, digest, kept, write_disk

CMDLINE = "console=ttyS0 quiet loglevel=3 mitigations=off tsc=reliable no_timer_check panic=-1"
SIZE_MB = 512


def node_image() -> Image:
    """The image of this checkout and of the packages of this machine."""
    package = kernel.newest()
    here = Path(__file__).parent
    sources = [here / name for name in ("image.py", "initrd.py", "kept.py", "kernel.py", "tree.py")]
    files = [*sources, *sorted((here / "node").iterdir())]
    key = digest(files, [package.name, package.version, tree.versions()])
    return kept(f"vm-{key}", CMDLINE, lambda work, new: _build(package, work, new))


def _build(package: kernel.Package, work: Path, new: Image) -> None:
    unpacked = kernel.unpack(package, work)
    shutil.copy(unpacked.image, new.kernel)
    initrd.write(work / "initrd", unpacked, new.initrd)
    tree.plant(work / "root", unpacked)
    write_disk(work / "root", SIZE_MB, new.disk)
