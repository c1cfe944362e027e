"""The site's health check on a real Slurm: no node that fails it takes a job."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.real import Json, RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

SPEC = """
cluster: health
batch: {kind: slurm, port: 17022, node_port: 17023, parameters: {HealthCheckInterval: "2"}}
provider: {kind: containers, mounts: [SHARED]}
groups: {general: {nodes: "h-[1-3]", min: 1}}
health: SHARED/health
timing: {idle: 3600s, start: 2m, stop: 10s, grace: 3600s}
"""
PROGRAM = """\
#!/bin/sh
# A node is ill as long as a file named after it says of what.
echo looked >>"SHARED/looked-$TIDE_NODE"
! cat "SHARED/ill-$TIDE_NODE" 2>/dev/null
"""


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC, deployed=False) as made:
        program = made.shared / "health"
        program.write_text(PROGRAM.replace("SHARED", str(made.shared)))
        program.chmod(0o755)
        assert made.deploy()["state"] == "done"
        yield made


def illness(real: RealCluster, node: str) -> Path:
    return real.shared / f"ill-{node}"


def fall_ill(real: RealCluster, node: str, of: str) -> Path:
    """At once: a check that came while the file was empty would not know of what."""
    new = real.shared / f"new-{node}"
    new.write_text(of)
    return new.replace(illness(real, node))


def batch(real: RealCluster, node: str) -> Json:
    """What Slurm says of it, once it answers."""
    return until(lambda: dict(real.client.get("/nodes", names=node)["nodes"][0]["batch"] or {}))


def drain_of(real: RealCluster, node: str) -> tuple[str, str] | None:
    """Why it is drained, and by whom."""
    seen = batch(real, node)
    return (seen["reason"], seen["owner"]) if seen["drained"] else None


def looks(real: RealCluster, node: str) -> int:
    """How often it was checked."""
    return len((real.shared / f"looked-{node}").read_text().split())


@pytest.mark.accepts("A27")
def test_a_node_that_fails_at_boot_never_takes_a_job(real: RealCluster) -> None:
    ill = fall_ill(real, "h-2", "one fan\ndisk is full\n")
    id = real.sbatch("hostname", "-w", "h-2")
    event = until(lambda: [e for e in real.events() if e["what"] == "node given back"])[0]
    assert "health check failed: disk is full" in event["detail"]
    until(lambda: real.job(id)["JobState"] == "PENDING")
    ill.unlink()
    real.try_slurm("scontrol", "update", f"jobid={id}", "starttime=now")  # or it starts by itself
    assert real.output(real.finished(id)["JobId"]) == ["h-2"]


@pytest.mark.accepts("A27")
def test_a_node_that_falls_ill_takes_no_further_jobs_until_it_is_well(real: RealCluster) -> None:
    go = real.shared / "go"
    running = real.sbatch(f"until [ -e {go} ]; do sleep 0.1; done", "-w", "h-1")
    until(lambda: real.job(running)["JobState"] == "RUNNING")
    ill = fall_ill(real, "h-1", "too hot")
    until(lambda: drain_of(real, "h-1"))
    assert drain_of(real, "h-1") == ("health check failed: too hot", "slurm")
    assert real.job(running)["JobState"] == "RUNNING"
    go.touch()
    real.finished(running)
    waiting = real.sbatch("hostname", "-w", "h-1")
    until(lambda: "ReqNodeNotAvail" in real.job(waiting)["Reason"])
    ill.unlink()
    real.finished(waiting)
    assert drain_of(real, "h-1") is None


def test_the_check_ends_no_drain_that_a_person_made(real: RealCluster) -> None:
    ill = fall_ill(real, "h-1", "too hot")
    until(lambda: drain_of(real, "h-1"))
    done = real.tide("drain", "h-1", "--reason", "bad fan")
    assert done.returncode == 0, done.stderr
    assert drain_of(real, "h-1") == ("bad fan", "root")
    ill.unlink()
    before = looks(real, "h-1")
    until(lambda: looks(real, "h-1") >= before + 2)
    assert drain_of(real, "h-1") == ("bad fan", "root")
    assert real.tide("undrain", "h-1").returncode == 0


@pytest.mark.accepts("A27")
def test_a_node_that_fails_after_a_reboot_is_not_returned_to_service(real: RealCluster) -> None:
    until(lambda: real.states("h-1") == {"ready"} and drain_of(real, "h-1") is None)
    ill = fall_ill(real, "h-1", "disk is full")
    done = real.tide("rebuild", "h-1", "--force", "--yes")
    assert done.returncode != 0, done.stdout
    until(lambda: batch(real, "h-1")["state"] == "DOWN")
    assert "health check failed: disk is full" in batch(real, "h-1")["reason"]
    ill.unlink()
    assert real.deploy()["state"] == "done"
    real.finished(real.sbatch("hostname", "-w", "h-1"))
