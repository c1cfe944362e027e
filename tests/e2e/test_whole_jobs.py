"""A real Slurm, and a subnet that has room for five nodes: a job of six cannot start.

Each test has nodes of its own flavor: where there was no room, none is tried for a while.
"""

from collections.abc import Iterator

import pytest

from springtide.nodeset import expand
from tests.e2e.real import Json, RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

SPEC = """
cluster: wholejobs
batch: {kind: slurm, port: 17060, node_port: 17061}
provider: {kind: containers, subnet: 10.78.60.0/29, mounts: [SHARED]}
flavors:
  one: {cpus: 1, memory: 256M}
  two: {cpus: 1, memory: 256M}
  three: {cpus: 1, memory: 256M}
groups:
  shared: {nodes: "w-[1-6]", flavors: [one]}
  alone: {nodes: "a-[1-6]", flavors: [two]}
  best: {nodes: "b-[1-6]", flavors: [three], start: any}
partitions:
  shared: {groups: [shared], default: true}
  alone: {groups: [alone]}
  best: {groups: [best]}
timing: {idle: 1h, start: 120s, stop: 30s}
"""
ALL = "w-[1-6],a-[1-6],b-[1-6]"


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC) as deployed:
        yield deployed


@pytest.fixture(autouse=True)
def quiet(real: RealCluster) -> None:
    """All addresses are free again."""
    real.slurm("scancel", "--user=root")
    until(lambda: not real.slurm("squeue", "-h").strip())
    assert real.tide("suspend", ALL).returncode == 0
    real.all_off(ALL)


def first_resume(real: RealCluster, of: str) -> Json:
    """The operation that the job began with, once all instances were made or refused."""

    def created() -> Json | None:
        started = [e for e in real.events() if e["what"] == "operation started"]
        found = [e["operation"] for e in started if e["detail"] == f"resume {of}"]
        done = {e["operation"] for e in real.events() if e["detail"] == "create instances"}
        return real.client.get(f"/operations/{found[0]}") if found and found[0] in done else None

    return until(created) or {}


def told(real: RealCluster, what: str, operation: Json) -> dict[str, str]:
    events = real.events(operation=operation["id"])
    return {event["node"]: event["detail"] for event in events if event["what"] == what}


@pytest.mark.accepts("X10")
def test_of_a_job_that_lacks_one_node_only_what_another_can_use_stays(real: RealCluster) -> None:
    real.slurm("scontrol", "update", "partitionname=shared", "state=down")
    wide = real.sbatch("srun hostname", "-N6")
    narrow = real.sbatch("srun hostname", "-N2")
    # When the one begins, the other waits already: to release both would take two messages.
    real.slurm("scontrol", "update", "partitionname=shared", "state=up")
    operation = first_resume(real, "w-[1-6]")
    kept, fallen = told(real, "spare node kept", operation), operation["fallen"]
    (missing,) = [name for name, why in fallen.items() if not why.startswith("spare: ")]
    dropped = {name: why for name, why in fallen.items() if name != missing}
    assert (len(kept), len(dropped)) == (2, 3)
    for why in (*kept.values(), *dropped.values()):
        assert f"job {wide} lacks {missing} (the provider is full: no free address" in why
    real.finished(narrow)
    assert len(real.output(narrow)) == 2
    assert set(real.output(narrow)) & set(kept), "it ran where nodes were spare"
    job = real.job(wide)
    assert job["JobState"] == "PENDING"
    shown = real.slurm("scontrol", "-o", "show", "job", wide)
    assert f"springtide: {missing} could not start, so the job waits again" in shown


@pytest.mark.accepts("X10")
def test_a_job_whose_nodes_nobody_else_needs_leaves_nothing_up(real: RealCluster) -> None:
    wide = real.sbatch("srun hostname", "-N6", "-p", "alone")
    operation = first_resume(real, "a-[1-6]")
    assert set(operation["fallen"]) == set(expand("a-[1-6]"))
    assert len(told(real, "instance created", operation)) == 5
    real.all_off("a-[1-6]")
    assert not [row for row in real.client.get("/nodes")["nodes"] if row["instances"]]
    until(lambda: real.job(wide)["Restarts"] not in ("", "0"))


@pytest.mark.accepts("X10")
def test_best_effort_lets_all_start_that_could_be_made(real: RealCluster) -> None:
    real.sbatch("srun hostname", "-N6", "-p", "best")
    operation = first_resume(real, "b-[1-6]")
    kept = told(real, "spare node kept", operation)
    assert len(operation["fallen"]) == 1
    assert {*kept, *operation["fallen"]} == set(expand("b-[1-6]"))
    until(lambda: sorted(real.states("b-[1-6]")) == ["off", "ready"])
