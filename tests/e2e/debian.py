"""A real cluster whose nodes are whole Debians with cloud-init, that join it by themselves.

They get everything from this machine: the agent, keys, names by dnsmasq, a directory by ganesha,
users, and Slurm's configuration. Nothing of the cluster is in their image.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from springtide.cli.endings import Exit
from tests.e2e.real import RealCluster, cluster
from tests.libvirt.daemon import NETWORK, Libvirt
from tests.libvirt.kept import Image

USER = "tidevm"
WORD = "springtide"
JOIN_PORT = 17152
SPEC = """
cluster: deb
batch: {{kind: slurm, port: 17150, node_port: 17151}}
join: {{port: {port}}}
nfs: {{server: ganesha, port: 17153}}
naming: {{kind: dns, forward: [{nobody}]}}
shared: [{{path: SHARED}}]
users: {{homes: SHARED/home, first: 28200}}
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
    features: "<tcg><tb-cache unit='MiB'>256</tb-cache></tcg>"
images: {{debian: {{path: {image}}}}}
flavors: {{small: {{cpus: 1, memory: 400M}}}}
groups:
  debians: {{nodes: "deb-[1-2]", image: debian, flavors: [small], cloud_config: {site}}}
timing: {{idle: {idle_s}s, start: 10m, stop: 2m}}
"""


SITE = f"""\
#cloud-config
write_files: [{{path: /etc/site, content: "{WORD} of the site"}}]
"""


@dataclass(frozen=True, slots=True)
class Debians:
    """The cluster, and where its machines are."""

    real: RealCluster
    running: Libvirt
    disks: Path

    def console(self, id: str) -> str:
        path = self.disks / f"{id}.console"
        return path.read_text(errors="replace") if path.exists() else ""


@contextmanager
def debians(running: Libvirt, image: Image, idle_s: int) -> Iterator[Debians]:
    disks = running.root / "debians"
    disks.mkdir()
    site = disks / "site.yaml"
    site.write_text(SITE)
    text = SPEC.format(
        port=JOIN_PORT,
        nobody=running.subnet[1],
        uri=running.uri,
        network=NETWORK,
        disks=disks,
        kernel=image.kernel,
        initrd=image.initrd,
        cmdline=image.cmdline,
        control=running.control,
        image=image.disk,
        idle_s=idle_s,
        site=site,
    )
    try:
        with cluster(text) as real, somebody(real):
            (real.shared / "word").write_text(f"{WORD}\n")
            yield Debians(real, running, disks)
    finally:
        shutil.rmtree(disks)


@contextmanager
def somebody(real: RealCluster) -> Iterator[None]:
    """Who has an account of the cluster; it is one of this machine as well, for a while.

    A node that is slow to answer leaves his removal partly done.
    """
    (real.shared / "home").mkdir(mode=0o755)
    try:
        added = real.tide("user", "add", USER)
        assert added.returncode == 0, added.stderr
        yield
    finally:
        removed = real.tide("user", "remove", USER, "--yes", "--force")
        for program in ("userdel", "groupdel"):
            subprocess.run([f"/usr/sbin/{program}", USER], check=False, capture_output=True)
    assert removed.returncode in (Exit.DONE, Exit.PARTLY), removed.stderr
