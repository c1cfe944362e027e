"""A real cluster, with a credential in its daemon's environment: nothing that leaves it has one."""

import io
import json
import os
import signal
import tarfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.real import RealCluster, cluster, until
from tests.e2e.saving import await_saved

pytestmark = pytest.mark.real

CANARY = "canary-91c4-of-the-cloud"
SPEC = """
cluster: bundled
batch: {kind: slurm, port: 17357, node_port: 17358}
provider: {kind: containers, mounts: [SHARED]}
images:
  soft: {build: {base: host}}
groups: {general: {nodes: "b-[1-2]"}}
timing: {idle: 3600s, start: 2m, stop: 30s}
"""
SECRETS = ("key", "join")
"""Directories of the state that are made to hold secrets."""
Members = dict[str, bytes]


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Iterator[RealCluster]:
    for name in ("AWS_SECRET_ACCESS_KEY", "OS_PASSWORD"):
        monkeypatch.setenv(name, CANARY)
    with cluster(SPEC) as made:
        monkeypatch.undo()
        yield made


def bundle(real: RealCluster, name: str) -> Members:
    target = real.root / name
    done = real.tide("bundle", "--out", str(target))
    assert done.returncode == 0, done.stderr
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(fileobj=io.BytesIO(target.read_bytes()), mode="r:gz") as archive:
        found = {one.name.partition("/")[2]: archive.extractfile(one) for one in archive}
        return {path: file.read() for path, file in found.items() if file}


def needles(real: RealCluster) -> list[bytes]:
    """What is looked for: the canary, and parts of the munge key as it is and as text."""
    key = (real.state / "key" / "munge.key").read_bytes()
    parts = [key[start : start + 24] for start in range(0, len(key) - 24, 24)]
    return [
        CANARY.encode(),
        b64encode(CANARY.encode()).rstrip(b"="),
        *parts,
        *map(b64encode, parts),
    ]


def plant(real: RealCluster) -> Path:
    """A log that was rotated."""
    path = real.state / "log" / "munged.log.1"
    path.write_text(f"it is {CANARY}\n")
    return path


def leaks(real: RealCluster, members: Members) -> list[str]:
    wanted = needles(real)
    return [name for name, text in members.items() if any(one in text for one in wanted)]


def files(top: Path) -> Iterator[tuple[str, bytes]]:
    """All files below, of this file system alone; slurmctld and others replace theirs meanwhile."""
    device = top.stat().st_dev
    for place, folders, names in os.walk(top):
        folders[:] = [one for one in folders if is_on(device, Path(place, one))]
        if Path(place) == top:
            folders[:] = [one for one in folders if one not in SECRETS]
        for path in (Path(place, name) for name in names):
            with suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink():
                    yield str(path), path.read_bytes()


def is_on(device: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return path.lstat().st_dev == device
    return False


@pytest.mark.accepts("C24", "N15")
@pytest.mark.timeout(400)
def test_nothing_that_leaves_a_real_cluster_has_a_secret(real: RealCluster) -> None:
    id = real.sbatch("hostname", "-w", "b-1")
    real.finished(id)
    taken = real.tide("image", "snapshot", "b-1", "--family", "soft")
    assert taken.returncode == 0, taken.stderr
    (made,) = real.client.get("/images")["images"]
    assert made["state"] == "ready"

    everything = dict(files(real.state))
    assert any("/images/" in name for name in everything), "the image is among it"
    assert any(name.endswith("record.db") for name in everything)
    assert leaks(real, everything) == []
    planted = plant(real)
    assert leaks(real, {"planted": planted.read_bytes()})

    key = b64encode((real.state / "key" / "munge.key").read_bytes())
    with (real.state / "log" / "slurmctld.log").open("ab") as log:
        log.write(b"planted " + key + b"\n")
    members = bundle(real, "all.tar.gz")
    assert leaks(real, members) == []
    page = members["MANIFEST.md"].decode()
    masked = page.partition("## What was masked")[2]
    assert "`logs/munged.log.1`: " in masked
    assert "`logs/slurmctld.log`: " in masked
    assert members["logs/slurmctld.log"].startswith(b"left out: ")
    assert {
        *("status.json", "nodes.json", "check.json", "conf/slurm.conf", "cluster.json"),
        *("logs/daemon.log", "logs/nodes/b-1.log", "timelines/b-1.json", "plan.json"),
    } <= members.keys(), page
    assert b"slurm" in members["versions.txt"].split(b"batch system ")[1]
    assert json.loads(members["check.json"])["checks"]


@pytest.mark.accepts("C24")
@pytest.mark.timeout(400)
def test_it_is_made_without_slurm_and_without_the_daemon(
    real: RealCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = real.sbatch("hostname", "-w", "b-2")
    real.finished(id)
    held = real.sbatch("hostname", "-w", "b-2", "--hold")
    await_saved(real.slurm, real.state / "slurmctld", held, "b-2")  # else it takes it for off
    assert real.daemon is not None
    real.daemon.send_signal(signal.SIGSTOP)  # else it would start slurmctld again
    try:
        pid = int((real.state / "run" / "slurmctld.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        until(lambda: real.try_slurm("scontrol", "ping").returncode != 0)
    finally:
        real.daemon.send_signal(signal.SIGCONT)
    members = bundle(real, "no-slurm.tar.gz")
    assert {"status.json", "logs/slurmctld.log", "conf/slurm.conf"} <= members.keys()

    plant(real)
    key = (real.state / "key" / "munge.key").read_bytes()
    with (real.state / "log" / "slurmctld.log").open("ab") as log:
        log.write(b"planted " + key.hex().encode() + b"\n")
    real.kill_daemon()
    monkeypatch.setenv("OS_PASSWORD", CANARY)  # no daemon has it any more
    members = bundle(real, "no-daemon.tar.gz")
    rows = {row["name"]: row["state"] for row in json.loads(members["record/nodes.json"])}
    assert rows["b-2"] == "ready"
    assert "`answers of the daemon`: no daemon answers" in members["MANIFEST.md"].decode()
    assert {"logs/daemon.log", "logs/slurmctld.log", "cluster.json"} <= members.keys()
    assert b"batch system slurm: slurm" in members["versions.txt"]
    assert leaks(real, members) == []
    assert members["logs/munged.log.1"] == b"it is <masked>\n"
    assert members["logs/slurmctld.log"].startswith(b"left out: ")
    real.start_daemon()
