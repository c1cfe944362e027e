"""A real cluster whose nodes are virtual machines: libvirtd, QEMU, slurmctld and our daemon.

Nodes of `vms` join; there is nothing of the cluster in their image. The machine of `racks` is the
site's own and does not: its disk holds the cluster's munge key.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.real import RealCluster, cluster
from tests.libvirt.daemon import NETWORK, Libvirt
from tests.libvirt.kept import Image

PORT, JOIN_PORT = 16867, 17154
SPEC = """
cluster: vm
batch: {{kind: slurm, port: {port}, node_port: 16868}}
join: {{port: {join_port}}}
naming: {{kind: hosts}}
provider:
  kind: libvirt
  uri: {uri}
  emulate: qemu
  network: {network}
  disks: {disks}
  kernel: {kernel}
  initrd: {initrd}
  cmdline: '"{cmdline}"'
  control_address: {control}
  options:
    cpu: "<cpu mode='custom' match='exact'><model fallback='forbid'>qemu64</model></cpu>"
    features: "<tcg><tb-cache unit='MiB'>32</tb-cache></tcg>"
images:
  node: {{path: {image}}}
  golden: {{path: {golden}}}
  soft: {{build: {{base: node, group: vms, scripts: [SHARED/soft.sh]}}}}
flavors: {{small: {{cpus: 1, memory: 160M}}}}
groups:
  vms: {{nodes: "vm-[1-3]", image: node, flavors: [small]}}
  racks:
    nodes: "rack-1"
    flavors: [small]
    without: [join]
    provider:
      {{kind: libvirt, uri: {uri}, network: {network}, nodes: power, grace: 5m, {reached}}}
partitions:
  main: {{groups: [vms], default: true}}
  racks: {{groups: [racks]}}
timing: {{idle: {idle_s}s, start: 10m, stop: 2m}}
"""


@dataclass(frozen=True, slots=True)
class Machines:
    """The cluster, and where its machines are."""

    real: RealCluster
    running: Libvirt
    disks: Path

    @property
    def key(self) -> Path:
        return self.real.state / "key" / "munge.key"

    @property
    def port(self) -> int:
        return PORT

    def console(self, id: str) -> str:
        path = self.disks / f"{id}.console"
        return path.read_text(errors="replace") if path.exists() else ""


@contextmanager
def machines(running: Libvirt, image: Image, idle_s: int) -> Iterator[Machines]:
    disks = running.root / "disks"
    disks.mkdir()
    golden = disks / "springtide-vm-golden-1.qcow2"
    text = SPEC.format(
        port=PORT,
        join_port=JOIN_PORT,
        uri=running.uri,
        network=NETWORK,
        disks=disks,
        kernel=image.kernel,
        initrd=image.initrd,
        cmdline=image.cmdline,
        control=running.control,
        reached=f"control_address: {running.control}",
        image=image.disk,
        golden=golden,
        idle_s=idle_s,
    )
    try:
        with cluster(text) as real:
            yield Machines(real, running, disks)
    finally:
        shutil.rmtree(disks)


def write_keyed(image: Path, keyed: Path, key: Path) -> None:
    """The image with the key in its place, as munged wants it."""
    to_raw(image, keyed)
    plant(keyed, key, "/etc/munge/munge.key", 0o400)


def plant(disk: Path, file: Path, place: str, mode: int) -> None:
    """Put a file into a disk, with its owner."""
    owner = file.stat()
    wishes = [f"write {file} {place}", f"sif {place} mode 0100{mode:o}"]
    wishes += [f"sif {place} uid {owner.st_uid}", f"sif {place} gid {owner.st_gid}"]
    script = "".join(f"{wish}\n" for wish in wishes)
    done = subprocess.run(
        ["/usr/sbin/debugfs", "-w", "-f", "-", str(disk)],
        input=script,
        text=True,
        capture_output=True,
        check=True,
    )
    assert "not found" not in done.stdout + done.stderr, done


def to_raw(image: Path, raw: Path) -> None:
    command = ["qemu-img", "convert", "-U", "-O", "raw", str(image), str(raw)]
    subprocess.run(command, check=True)


def to_qcow2(raw: Path, disk: Path) -> None:
    command = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(disk)]
    subprocess.run(command, check=True)
