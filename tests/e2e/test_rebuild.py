"""Nodes of a real Slurm get a new image: by reboot, by jobs, directly; in batches; not twice."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from springtide.nodeset import expand
from tests.e2e import mpi
from tests.e2e.gate import Gate
from tests.e2e.images import image
from tests.e2e.mpi import RUN
from tests.e2e.real import RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

BROKEN = """#!/bin/sh
exec sleep 1000
"""
SPEC = """
cluster: rebuilds
batch:
  kind: slurm
  port: 16937
  node_port: 16938
  accounting: {port: 16939}
provider: {kind: containers, mounts: [SHARED]}
images:
  one: {path: ROOT/one}
  two: {path: ROOT/two}
  bad: {path: ROOT/bad}
flavors:
  small: {cpus: 1, memory: 256M}
  large: {cpus: 1, memory: 512M}
groups:
  general: {nodes: "i-[1-6]", min: 4, image: one, flavors: [small]}
  extra: {nodes: "x-[1-2]", min: 0, image: one, flavors: [small]}
partitions:
  main: {groups: [general], default: true}
  extra: {groups: [extra]}
timing: {idle: 3600s, start: 120s, stop: 30s}
"""
LONG, SHORT = "start: 120s", "start: 6s"
"""A node may take as long as it needs, or one that never joins is soon given up."""


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="tide-rebuild-", dir="/var/tmp"))
    path.chmod(0o755)
    try:
        with ExitStack() as stack:
            for name in ("one", "two"):
                stack.enter_context(image(path / name, {"/etc/image": f"{name}\n"}, {}))
            stack.enter_context(image(path / "bad", {"/usr/sbin/slurmd": BROKEN}, {}))
            yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture(scope="module")
def real(root: Path) -> Iterator[RealCluster]:
    with cluster(SPEC.replace("ROOT", str(root))) as deployed:
        yield deployed


def instances(real: RealCluster, names: str) -> dict[str, str]:
    return {name: row["instance"] for name, row in real.record(names).items()}


def aim(real: RealCluster, start: str = LONG, **images: str) -> None:
    """Have the file want these images, and apply it."""
    text = real.file.read_text().replace(LONG, start).replace(SHORT, start)
    for group, wanted in images.items():
        head, tail = text.split(f"  {group}: ", 1)
        line, rest = tail.split("\n", 1)
        before, _, after = line.partition("image: ")
        text = f"{head}  {group}: {before}image: {wanted}{after[after.index(',') :]}\n{rest}"
    real.file.write_text(text)
    done = real.tide("apply", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr


def rebuild(real: RealCluster, *arguments: str, code: int = 0) -> str:
    done = real.tide("rebuild", *arguments, "--yes")
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def runs(real: RealCluster, names: str) -> dict[str, str]:
    """The image that each node's own file tells."""
    script = "srun sh -c 'echo $(hostname):$(cat /etc/image)'"
    id = real.sbatch(script, "-w", names, "-N", str(len(expand(names))))
    real.finished(id)
    return dict(line.split(":") for line in real.output(id))


def rows(real: RealCluster, names: str) -> dict[str, Any]:
    return {row["name"]: row for row in real.client.get("/nodes", names=names)["nodes"]}


def booted_at(real: RealCluster, name: str) -> float:
    """When it booted; 0 as long as slurmctld, which may have heard from it, does not know it."""
    return float((rows(real, name)[name]["batch"] or {}).get("boot_at") or 0)


@pytest.mark.accepts("A1", "A16")
def test_a_new_image_in_the_file_touches_nobody_until_they_are_rebuilt(real: RealCluster) -> None:
    before = instances(real, "i-[1-4]")
    aim(real, general="two")
    assert instances(real, "i-[1-4]") == before
    assert real.states("i-[1-4]") == {"ready"}
    row = rows(real, "i-1")["i-1"]
    assert row["wanted_image"] == "two"
    assert row["outdated"] == "image one instead of two"
    aim(real, general="one")
    assert rows(real, "i-1")["i-1"]["outdated"] is None


