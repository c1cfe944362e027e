"""`tide why` on a real Slurm: what it says is what Slurm itself shows."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.by_hand import tide
from tests.e2e.images import image
from tests.e2e.real import RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

SLOW = """#!/bin/sh
until [ -e GATE/open ]; do sleep 0.05; done
exec /opt/slurmd "$@"
"""
DEAD = """#!/bin/sh
echo 'slurmd: fatal: no room on /var' >&2
exit 1
"""
SPEC = """
cluster: why
batch: {kind: slurm, port: 17050, node_port: 17052}
provider: {kind: containers, mounts: [SHARED, ROOT/gate]}
images:
  slow: {path: ROOT/slow}
  dead: {path: ROOT/dead}
groups:
  plain: {nodes: "p-[1-2]"}
  slow: {nodes: "s-[1-2]", image: slow}
  dead: {nodes: "d-[1-3]", image: dead}
partitions:
  plain: {groups: [plain], default: true}
  slow: {groups: [slow]}
  dead: {groups: [dead]}
timing: {idle: 3600s, start: 60s, stop: 30s}
"""


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """An image whose slurmd waits at a gate, and one whose slurmd dies."""
    path = Path(tempfile.mkdtemp(prefix="tide-why-", dir="/var/tmp"))
    path.chmod(0o755)
    (path / "gate").mkdir()
    wrapped = {"slow": SLOW.replace("GATE", str(path / "gate")), "dead": DEAD}
    try:
        with ExitStack() as stack:
            for name, text in wrapped.items():
                texts, copies = {"/usr/sbin/slurmd": text}, {"/opt/slurmd": "/usr/sbin/slurmd"}
                stack.enter_context(image(path / name, texts, copies))
            yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture(scope="module")
def real(root: Path) -> Iterator[RealCluster]:
    with cluster(SPEC.replace("ROOT", str(root))) as deployed:
        yield deployed


def why(real: RealCluster, what: str) -> dict[str, Any]:
    return real.client.get(f"/why/{what}")


def texts(story: dict[str, Any]) -> list[str]:
    return [line["text"] for line in story["past"]]


@pytest.mark.accepts("X5")
def test_a_node_that_is_off_and_idle_says_that_a_job_would_start_it(real: RealCluster) -> None:
    said = tide(real, "why", "p-2").splitlines()
    assert said[0].startswith("now   p-2 is off and has no instance; Slurm shows IDLE+")
    assert "next  Slurm starts it when a job needs it." in said


@pytest.mark.accepts("X5")
def test_a_job_that_waits_for_a_booting_node_says_so_until_it_runs(
    real: RealCluster, root: Path
) -> None:
    id = real.sbatch("hostname; sleep 300", "-p", "slow", "-w", "s-1")
    until(lambda: real.states("s-1") == {"joining"})
    story = why(real, id)
    assert story["now"].startswith(f"job {id} waits for s-1 to start; operation ")
    assert f"(resume by Slurm for job {id}) is at work since " in story["now"]
    assert "at `wait registered`" in story["now"]
    assert texts(story)[0] == f"s-1: start ordered by Slurm for job {id}"
    assert "(timing.start) are removed, and it waits again." in story["next"]
    assert "s-1 boots: Slurm waits for its slurmd to report since " in tide(real, "why", "s-1")
    (root / "gate" / "open").touch()
    until(lambda: why(real, id)["now"].startswith(f"job {id} runs on s-1"))
    node = why(real, "s-1")
    assert f"s-1 is in service and has job {id}, since " in node["now"]
    assert texts(node)[0].startswith(f"started by Slurm for job {id}; in service after ")
    real.slurm("scancel", id)
    until(lambda: not real.slurm("squeue", "-h", "--job", id).strip())


@pytest.mark.accepts("X5")
def test_a_node_that_an_admin_drained_says_who_and_how_to_end_it(real: RealCluster) -> None:
    tide(real, "drain", "p-1", "--reason", "bad fan")
    story = why(real, "p-1")
    assert story["now"].startswith("p-1 is off, and root drained it; Slurm shows IDLE+")
    assert story["next"] == "nothing: root drained it (bad fan); `tide undrain p-1` ends that."
    assert texts(story) == ["drained by root: bad fan"]
    assert "bad fan" in real.slurm("sinfo", "-R", "-h", "-o", "%E %N")
    tide(real, "undrain", "p-1")
    assert why(real, "p-1")["next"] == "Slurm starts it when a job needs it."


@pytest.mark.accepts("X5")
def test_what_a_person_put_down_comes_back_by_the_command_that_is_told(real: RealCluster) -> None:
    tide(real, "resume", "p-1")
    real.slurm("scontrol", "update", "nodename=p-1", "state=down", "reason=kernel panic")
    story = why(real, "p-1")
    assert story["now"].startswith("p-1 is out of service: root put it down; Slurm shows DOWN+")
    assert (
        story["next"] == "nothing: root put it down (kernel panic); `tide undrain p-1` ends that."
    )
    tide(real, "undrain", "p-1")
    until(lambda: why(real, "p-1")["now"].startswith("p-1 is in service and idle, since "))
    tide(real, "suspend", "p-1")


@pytest.mark.accepts("X5")
def test_who_starts_a_slurmctld_that_died_is_told(real: RealCluster) -> None:
    """Springtide does, unless it shall not."""
    tide(real, "maintenance", "on", "--reason", "new switch")
    pid = int((real.state / "run" / "slurmctld.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    until(lambda: "slurmctld does not run; nothing by itself: maintenance" in tide(real, "status"))
    assert "by root (new switch)" in why(real, "p-2")["next"]
    tide(real, "maintenance", "off")
    told = why(real, "1")["next"] + why(real, "p-2")["next"]
    assert "Springtide starts it again by itself" in told or "slurmctld" not in told
    until(lambda: "slurm does not answer" not in tide(real, "status"))


def out_of_service(real: RealCluster, node: str) -> str:
    """What `sinfo -R` says of a node, if it lists it."""
    lines = real.slurm("sinfo", "-R", "-h", "-N", "-o", "%N|%E").splitlines()
    return next((line.partition("|")[2] for line in lines if line.startswith(f"{node}|")), "")


def comment(real: RealCluster, id: str) -> str:
    shown = real.slurm("scontrol", "-o", "show", "job", id)
    return shown.partition(" AdminComment=springtide: ")[2].partition("  StdErr=")[0]


@pytest.mark.accepts("X5")
def test_job_comment_slurm_and_story_agree_why_nodes_could_not_start(real: RealCluster) -> None:
    """Three failed boots in a row hold the group, so its nodes are drained, which sinfo lists."""
    id = real.sbatch("hostname", "-p", "dead", "-N3")
    told = until(lambda: comment(real, id))
    assert told.startswith("d-[1-3] could not start, so the job waits again: ")
    listed = until(lambda: out_of_service(real, "d-1")).removeprefix("springtide: ")
    assert listed.startswith("nodes do not start any more in group dead")
    until(lambda: "POWERED_DOWN" in real.node("d-1")["State"])

    job, node = why(real, id), why(real, "d-1")
    assert job["now"].startswith(f"{told} (Slurm: ")
    assert texts(job)[0] == f"d-[1-3]: could not start: {told.partition('again: ')[2]}"
    assert f"its last start failed: {told.partition('again: ')[2]}; " in node["now"]
    assert job["next"].startswith("group dead is held until ")
    assert listed in job["next"]
    assert job["next"] == node["next"]
    assert "`tide holds --lift dead` has it tried at once" in tide(real, "why", "d-1")
    assert job["do"].startswith(
        "`tide log d-1` shows what d-1 said while it booted; when the cause"
    )
    real.slurm("scancel", id)


@pytest.mark.accepts("X5")
def test_what_we_know_of_a_job_is_told_when_slurm_knows_nothing_any_more(real: RealCluster) -> None:
    id = real.sbatch("hostname", "-w", "p-2")
    real.finished(id)
    until(lambda: why(real, id)["now"].startswith(f"Slurm knows no job {id} any more; the last"))
    assert texts(why(real, id))[0].startswith(f"p-2: started by Slurm for job {id}; in service")


def test_a_slurmctld_that_hangs_keeps_nobody_from_an_answer(real: RealCluster) -> None:
    pid = int((real.state / "run" / "slurmctld.pid").read_text().split()[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        said = tide(real, "why", "p-1")
        took_s = time.monotonic() - began
    finally:
        os.kill(pid, signal.SIGCONT)
    assert took_s < 10
    assert "tide: incomplete: " in said
    assert "p-1 is off and has no instance; Slurm does not answer, so this is our record" in said
