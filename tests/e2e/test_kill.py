"""The real daemon killed at random moments of real work, and gone when Slurm calls."""

import os
import random
import signal
import time
from collections.abc import Iterator

import pytest

from springtide.batch import slurm_service
from tests.e2e.by_hand import started
from tests.e2e.gate import Gate
from tests.e2e.real import RealCluster, cluster, until
from tests.e2e.saving import await_saved

pytestmark = pytest.mark.real

KILLS = 10
SPEC = """
cluster: mortal
batch: {kind: slurm, port: 16877, node_port: 16878, parameters: {MinJobAge: 3600}}
provider: {kind: containers, mounts: [SHARED]}
groups: {general: {nodes: "m-[01-20]"}}
timing: {idle: 3s, start: 120s, stop: 30s}
"""


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC) as deployed:
        yield deployed


@pytest.mark.accepts("X1", "C10")
@pytest.mark.timeout(600)
def test_killed_at_ten_random_moments_nothing_is_lost_and_nothing_made_twice(
    real: RealCluster,
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    ids = []
    for _ in range(KILLS):
        ids.append(real.sbatch("srun hostname", "-N3"))
        time.sleep(chance.uniform(0.0, 5.0))  # the moment is what is tried
        real.kill_daemon()
        time.sleep(chance.uniform(0.0, 0.5))
        real.start_daemon()
    for id in ids:
        real.finished(id)
        assert len(set(real.output(id))) == 3
    real.all_off("m-[01-20]")
    until(lambda: all(o["ended_at"] for o in real.client.get("/operations")["operations"]))
    assert real.client.get("/nodes")["problems"] == []
    assert not [row for row in real.client.get("/nodes")["nodes"] if row["instances"]]
    for name in {e["node"] for e in real.events() if e["node"]}:
        story = [e["what"] for e in real.events(node=name)]
        lives = [what for what in story if what in ("instance created", "instance gone")]
        assert lives == ["instance created", "instance gone"] * (len(lives) // 2), name


def test_what_slurm_asks_while_the_daemon_is_away_is_done_when_it_returns(
    real: RealCluster,
) -> None:
    real.kill_daemon()
    id = real.sbatch("hostname", "-w", "m-20")
    spool = real.state / "spool"
    until(lambda: list(spool.glob("*.json")))
    real.start_daemon()
    real.finished(id)
    assert real.output(id) == ["m-20"]
    until(lambda: not list(spool.iterdir()))
    real.all_off("m-20")


def test_garbage_in_the_spool_is_put_aside_and_said(real: RealCluster) -> None:
    spool = real.state / "spool"
    for name, text in {
        "1.json": "{not json",
        "2.json": '{"program": "resume", "id": "x", "at": 1, "nodes": "nowhere-1"}',
        "3.json": '{"program": "launch", "id": "y", "at": 1, "nodes": "m-01"}',
    }.items():
        (spool / f".{name}").write_text(text)
        (spool / f".{name}").rename(spool / name)
    until(lambda: not list(spool.iterdir()))
    said = [e["detail"] for e in real.events() if e["what"] == "spooled request refused"]
    assert len(said) == 3
    assert any("nowhere-1" in text for text in said)


@pytest.mark.timeout(300)
def test_a_killed_slurmctld_comes_back_with_a_deploy_and_its_jobs_go_on(real: RealCluster) -> None:
    gate = Gate(real.shared / "gate")
    id = started(real, f"{gate.wait}; hostname", "-w", "m-10")
    await_saved(real.slurm, real.state / "slurmctld", id, "m-10")
    pid = int((real.state / "run" / "slurmctld.pid").read_text().split()[0])
    process = slurm_service.parse_stat(slurm_service.read(f"/proc/{pid}/stat"))
    assert process is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: not process.alive)  # until then it runs, or its port is taken
    assert real.deploy()["state"] == "done"
    assert until(lambda: real.job(id)["JobState"]) == "RUNNING"
    gate.open()
    assert real.finished(id)["Restarts"] == "0"
    assert real.output(id) == ["m-10"]
