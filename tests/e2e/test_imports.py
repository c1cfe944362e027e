"""Imported groups on a real Slurm: a smaller limit gives nodes back, and a pool is the most."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.real import RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

SPEC = """
cluster: imports
batch: {kind: slurm, port: 17145, node_port: 17146}
provider: {kind: containers, mounts: [SHARED]}
# what is mine stays
timing: {idle: 3600s, start: 2m, stop: 10s}
"""
SHAPE = "VM.Standard2.1"
NODES = "vm-standard2-1-ad1"


POOL = """
groups:
  pool: {nodes: "wn[1-3]"}
partitions:
  pool: {groups: [pool]}
"""
"""Containers have addresses of their own, so no import makes them."""


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC + POOL) as deployed:
        yield deployed


def imported(real: RealCluster, name: str, text: str, *options: str) -> str:
    """The file with what is imported, and the cluster as it says."""
    (real.root / name).write_text(text)
    done = real.tide("import", str(real.root / name), "--into", str(real.file), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# what is mine stays\n" in real.file.read_text()
    applied = real.tide("apply", str(real.file), "--yes")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    return done.stderr + applied.stdout + applied.stderr


@pytest.mark.accepts("C4")
def test_a_smaller_limit_drains_the_surplus_and_terminates_it(real: RealCluster) -> None:
    imported(real, "limits.yaml", f"{SHAPE}: {{1: 3}}\n")
    constraint = ("-C", f"shape={SHAPE}&ad=1", "--exclusive", "-p", "compute")
    warm = real.sbatch("hostname", "-N3", *constraint)
    real.finished(warm)
    wait = f"until [ -e {real.shared}/go ]; do sleep 0.1; done; hostname"
    last = real.sbatch(wait, *constraint, "-w", f"{NODES}-0003")
    until(lambda: real.job(last).get("JobState") == "RUNNING")
    with ThreadPoolExecutor(1) as pool:
        smaller = pool.submit(imported, real, "limits.yaml", f"{SHAPE}: {{1: 1}}\n")
        until(lambda: f"{NODES}-0003" in draining(real) or smaller.done())
        (real.shared / "go").touch()
        smaller.result()
    assert real.finished(last)["Restarts"] == "0"
    assert real.output(last) == [f"{NODES}-0003"]
    assert real.slurm("sinfo", "-h", "-p", "compute", "-o", "%N").split() == [f"{NODES}-0001"]
    listed = real.client.get("/nodes")["nodes"]
    assert [row["name"] for row in listed if row["name"].startswith(NODES)] == [f"{NODES}-0001"]
    assert f"{NODES}-0003" in draining(real)


def draining(real: RealCluster) -> set[str]:
    return {event["node"] for event in real.events() if event["what"] == "node draining"}


@pytest.mark.accepts("N5", "N16")
def test_a_pool_is_the_most_and_a_job_beyond_it_is_told_so_without_a_call(
    real: RealCluster,
) -> None:
    pool = {"10.210.0.1": "far1", "10.210.0.2": "far2"}
    options = ("-p", "pool", "--exclusive")
    look = "far=$(getent hosts far3); echo ${far%% *}"
    away = ("--group", "away", "--provider", "none")
    for address in ("10.210.0.4", "10.210.0.3"):
        imported(real, "hosts.json", json.dumps({**pool, address: "far3"}), *away)
        job = real.sbatch(look, *options, "-w", "wn1")
        real.finished(job)
        assert real.output(job) == [address]
    busy = [real.sbatch("sleep 300", *options) for _ in range(3)]
    until(lambda: all(real.job(one).get("JobState") == "RUNNING" for one in busy))
    until(lambda: not real.client.get("/status")["operations"])
    made = [event for event in real.events() if event["what"] == "instance created"]
    asked = real.client.get("/operations")["operations"]
    beyond = real.sbatch("hostname", *options)
    until(lambda: real.job(beyond).get("Reason") == "Resources")
    said = f"job {beyond} waits: the pool of 3 of pool is exhausted"
    until(lambda: said in real.tide("why", beyond).stdout)
    real.slurm("scancel", busy[0])
    real.finished(beyond)
    assert [event for event in real.events() if event["what"] == "instance created"] == made
    assert real.client.get("/operations")["operations"] == asked
    real.slurm("scancel", *busy[1:])


EARLY = SPEC.replace("imports", "early").replace("17145", "17147").replace("17146", "17148")


CLOUD_INIT = """#!/bin/sh
if [ -e LOOKS ]; then rm LOOKS; echo 'status: running'; else echo 'status: done'; fi
"""
"""One that is over after one look."""


@pytest.mark.accepts("C3")
def test_finishing_refuses_until_it_can_and_then_makes_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with cluster(EARLY, deployed=False) as real:
        monkeypatch.setenv("PATH", f"{real.root}/bin:{os.environ['PATH']}")
        looks, program = real.root / "looks", real.root / "bin" / "cloud-init"
        program.parent.mkdir()
        program.write_text(CLOUD_INIT.replace("LOOKS", str(looks)))
        program.chmod(0o755)
        looks.touch()
        limits = real.root / "limits.yaml"
        options = (str(real.file), "--limits", str(limits))
        early = real.tide("finish", *options)
        assert (early.returncode, early.stdout) == (1, "")
        assert "- cloud-init still configures this machine; " in early.stderr
        assert f"- there is no {limits}: write it" in early.stderr
        limits.write_text(f"{SHAPE}: {{1: 2}}\n")
        looks.touch()
        done = real.tide("finish", *options, "--control-shape", SHAPE, "--wait")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "waiting: cloud-init still configures" in done.stderr
        assert "cluster early is up" in done.stdout
        job = real.sbatch("hostname", "-p", "compute")
        real.finished(job)
        assert real.output(job) == [f"{NODES}-0001"]
        again = real.tide("finish", *options, "--control-shape", SHAPE)
        assert again.returncode == 0, again.stdout + again.stderr
        assert "nothing had to be changed" in again.stdout
