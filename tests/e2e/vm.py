"""A real cluster whose nodes are virtual machines: libvirtd, QEMU, slurmctld and our daemon.

The image of its nodes holds the cluster's munge key, as images of clouds must; so it is made when
the cluster has been deployed and has a key, before any node is.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.real import RealCluster, cluster
from tests.libvirt.daemon import NETWORK, Libvirt
from tests.libvirt.image import CMDLINE, Image

SPEC = """
cluster: vm
batch: {{kind: slurm, port: 16867, node_port: 16868}}
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
images: {{node: {{path: {image}}}, golden: {{path: {golden}}}}}
flavors: {{small: {{cpus: 1, memory: 160M}}}}
groups: {{vms: {{nodes: "vm-[1-3]", image: node, flavors: [small]}}}}
timing: {{idle: {idle_s}s, start: 3m, stop: 1m}}
"""


@dataclass(frozen=True, slots=True)
class Machines:
    """The cluster, and where its machines are."""

    real: RealCluster
    running: Libvirt
    disks: Path

    def console(self, id: str) -> str:
        path = self.disks / f"{id}.console"
        return path.read_text(errors="replace") if path.exists() else ""


@contextmanager
def machines(running: Libvirt, image: Image, idle_s: int) -> Iterator[Machines]:
    disks = running.root / "disks"
    disks.mkdir()
    keyed = running.root / "keyed.raw"
    golden = disks / "springtide-vm-golden-1.qcow2"
    text = SPEC.format(
        uri=running.uri,
        network=NETWORK,
        disks=disks,
        kernel=image.kernel,
        initrd=image.initrd,
        cmdline=CMDLINE,
        control=running.control,
        image=keyed,
        golden=golden,
        idle_s=idle_s,
    )
    try:
        with cluster(text) as real:
            write_keyed(image.disk, keyed, real.state / "key" / "munge.key")
            yield Machines(real, running, disks)
    finally:
        shutil.rmtree(disks)
        keyed.unlink(missing_ok=True)


def write_keyed(image: Path, keyed: Path, key: Path) -> None:
    """The image with the key in its place, as munged wants it."""
    to_raw(image, keyed)
    place, owner = "/etc/munge/munge.key", key.stat()
    wishes = [f"write {key} {place}", f"sif {place} mode 0100400"]
    wishes += [f"sif {place} uid {owner.st_uid}", f"sif {place} gid {owner.st_gid}"]
    script = "".join(f"{wish}\n" for wish in wishes)
    done = subprocess.run(
        ["/usr/sbin/debugfs", "-w", "-f", "-", str(keyed)],
        input=script,
        text=True,
        capture_output=True,
        check=True,
    )
    assert "not found" not in done.stdout + done.stderr, done


def to_raw(image: Path, raw: Path) -> None:
    command = ["qemu-img", "convert", "-U", "-O", "raw", str(image), str(raw)]
    subprocess.run(command, check=True)
