"""A real Slurm is resized while jobs run on it: by one command, or by the file and `tide apply`."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from tests.e2e.by_hand import started
from tests.e2e.gate import Gate
from tests.e2e.real import Json, RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

T = TypeVar("T")

SPEC = """
cluster: sizes
batch: {kind: slurm, port: 16927, node_port: 16928}
provider: {kind: containers, mounts: [SHARED]}
groups:
  general:
    nodes: r-[1-6]
    min: 2          # always up
  gpu: {nodes: "g-[1-3]"}   # none at night
partitions:
  main: {groups: [general], default: true}
  both: {groups: [general, gpu]}
timing: {idle: 3600s, start: 120s, stop: 10s}
"""


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC) as deployed:
        yield deployed


def boot_time(real: RealCluster) -> str:
    """When slurmctld started; a newer one calls every `scontrol reconfigure` its boot."""
    return (real.state / "run" / "slurmctld.started").read_text()


def excepted(real: RealCluster) -> str:
    shown = real.slurm("scontrol", "show", "config").split("SuspendExcNodes")[1].splitlines()[0]
    return shown.partition("=")[2].strip()


def hosts(real: RealCluster) -> str:
    return Path(real.state, "conf", "hosts").read_text()


def resize(real: RealCluster, *sizes: str, code: int = 0) -> str:
    done = real.tide("resize", *sizes, "--yes")
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def done_when_free(real: RealCluster, node: str, gate: Gate, change: Callable[[], T]) -> T:
    """A change that waits for a job at the gate, which is opened once its node drains."""
    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change)
        try:
            until(lambda: "DRAIN" in real.node(node)["State"] or changing.done())
        finally:
            gate.open()
        return changing.result()


def orders(real: RealCluster) -> list[Json]:
    """Operations that people asked for, the newest first; Slurm asks for some when it likes."""
    found = real.client.get("/operations", limit=1000)["operations"]
    return [one for one in found if one["asked_by"] != "batch"]


@pytest.mark.accepts("E1", "E16")
def test_one_number_changed_adds_nodes_and_keeps_jobs_and_comments(real: RealCluster) -> None:
    booted = boot_time(real)
    long = real.sbatch("sleep 300", "-w", "r-1")
    waiting = real.sbatch("hostname", "-w", "r-1", "--exclusive")
    until(lambda: real.job(long).get("JobState") == "RUNNING")
    resize(real, "general=4")
    assert "    min: 4          # always up\n" in real.file.read_text()
    assert '{nodes: "g-[1-3]"}   # none at night' in real.file.read_text()
    assert real.states("r-[1-4]") == {"ready"}
    assert "r-[2-4] idle\n" in real.slurm("sinfo", "-h", "-p", "main", "-o", "%N %T")
    assert excepted(real) == "r-[1-4]"
    assert boot_time(real) == booted
    assert real.client.get("/plan", operation="deploy")["nodes"] == "r-[1-4]"
    assert real.job(long)["JobState"] == "RUNNING"
    assert real.job(waiting)["JobState"] == "PENDING"
    real.slurm("scancel", long)
    real.finished(waiting)


@pytest.mark.accepts("E17", "E24", "E9")
def test_the_highest_numbered_leave_when_their_jobs_have_ended(real: RealCluster) -> None:
    resize(real, "general=4")
    booted = boot_time(real)
    everywhere = real.slurm("srun", "-N4", "-w", "r-[1-4]", "getent", "hosts", "r-4")
    address = real.record("r-4")["r-4"]["address"]
    assert everywhere.split() == [address, "r-4"] * 4
    gate = Gate(real.shared / "last")
    last = real.sbatch(f"{gate.wait}; hostname", "-w", "r-4")
    until(lambda: real.job(last).get("JobState") == "RUNNING")
    done_when_free(real, "r-4", gate, lambda: resize(real, "general=2"))
    assert real.finished(last)["Restarts"] == "0"
    assert real.output(last) == ["r-4"]
    assert real.states("r-[1-2]") == {"ready"}
    assert real.states("r-[3-4]") == {"off"}
    assert " r-4\n" not in hosts(real)
    assert excepted(real) == "r-[1-2]"
    assert boot_time(real) == booted
    until(lambda: real.node("r-4")["State"] == "IDLE+CLOUD+POWERED_DOWN")
    shrink = next(one for one in orders(real) if one["kind"] == "shrink")
    told = [e["what"] for e in real.events(operation=shrink["id"]) if e["node"] in (None, "r-4")]
    assert told == [
        "operation started",
        "node draining",
        "step done",
        "instance deleting",
        "instance gone",
        "step done",
        "step done",
        "batch system changed",
        "step done",
        "operation ended",
    ]
    again = real.sbatch("hostname", "-w", "r-4")
    real.finished(again)
    assert real.tide("suspend", "r-4").returncode == 0


@pytest.mark.accepts("E20")
def test_the_present_size_is_said_and_changes_nothing(real: RealCluster) -> None:
    before = orders(real)
    text = real.file.read_text()
    said = resize(real, "general=2")
    assert "2" in said
    assert orders(real) == before
    assert real.file.read_text() == text


@pytest.mark.accepts("E19")
def test_two_groups_of_two_partitions_are_resized_beside_cloud_nodes_in_use(
    real: RealCluster,
) -> None:
    cloud = real.sbatch("sleep 300", "-w", "r-6")
    until(lambda: real.job(cloud).get("JobState") == "RUNNING")
    kept = real.record("r-6")["r-6"]["instance"]
    resize(real, "general=3", "gpu=1")
    assert real.states("r-[1-3],g-1") == {"ready"}
    resize(real, "general=2", "gpu=0")
    assert real.states("r-3,g-[1-3]") == {"off"}
    assert real.record("r-6")["r-6"]["instance"] == kept
    assert real.job(cloud)["JobState"] == "RUNNING"
    real.slurm("scancel", cloud)
    assert real.tide("suspend", "r-6").returncode == 0


@pytest.mark.accepts("E18")
def test_a_job_that_does_not_end_in_time_keeps_its_node(real: RealCluster) -> None:
    text = real.file.read_text()
    real.file.write_text(text.replace("idle: 3600s,", "idle: 3600s, drain: 2s,"))
    assert real.tide("apply", "--yes").returncode == 0
    long = real.sbatch("sleep 300", "-w", "r-2")
    until(lambda: real.job(long).get("JobState") == "RUNNING")
    instances = {name: row["instance"] for name, row in real.record("r-[1-2]").items()}
    said = resize(real, "general=0", code=1)
    assert "r-2: its jobs did not end within 2 s (timing.drain)" in said
    assert real.states("r-[1-2]") == {"ready"}
    assert {name: row["instance"] for name, row in real.record("r-[1-2]").items()} == instances
    assert real.job(long)["JobState"] == "RUNNING"
    for name in ("r-1", "r-2"):
        assert "DRAIN" not in real.node(name)["State"]
    real.slurm("scancel", long)
    real.file.write_text(text)
    assert real.tide("apply", "--yes").returncode == 0
    assert real.states("r-[1-2]") == {"ready"}


def test_a_partition_leaves_the_file_only_when_its_jobs_are_over(real: RealCluster) -> None:
    """Slurm ends the jobs of a partition that it does not have any more."""
    text = real.file.read_text()
    running = started(real, "sleep 300", "-w", "r-1", "-p", "both")
    waiting = real.sbatch("hostname", "-p", "both", "--hold")
    real.file.write_text(text.replace("  both: {groups: [general, gpu]}\n", ""))
    for command in (("apply", "--dry-run"), ("apply", "--yes")):
        refused = real.tide(*command)
        assert refused.returncode != 0
        assert "both would leave the file" in refused.stderr
        assert f"{running} of root (running), {waiting} of root (pending)" in refused.stderr
    assert real.job(running)["JobState"] == "RUNNING"
    real.slurm("scancel", running, waiting)
    until(lambda: not real.slurm("squeue", "-h", "-a").strip())
    assert real.tide("apply", "--yes").returncode == 0
    assert "PartitionName=both" not in real.slurm("scontrol", "show", "partition")
    real.file.write_text(text)
    assert real.tide("apply", "--yes").returncode == 0


def test_a_group_grows_beyond_its_names_and_jobs_survive(real: RealCluster) -> None:
    long = started(real, "sleep 300", "-w", "r-1")
    waiting = real.sbatch("hostname", "-w", "r-1", "--exclusive")
    resize(real, "general=7")
    assert "nodes: r-[1-7]\n" in real.file.read_text()
    assert real.states("r-[1-7]") == {"ready"}
    new = real.sbatch("srun hostname", "-N2", "-w", "r-[6-7]")
    real.finished(new)
    assert real.output(new) == ["r-6", "r-7"]
    assert real.job(long)["JobState"] == "RUNNING"
    real.slurm("scancel", long)
    real.finished(waiting)


def test_names_that_leave_the_file_go_when_they_are_free(real: RealCluster) -> None:
    gate = Gate(real.shared / "busy")
    busy = started(real, f"{gate.wait}; hostname", "-w", "r-7")
    other = started(real, "sleep 300", "-w", "r-1")
    text = real.file.read_text()
    real.file.write_text(text.replace("r-[1-7]", "r-[1-5]").replace("min: 7 ", "min: 2 "))
    assert "min: 2 " in real.file.read_text()
    done = done_when_free(real, "r-7", gate, lambda: real.tide("apply", "--yes"))
    assert done.returncode == 0, done.stderr
    assert real.finished(busy)["Restarts"] == "0"
    assert real.output(busy) == ["r-7"]
    assert real.try_slurm("scontrol", "show", "node", "r-7").returncode != 0
    assert real.job(other)["JobState"] == "RUNNING"
    assert real.states("r-[1-2]") == {"ready"}
    assert real.states("r-[3-5]") == {"off"}
    assert " r-7\n" not in hosts(real)
    real.slurm("scancel", other)


@pytest.mark.accepts("X9")
def test_an_admins_drain_survives_a_resize(real: RealCluster) -> None:
    resize(real, "general=3")
    real.slurm("scontrol", "update", "nodename=r-[2-3]", "state=drain", "reason=bad disk")
    resize(real, "general=2")
    assert real.states("r-3") == {"off"}
    resize(real, "general=3")
    shown = real.slurm("scontrol", "-o", "show", "nodes", "r-[2-3]")
    assert shown.count("Reason=bad disk") == 2
    assert {
        row["batch"]["owner"] for row in real.client.get("/nodes", names="r-[2-3]")["nodes"]
    } == {"root"}
    for name in ("r-2", "r-3"):
        assert "DRAIN" in real.node(name)["State"]
    real.slurm("scontrol", "update", "nodename=r-[2-3]", "state=resume")
    resize(real, "general=2")
