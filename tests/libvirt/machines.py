"""One virtual machine of a test, from an image: its disk, its seed and its definition."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4
from xml.sax.saxutils import escape

from tests.libvirt.daemon import NETWORK
from tests.libvirt.kept import Image


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the files of a machine are."""

    name: str
    directory: Path
    image: Image
    memory_mb: int = 256

    @property
    def disk(self) -> Path:
        return self.directory / f"{self.name}.qcow2"

    @property
    def seed(self) -> Path:
        return self.directory / f"{self.name}.iso"

    @property
    def console(self) -> Path:
        return self.directory / f"{self.name}.console"

    def said(self) -> str:
        """What it has written to its serial console."""
        return self.console.read_text(errors="replace") if self.console.exists() else ""

    def remove(self) -> None:
        for path in (self.disk, self.seed, self.console):
            path.unlink(missing_ok=True)


def prepare(machine: Machine, user_data: str) -> str:
    """Make its disk and its seed; answers its definition."""
    clone(machine.image.disk, machine.disk)
    meta_data = f"instance-id: {uuid4()}\nlocal-hostname: {machine.name}\n"
    write_seed(machine.seed, {"meta-data": meta_data, "user-data": user_data})
    return render_domain(machine)


def clone(image: Path, disk: Path) -> None:
    backing = ["-b", str(image), "-F", "qcow2"]
    command = ["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(disk)]
    subprocess.run(command, check=True)


def write_seed(path: Path, files: dict[str, str]) -> None:
    """What cloud-init calls NoCloud; it wants both meta-data and user-data."""
    place = path.with_suffix(".seed")
    place.mkdir()
    for name, text in files.items():
        (place / name).write_text(text)
    command = ["genisoimage", "-quiet", "-V", "cidata", "-J", "-r", "-o", str(path), str(place)]
    subprocess.run(command, check=True)
    for name in files:
        (place / name).unlink()
    place.rmdir()


def render_domain(machine: Machine) -> str:
    """Software emulation, with a small cache of translated code: many machines share the memory."""
    return f"""\
<domain type='qemu'>
  <name>{escape(machine.name)}</name>
  <memory unit='MiB'>{machine.memory_mb}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <kernel>{escape(str(machine.image.kernel))}</kernel>
    <initrd>{escape(str(machine.image.initrd))}</initrd>
    <cmdline>{escape(machine.image.cmdline)}</cmdline>
  </os>
  <features><acpi/><tcg><tb-cache unit='MiB'>32</tb-cache></tcg></features>
  <cpu mode='custom' match='exact'><model fallback='forbid'>qemu64</model></cpu>
  <on_reboot>restart</on_reboot>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='unsafe'/>
      <source file='{escape(str(machine.disk))}'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='{escape(str(machine.seed))}'/>
      <target dev='vdb' bus='virtio'/>
      <readonly/>
    </disk>
    <interface type='network'><source network='{NETWORK}'/><model type='virtio'/></interface>
    <serial type='file'><source path='{escape(str(machine.console))}'/></serial>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
    <memballoon model='none'/>
    <controller type='usb' model='none'/>
  </devices>
</domain>
"""
