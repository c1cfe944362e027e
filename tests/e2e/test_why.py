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

from springtide.batch.running import TIMEOUT_S
from springtide.providers.containers.instances import is_alive, read_process
from tests.e2e.by_hand import tide
from tests.e2e.images import image
from tests.e2e.real import RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

SLOW = """#!/bin/sh
until [ -e GATE/open ]; do sleep 0.05; done
exec /opt/slurmd "$@"
"""
DEAD = """#!/bin/sh
until [ -e GATE/dead ]; do sleep 0.05; done
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
timing: {idle: 3600s, start: 120s, stop: 30s, reconcile: 1s}
"""


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """Images whose slurmd waits at a gate: it starts after that, or it dies."""
    path = Path(tempfile.mkdtemp(prefix="tide-why-", dir="/var/tmp"))
    path.chmod(0o755)
    (path / "gate").mkdir()
    wrapped = {"slow": SLOW, "dead": DEAD}
    try:
        with ExitStack() as stack:
            for name, text in wrapped.items():
                texts = {"/usr/sbin/slurmd": text.replace("GATE", str(path / "gate"))}
                copies = {"/opt/slurmd": "/usr/sbin/slurmd"}
                stack.enter_context(image(path / name, texts, copies))
            yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture(scope="module")
def real(root: Path) -> Iterator[RealCluster]:
    with cluster(SPEC.replace("ROOT", str(root))) as deployed:
        yield deployed


def asked(real: RealCluster, what: str) -> dict[str, Any]:
    return real.client.get(f"/why/{what}")


def why(real: RealCluster, what: str) -> dict[str, Any]:
    """The whole story: Slurm has 5 s to answer, and may need longer on a busy machine."""

    def whole() -> dict[str, Any] | None:
        story = asked(real, what)
        return None if story["problems"] else story

    return until(whole) or {}


def once(real: RealCluster, what: str, words: str) -> dict[str, Any]:
    """The story, as soon as it says this of now: an operation may be about to end."""

    def so() -> dict[str, Any] | None:
        story = why(real, what)
        return story if words in story["now"] else None

    return until(so) or {}


def printed(real: RealCluster, what: str) -> str:
    """What `tide why` says when Slurm has answered in time."""

    def whole() -> str:
        said = tide(real, "why", what)
        return "" if "tide: incomplete: " in said else said

    return until(whole)


def texts(story: dict[str, Any]) -> list[str]:
    return [line["text"] for line in story["past"]]


@pytest.mark.accepts("X5")
def test_a_node_that_is_off_and_idle_says_that_a_job_would_start_it(real: RealCluster) -> None:
    said = printed(real, "p-2").splitlines()
    assert said[0].startswith("now   p-2 is off and has no instance; Slurm shows IDLE+")
    assert "next  Slurm starts it when a job needs it." in said


@pytest.mark.accepts("X5")
def test_a_job_that_waits_for_a_booting_node_says_so_until_it_runs(
    real: RealCluster, root: Path
) -> None:
    id = real.sbatch("hostname; sleep 300", "-p", "slow", "-w", "s-1")
    until(lambda: real.states("s-1") == {"joining"})
    story = once(real, id, "at `wait registered`")
    assert story["now"].startswith(f"job {id} waits for s-1 to start; operation ")
    assert f"(resume by Slurm for job {id}) is at work since " in story["now"]
    assert texts(story)[0] == f"s-1: start ordered by Slurm for job {id}"
    assert "(timing.start) are removed, and it waits again." in story["next"]
    assert "s-1 boots: Slurm waits for its slurmd to report since " in printed(real, "s-1")
    (root / "gate" / "open").touch()
    until(lambda: why(real, id)["now"].startswith(f"job {id} runs on s-1"))
    node = once(real, "s-1", f" ago), and has job {id}; ")
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
    story = once(real, "p-1", "p-1 is out of service: ")
    assert story["now"].startswith("p-1 is out of service: root put it down; Slurm shows DOWN+")
    assert (
        story["next"] == "nothing: root put it down (kernel panic); `tide undrain p-1` ends that."
    )
    tide(real, "undrain", "p-1")
    until(lambda: " ago), and idle; " in why(real, "p-1")["now"])
    tide(real, "suspend", "p-1")