@pytest.mark.accepts("A5", "A10", "A11", "A14", "A15")
def test_a_campaign_in_batches_leaves_jobs_alone_and_no_job_sees_an_old_image(
    real: RealCluster,
) -> None:
    gate, began = Gate(real.shared / "long"), time.time()
    long = real.sbatch(f"{gate.wait}; cat /etc/image", "-w", "i-2")
    until(lambda: real.job(long).get("JobState") == "RUNNING")
    before, others = until(lambda: booted_at(real, "i-1")), instances(real, "i-[1-4]")
    aim(real, general="two")
    begun = real.client.post("/operations", {"operation": "rebuild", "options": {"batch": 2}})
    (operation,) = begun["operations"]
    until(lambda: "DRAIN" in real.node("i-2")["State"])
    late = [real.sbatch("cat /etc/image", "-N2", "--exclusive") for _ in range(3)]
    gate.open()
    ended = real.ended(operation["id"])
    assert ended["state"] == "done", ended
    assert real.finished(long)["Restarts"] == "0"
    assert real.output(long) == ["one"]
    for id in late:
        real.finished(id)
        assert set(real.output(id)) == {"two"}
    after = instances(real, "i-[1-4]")
    assert not set(after.values()) & set(others.values())
    events = real.events(operation=operation["id"])
    at_once = most = 0
    for event in events:
        at_once += {"instance deleting": 1, "node registered": -1}.get(event["what"], 0)
        most = max(most, at_once)
    assert most == 2
    shown = rows(real, "i-[1-4]")
    assert {row["rebuilds"] for row in shown.values()} == {1}
    assert {row["outdated"] for row in shown.values()} == {None}
    again = until(lambda: booted_at(real, "i-1"))
    assert again > before
    assert again >= int(began)
    until(lambda: {real.node(name)["State"] for name in after} == {"IDLE+CLOUD"})
    said = rebuild(real)
    assert "all nodes in service run what the file wants" in said
    assert instances(real, "i-[1-4]") == after
    listed = ("sacct", "-n", "-X", "-P", "-o", "JobID,State,NodeList")
    until(lambda: f"{long}|COMPLETED|i-2" in real.slurm(*listed).split())


@mpi.works
@pytest.mark.accepts("A15", "E3")
def test_mpi_works_between_nodes_that_were_just_rebuilt(real: RealCluster) -> None:
    id = real.sbatch(RUN, "-N2", "-n2", "-w", "i-[3-4]")
    real.finished(id)
    assert real.output(id) == ["i-3", "i-4"]


@pytest.mark.accepts("E12")
def test_slurms_own_reboot_recreates_with_the_new_image_and_touches_no_other(
    real: RealCluster,
) -> None:
    aim(real, general="one")
    before = instances(real, "i-[1-4]")
    gate = Gate(real.shared / "asap")
    job = real.sbatch(f"{gate.wait}; cat /etc/image", "-w", "i-3")
    until(lambda: real.job(job).get("JobState") == "RUNNING")
    real.slurm("scontrol", "reboot", "ASAP", "nextstate=RESUME", "i-3")
    gate.open()
    assert real.finished(job)["Restarts"] == "0"
    assert real.output(job) == ["two"]
    until(lambda: instances(real, "i-3") != {"i-3": before["i-3"]})
    until(lambda: real.node("i-3")["State"] == "IDLE+CLOUD")
    assert runs(real, "i-3") == {"i-3": "one"}
    del before["i-3"]
    assert instances(real, "i-[1-2,4]") == before


@pytest.mark.accepts("E14", "A6")
def test_the_reason_tells_whether_slurms_reboot_rebuilds(real: RealCluster) -> None:
    """i-1 to i-4 run `two` (i-3 `one`), the file wants `one`."""
    before = instances(real, "i-[1-4]")
    boot = {name: until(partial(booted_at, real, name)) for name in before}
    real.slurm("scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=kernel hangs", "i-[1-2]")
    real.slurm("scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=rebuild image:two", "i-3")
    real.slurm("scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=rebuild image:none", "i-4")
    until(lambda: all(booted_at(real, name) > boot[name] for name in boot))
    until(lambda: {real.node(name)["State"] for name in boot} == {"IDLE+CLOUD"})
    until(lambda: real.states("i-[1-4]") == {"ready"})
    after = instances(real, "i-[1-4]")
    assert [name for name in after if after[name] == before[name]] == ["i-1", "i-2", "i-4"]
    assert runs(real, "i-[1-4]") == dict.fromkeys(("i-1", "i-2", "i-3", "i-4"), "two")
    told = [e["detail"] for e in real.events(node="i-4") if e["what"] == "not rebuilt"]
    assert told == ["the cluster file has no image none: it keeps the one it has"]


@pytest.mark.accepts("A6")
def test_the_reboot_program_takes_a_range_passes_over_strangers_and_says_so(
    real: RealCluster,
) -> None:
    call = (str(real.state / "bin" / "reboot"), "x-[1-2],stranger-9")

    def refused() -> list[subprocess.CompletedProcess[str]]:
        """Nothing, if the daemon did not answer in time: then the call lies in the spool."""
        done = real.try_slurm(*call, user="slurm")
        return [done] if done.returncode else []

    (done,) = until(refused)
    assert done.returncode == 1
    assert "stranger-9 passed over" in done.stderr
    until(lambda: real.states("x-[1-2]") == {"ready"})
    until(lambda: not real.client.get("/status")["operations"])
    assert real.tide("suspend", "x-[1-2]").returncode == 0


@pytest.mark.accepts("A19", "X9")
def test_a_direct_rebuild_needs_no_reboot_of_slurms_and_keeps_an_admins_drain(
    real: RealCluster,
) -> None:
    real.slurm("scontrol", "update", "nodename=i-1", "state=drain", "reason=bad fan")
    rebuild(real, "i-[1-2]", "--direct")
    assert {row["image"] for row in rows(real, "i-[1-2]").values()} == {"one"}
    until(lambda: real.node("i-2")["State"] == "IDLE+CLOUD")
    until(lambda: real.node("i-1")["State"] == "IDLE+CLOUD+DRAIN")
    assert "Reason=bad fan (by root) [" in real.slurm("scontrol", "-o", "show", "node", "i-1")
    aim(real, general="two")
    rebuild(real, "i-[1-2]")
    until(lambda: real.node("i-2")["State"] == "IDLE+CLOUD")
    until(lambda: real.node("i-1")["State"] == "IDLE+CLOUD+DRAIN")
    assert real.client.get("/nodes", names="i-1")["nodes"][0]["batch"]["owner"] == "root"
    real.slurm("scontrol", "update", "nodename=i-1", "state=resume")
    assert runs(real, "i-[1-2]") == {"i-1": "two", "i-2": "two"}


