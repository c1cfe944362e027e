"""Groups whose nodes serve one job each, on a real Slurm: no job finds traces of another."""

from collections.abc import Iterator

import pytest

from tests.e2e.real import RealCluster, cluster, remains, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

SPEC = """
cluster: fresh
batch: {kind: slurm, port: 17020, node_port: 17021}
provider: {kind: containers, mounts: [SHARED]}
flavors: {small: {cpus: 2, memory: 256M}}
groups:
  once: {nodes: "f-[1-4]", min: 1, flavors: [small], fresh: true}
  often: {nodes: "o-1", flavors: [small]}
partitions:
  main: {groups: [once], default: true}
  often: {groups: [often]}
timing: {idle: 3600s, start: 2m, stop: 5s, reconcile: 1s}
"""
TRACE = "if [ -e /trace ]; then echo used; else echo new; fi; touch /trace; "


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC) as deployed:
        yield deployed


def runs(real: RealCluster, id: str) -> bool:
    return bool(real.job(id)["JobState"] == "RUNNING")


def waits(real: RealCluster, name: str) -> bool:
    """Whether it is there, and unused."""
    return real.states(name) == {"ready"} and real.node(name)["State"] == "IDLE+CLOUD"


def drained(real: RealCluster, name: str) -> bool:
    """Whether it is off, and drained for all that."""
    state = real.node(name)["State"].split("+")
    return {"DRAIN", "POWERED_DOWN"} <= set(state)


@pytest.mark.accepts("A20")
def test_no_job_finds_traces_of_another(real: RealCluster) -> None:
    """Each asks for half a node, so Slurm would have let them share."""
    id = real.sbatch(f"{TRACE} sleep 0.5", "--array=1-6", "-n1")
    real.finished(id)
    assert real.output(id) == ["new"] * 6
    real.all_off("f-[2-4]")
    until(lambda: len([e for e in real.events() if e["what"] == "instance gone"]) == 6)


def test_a_node_that_is_always_up_is_replaced_when_its_job_is_over(real: RealCluster) -> None:
    until(lambda: waits(real, "f-1"))
    before = real.record("f-1")["f-1"]["generation"]
    real.finished(real.sbatch("true", "-w", "f-1"))
    until(lambda: waits(real, "f-1") and real.record("f-1")["f-1"]["generation"] == before + 1)


def test_nodes_of_other_groups_are_kept(real: RealCluster) -> None:
    for trace in ("new", "used"):
        id = real.sbatch(TRACE, "-p", "often")
        real.finished(id)
        assert real.output(id) == [trace]


def test_a_job_of_several_nodes_and_an_interactive_one_have_theirs_alone(
    real: RealCluster,
) -> None:
    for count in (3, 1):
        said = real.slurm("srun", f"-N{count}", "sh", "-c", TRACE)
        assert said.split() == ["new"] * count
    real.all_off("f-[2-4]")


def test_a_job_that_starts_again_starts_on_a_fresh_node(real: RealCluster) -> None:
    again = real.shared / "again"
    id = real.sbatch(f"{TRACE} [ -e {again} ] || sleep 600", "-w", "f-2", "--open-mode=append")
    until(lambda: runs(real, id) and real.output(id))
    again.touch()
    real.slurm("scontrol", "requeue", id)
    until(lambda: real.job(id)["Restarts"] == "1" and real.job(id)["JobState"] != "COMPLETING")
    real.try_slurm("scontrol", "update", f"jobid={id}", "starttime=now")  # or it starts by itself
    real.finished(id)
    assert [word for word in real.output(id) if word in ("new", "used")] == ["new", "new"]
    real.all_off("f-[2-4]")


@pytest.mark.parametrize("through", ["tide", "scontrol"])
def test_a_drain_outlives_the_instance_that_goes_with_its_job(
    real: RealCluster, through: str
) -> None:
    go = real.shared / f"go-{through}"
    id = real.sbatch(f"until [ -e {go} ]; do sleep 0.1; done", "-w", "f-3")
    until(lambda: runs(real, id))
    if through == "tide":
        done = real.tide("drain", "f-3", "--reason", "bad fan")
        assert done.stdout.startswith("f-3: drained"), done.stdout + done.stderr
    else:
        real.slurm("scontrol", "update", "nodename=f-3", "state=drain", "reason=bad fan")
    go.touch()
    real.finished(id)
    real.all_off("f-3")
    until(lambda: drained(real, "f-3"))
    row = real.client.get("/nodes", names="f-3")["nodes"][0]["batch"]
    assert (row["reason"], row["owner"]) == ("bad fan", "root")
    assert real.tide("undrain", "f-3").returncode == 0
    until(lambda: not drained(real, "f-3"))
    real.restart_daemon()  # which knows nothing but what Slurm says, and 24.11 keeps the reason
    remains(lambda: not drained(real, "f-3"), 5)


def test_while_the_daemon_is_away_no_job_starts_that_would_leave_a_used_node(
    real: RealCluster,
) -> None:
    """A node that is up would take a job without us, and keep its traces for the next."""
    real.finished(real.sbatch("true", "-p", "often"))
    until(lambda: waits(real, "f-1") and waits(real, "o-1"))
    real.kill_daemon()
    id = real.sbatch(TRACE, "-w", "f-1")
    until(lambda: real.job(id)["JobState"] == "CONFIGURING")
    real.finished(real.sbatch("true", "-p", "often"))
    assert real.job(id)["JobState"] == "CONFIGURING"
    real.start_daemon()
    real.finished(id)
    assert real.output(id) == ["new"]