@pytest.mark.accepts("X5")
def test_who_starts_a_slurmctld_that_died_is_told(real: RealCluster) -> None:
    """Springtide does, unless it shall not. What it says when it does is soon over (unit tests)."""
    tide(real, "maintenance", "on", "--reason", "new switch")
    pid = int((real.state / "run" / "slurmctld.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    until(lambda: "slurmctld does not run; nothing by itself: maintenance" in tide(real, "status"))
    assert "by root (new switch)" in asked(real, "p-2")["next"]
    tide(real, "maintenance", "off")
    assert "nothing by itself" not in asked(real, "1")["next"] + asked(real, "p-2")["next"]
    until(lambda: "slurm does not answer" not in tide(real, "status"))


def out_of_service(real: RealCluster, node: str) -> str:
    """What `sinfo -R` says of a node, if it lists it."""
    lines = real.slurm("sinfo", "-R", "-h", "-N", "-o", "%N|%E").splitlines()
    return next((line.partition("|")[2] for line in lines if line.startswith(f"{node}|")), "")


def comment(real: RealCluster, id: str) -> str:
    shown = real.slurm("scontrol", "-o", "show", "job", id)
    return shown.partition(" AdminComment=springtide: ")[2].partition("  StdErr=")[0]


def why_held(real: RealCluster, node: str) -> str:
    """What `sinfo -R` says when the group of a node is held: it may say something else before."""
    said = out_of_service(real, node).removeprefix("springtide: ")
    return said if said.startswith("nodes do not start any more in group dead") else ""


def have_died(real: RealCluster, *nodes: str) -> bool:
    homes = [real.state / "containers" / "instances" / node for node in nodes]
    found = [read_process(home) for home in homes]
    return all(process is not None and not is_alive(process) for process in found)


def die_together(real: RealCluster, gate: Path) -> None:
    """While the daemon stands still: it looks every other second, and tells of each look."""
    assert real.daemon is not None
    real.daemon.send_signal(signal.SIGSTOP)
    try:
        gate.touch()
        until(lambda: have_died(real, "d-1", "d-2", "d-3"))
    finally:
        real.daemon.send_signal(signal.SIGCONT)


@pytest.mark.accepts("X5")
def test_job_comment_slurm_and_story_agree_why_nodes_could_not_start(
    real: RealCluster, root: Path
) -> None:
    """Three failed boots in a row hold the group, so its nodes are drained, which sinfo lists."""
    id = real.sbatch("hostname", "-p", "dead", "-N3")
    until(lambda: real.states("d-[1-3]") == {"joining"})
    die_together(real, root / "gate" / "dead")
    until(lambda: comment(real, id))
    listed = until(lambda: why_held(real, "d-1"))
    until(lambda: "POWERED_DOWN" in real.node("d-1")["State"])
    told = comment(real, id)
    assert told.startswith("d-[1-3] could not start, so the job waits again: ")

    cause = told.partition("again: ")[2]
    job = once(real, id, f"{told} (Slurm: ")
    node = once(real, "d-1", f"its last start failed: {cause}; ")
    assert job["now"].startswith(told)
    assert texts(job)[0] == f"d-[1-3]: could not start: {cause}"
    assert job["next"].startswith("group dead is held until ")
    assert listed in job["next"]
    assert job["next"] == node["next"]
    assert "`tide holds --lift dead` has it tried at once" in printed(real, "d-1")
    assert job["do"].startswith(
        "`tide log d-1` shows what d-1 said while it booted; when the cause"
    )
    real.slurm("scancel", id)


@pytest.mark.accepts("X5")
def test_a_job_that_is_over_tells_how_it_ended_as_long_as_slurm_knows(real: RealCluster) -> None:
    id = real.sbatch("hostname", "-w", "p-2")
    real.finished(id)
    until(lambda: why(real, id)["now"].startswith(f"job {id} completed at "))
    assert " UTC on p-2; the last that Springtide did for it is " in why(real, id)["now"]
    assert texts(why(real, id))[0].startswith(f"p-2: started by Slurm for job {id}; in service")


def test_a_job_that_was_cancelled_in_the_queue_says_so(real: RealCluster) -> None:
    id = real.sbatch("hostname", "--hold")
    real.slurm("scancel", id)
    until(lambda: why(real, id)["now"].startswith(f"job {id} was cancelled at "))
    unknown = why(real, "99999")["now"]
    assert unknown.startswith("Slurm knows no job 99999 any more; no node was started for it")


def answered_soon(real: RealCluster, what: str) -> str:
    """Nothing, if it took as long as Slurm's own command, as once in a while on a busy machine."""
    began = time.monotonic()
    said = tide(real, "why", what)
    return said if time.monotonic() - began < TIMEOUT_S else ""


def test_a_slurmctld_that_hangs_keeps_nobody_from_an_answer(real: RealCluster) -> None:
    pid = int((real.state / "run" / "slurmctld.pid").read_text().split()[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        said = until(lambda: answered_soon(real, "p-1"))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "tide: incomplete: no answer within 5 s" in said
    assert said.startswith("now   p-1 is ")
    assert "; Slurm does not answer, so this is our record" in said