@pytest.mark.accepts("E15")
def test_another_flavor_comes_the_same_way(real: RealCluster) -> None:
    text = real.file.read_text()
    real.file.write_text(
        text.replace("image: two, flavors: [small]", "image: two, flavors: [large]")
    )
    assert real.tide("apply", "--yes").returncode == 0
    before = instances(real, "i-[1-4]")
    rebuild(real, "i-4")
    assert rows(real, "i-4")["i-4"]["flavor"] == "large"
    after = instances(real, "i-[1-4]")
    assert [name for name in after if after[name] == before[name]] == ["i-1", "i-2", "i-3"]
    real.file.write_text(text)
    assert real.tide("apply", "--yes").returncode == 0


@pytest.mark.accepts("A9")
def test_an_image_that_never_joins_stops_the_campaign_and_says_so(real: RealCluster) -> None:
    before = instances(real, "i-[1-4]")
    aim(real, SHORT, general="bad")
    said = rebuild(real, "i-[1-4]", "--batch", "1", code=1)
    assert "did not register within 6 s" in said
    assert "no further one was begun" in said
    lost = [name for name, row in real.record("i-[1-4]").items() if row["state"] != "ready"]
    assert len(lost) == 1
    assert real.node(lost[0])["State"].startswith("DOWN")
    assert "did not register within 6 s" in real.slurm("sinfo", "-R", "-h", "-o", "%E")
    kept = {name: id for name, id in before.items() if name not in lost}
    assert {n: id for n, id in instances(real, "i-[1-4]").items() if n not in lost} == kept
    for name in kept:
        assert "DRAIN" not in real.node(name)["State"]
    aim(real, general="two")
    assert real.tide("resume", lost[0]).returncode == 0
    until(lambda: real.node(lost[0])["State"] == "IDLE+CLOUD")


@pytest.mark.accepts("A2", "A12", "A30")
def test_rebuild_jobs_reboot_their_nodes_or_only_try_a_command(real: RealCluster) -> None:
    aim(real, general="one")
    before = instances(real, "i-[1-4]")
    calls = len(real.events())
    tried = real.tide("rebuild", "i-[1-2]", "--via", "jobs", "--command", "hostname", "--yes")
    assert tried.returncode == 0, tried.stderr
    assert instances(real, "i-[1-4]") == before
    assert not [e for e in real.events()[calls:] if e["what"].startswith("instance")]
    refused = real.tide("rebuild", "stranger-1", "--via", "jobs", "--yes")
    assert refused.returncode == 2
    rebuild(real, "i-[1-2]", "--via", "jobs")
    until(lambda: real.states("i-[1-2]") == {"ready"})
    until(lambda: not real.slurm("squeue", "-h", "-a").strip())
    assert runs(real, "i-[1-4]") == {"i-1": "one", "i-2": "one", "i-3": "two", "i-4": "two"}


def test_a_rebuild_job_that_is_cancelled_is_not_waited_for(real: RealCluster) -> None:
    """`scancel` stops one that waits, and whoever watches is told."""
    aim(real, general="one")
    held = real.sbatch("sleep 1000", "-w", "i-3", "--exclusive")
    until(lambda: real.job(held)["JobState"] == "RUNNING")
    with ThreadPoolExecutor(1) as pool:
        words = ("rebuild", "i-3", "--via", "jobs", "--force", "--yes")
        watched = pool.submit(real.tide, *words)
        until(lambda: real.slurm("squeue", "-h", "-a", "-p", "rebuild", "-o", "%j").strip() != "")
        time.sleep(3)
        assert not watched.done()
        real.slurm("scancel", "--name=rebuild-i-3")
        done = watched.result()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "i-3: its job was cancelled, or it was not rebuilt" in done.stderr
    assert real.job(held)["JobState"] == "RUNNING"
    real.slurm("scancel", held)
    until(lambda: not real.slurm("squeue", "-h", "-a").strip())


@pytest.mark.accepts("E30")
def test_a_node_that_could_not_start_serves_again_when_the_cause_is_gone(
    real: RealCluster,
) -> None:
    aim(real, SHORT, extra="bad")
    id = real.sbatch("cat /etc/image", "-p", "extra", "-w", "x-1")
    until(lambda: "node given back" in [e["what"] for e in real.events(node="x-1")])
    until(lambda: real.job(id)["JobState"] == "PENDING")
    aim(real, extra="one")
    real.finished(id)
    assert real.output(id) == ["one"]
    assert real.tide("suspend", "x-1").returncode == 0
