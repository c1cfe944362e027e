"""What a node's image does to its boot: ready is what Slurm has heard from, and nothing less."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.images import image
from tests.e2e.real import RealCluster, cluster, until

pytestmark = pytest.mark.real

SLOW = """#!/bin/sh
until [ -e GATE/open ]; do sleep 0.05; done
exec /opt/slurmd "$@"
"""
OLD = """#!/bin/sh
for word; do
    shift
    [ "$word" = -b ] || set -- "$@" "$word"
done
exec /opt/slurmd "$@"
"""
SPEC = """
cluster: images
batch: {kind: slurm, port: 16887, node_port: 16888}
provider: {kind: containers, mounts: [SHARED, ROOT/gate]}
images:
  slow: {path: ROOT/slow}
  old: {path: ROOT/old}
  new: {path: ROOT/new}
groups:
  plain: {nodes: "plain-[1-4]"}
  slow: {nodes: "slow-[1-2]", image: slow}
  old: {nodes: "old-1", image: old}
timing: {idle: 3600s, start: START, stop: 30s}
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """Image directories; slurmd proper is at /opt/slurmd in those that wrap it."""
    path = Path(tempfile.mkdtemp(prefix="tide-images-", dir="/var/tmp"))
    path.chmod(0o755)
    gate = path / "gate"
    gate.mkdir()
    wrapped = {"slow": SLOW.replace("GATE", str(gate)), "old": OLD}
    try:
        with ExitStack() as stack:
            for name, text in wrapped.items():
                texts, copies = {"/usr/sbin/slurmd": text}, {"/opt/slurmd": "/usr/sbin/slurmd"}
                stack.enter_context(image(path / name, texts, copies))
            stack.enter_context(image(path / "new", {"/etc/image": "new"}, {}))
            yield path
    finally:
        shutil.rmtree(path)


def spec(root: Path, start: str) -> str:
    return SPEC.replace("ROOT", str(root)).replace("START", start)


@pytest.fixture
def real(root: Path) -> Iterator[RealCluster]:
    with cluster(spec(root, start="2m")) as deployed:
        yield deployed


@pytest.mark.accepts("B6")
def test_a_node_is_ready_when_it_has_registered_and_not_when_it_runs(
    real: RealCluster, root: Path
) -> None:
    id = real.sbatch("hostname", "-w", "slow-1")

    def running() -> bool:
        (row,) = real.client.get("/nodes", names="slow-1")["nodes"]
        return bool(row["instances"]) and row["instances"][0]["state"] == "running"

    until(running)
    until(lambda: real.states("slow-1") == {"joining"})
    assert real.job(id)["JobState"] == "CONFIGURING"
    (root / "gate" / "open").touch()
    real.finished(id)
    until(lambda: real.states("slow-1") == {"ready"})  # the job's prolog may know it before


@pytest.mark.accepts("B13", "C17")
def test_a_boot_from_before_the_request_does_not_count(root: Path) -> None:
    """Without -b slurmd reports the boot of this machine, which was long before."""
    with cluster(spec(root, start="8s")) as real:
        id = real.sbatch("hostname", "-w", "old-1")
        until(lambda: [e for e in real.events(node="old-1") if e["what"] == "node given back"])
        story = [e["what"] for e in real.events(node="old-1")]
        assert "address told" in story
        assert "node registered" not in story
        (why,) = [e["detail"] for e in real.events(node="old-1") if e["what"] == "node failed"]
        assert "did not register within 8 s" in why
        until(lambda: real.job(id)["JobState"] == "PENDING")
        real.slurm("scancel", id)
        real.all_off("old-1")


@pytest.mark.accepts("E6")
def test_a_new_image_touches_nobody_but_the_node_that_is_asked_for(real: RealCluster) -> None:
    wait = f"until [ -e {real.shared}/go ]; do sleep 0.1; done"
    id = real.sbatch(wait, "-N2", "-w", "plain-[1-2]")
    until(lambda: real.job(id).get("JobState") == "RUNNING")
    before = {name: row["instance"] for name, row in real.record("plain-[1-2]").items()}
    real.write(
        real.file.read_text()
        .split("\n", 1)[1]
        .replace('nodes: "plain-[1-4]"', 'nodes: "plain-[1-4]", image: new')
    )
    real.restart_daemon()
    other = real.sbatch("cat /etc/image; echo", "-w", "plain-3")
    real.finished(other)
    assert real.output(other) == ["new"]
    assert {n: row["instance"] for n, row in real.record("plain-[1-2]").items()} == before
    assert real.job(id)["JobState"] == "RUNNING"
    assert real.job(id)["Restarts"] == "0"
    created = {e["node"] for e in real.events() if e["what"] == "instance created"}
    assert created == {"plain-1", "plain-2", "plain-3"}
    (real.shared / "go").touch()
    real.finished(id)
