"""Nodes that do not come up: Slurm, the job and the admin are told why, and the log stays."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from springtide.cli.client import Refused
from tests.e2e.images import image
from tests.e2e.real import RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

START_S = 30
WITHOUT_B = """#!/bin/sh
for word; do
    shift
    [ "$word" = -b ] || set -- "$@" "$word"
done
exec /opt/slurmd "$@"
"""
ANOTHER_PORT = """#!/bin/sh
sed s/^SlurmctldPort=.*/SlurmctldPort=1/ "$SLURM_CONF" >/tmp/slurm.conf
export SLURM_CONF=/tmp/slurm.conf
exec /opt/slurmd -D -b -N "$TIDE_NODE" -f /tmp/slurm.conf
"""
SPEC = f"""
cluster: boots
batch: {{kind: slurm, port: 17010, node_port: 17012}}
provider: {{kind: containers, mounts: [SHARED]}}
images:
  userless: {{path: ROOT/userless}}
  bare: {{path: ROOT/bare}}
  early: {{path: ROOT/early}}
  lost: {{path: ROOT/lost}}
groups:
  plain: {{nodes: "plain-1"}}
  userless: {{nodes: "userless-1", image: userless}}
  hasty: {{nodes: "hasty-1", image: userless}}
  bare: {{nodes: "bare-1", image: bare}}
  early: {{nodes: "early-1", image: early}}
  lost: {{nodes: "lost-1", image: lost}}
partitions:
  main: {{groups: [plain, userless, bare, early, lost], default: true}}
  hasty: {{groups: [hasty], parameters: {{ResumeTimeout: 20}}}}
timing: {{idle: 3600s, start: {START_S}s, stop: 30s}}
"""


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """Image directories; slurmd proper is at /opt/slurmd in those that wrap it."""
    path = Path(tempfile.mkdtemp(prefix="tide-images-", dir="/var/tmp"))
    path.chmod(0o755)
    accounts = Path("/etc/passwd").read_text().splitlines(keepends=True)
    strangers = "".join(line for line in accounts if not line.startswith("slurm:"))
    copies = {"/opt/slurmd": "/usr/sbin/slurmd"}
    try:
        with ExitStack() as stack:
            enter = stack.enter_context
            enter(image(path / "userless", {"/etc/passwd": strangers}, {}))
            enter(image(path / "early", {"/usr/sbin/slurmd": WITHOUT_B}, copies))
            enter(image(path / "lost", {"/usr/sbin/slurmd": ANOTHER_PORT}, copies))
            enter(image(path / "bare", {"/usr/sbin/slurmd": "#!/no/such/shell\n"}, {}))
            yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture(scope="module")
def real(root: Path) -> Iterator[RealCluster]:
    with cluster(SPEC.replace("ROOT", str(root))) as deployed:
        yield deployed


def reason_in_slurm(real: RealCluster, name: str) -> str:
    """What Slurm was told as the node's reason, once it is ours; it shows it for a second or two.

    slurmctld writes it down, so it is not missed.
    """
    log = real.state / "log" / "slurmctld.log"
    mark = f"update_node: node {name} reason set to: springtide: "

    def ours() -> str:
        return next((line for line in log.read_text().splitlines() if mark in line), "")

    return until(ours).partition(" reason set to: ")[2]


def comment(real: RealCluster, job: str) -> str:
    shown = real.slurm("scontrol", "show", "job", job)
    return next((line for line in shown.splitlines() if "AdminComment=" in line), "")


def given_up(real: RealCluster, job: str, name: str) -> str:
    """The reason on record, when the node is off and its job is dropped."""
    real.slurm("scancel", job)
    until(lambda: real.states(name) == {"off"})
    (why,) = [e["detail"] for e in real.events(node=name) if e["what"] == "node failed"]
    assert real.record(name)[name]["reason"] == why
    return str(why)


@pytest.mark.accepts("A9", "A20")
def test_a_late_node_is_reported_with_what_its_boot_script_waits_for(real: RealCluster) -> None:
    id = real.sbatch("hostname", "-w", "userless-1")
    cause = "its boot script still waits: for the user slurm in /etc/passwd"
    why = f"it did not register within {START_S} s (timing.start); {cause}"
    assert reason_in_slurm(real, "userless-1") == f"springtide: {why}"
    assert f"userless-1 could not start, so the job waits again: {why}" in comment(real, id)
    assert given_up(real, id, "userless-1") == why
    assert not (real.state / "containers" / "instances" / "userless-1").exists()
    said = real.tide("log", "userless-1")
    assert said.returncode == 0, said.stderr
    first, *lines = said.stdout.splitlines()
    assert first == cause
    assert [line.split(" up ")[0] for line in lines] == [
        "",
        *(f"springtide: phase {name}" for name in ("started", "configuration", "mounts")),
        "waiting for the user slurm in /etc/passwd",
    ]
    assert "boot 1 of userless-1 failed at " in said.stderr
    kept = real.state / "boots" / "userless-1.1.log"
    assert (kept.stat().st_mode & 0o777) == 0o640


@pytest.mark.accepts("A20")
def test_an_image_whose_slurmd_cannot_run_is_told_long_before_the_deadline(
    real: RealCluster,
) -> None:
    id = real.sbatch("hostname", "-w", "bare-1")
    shown = reason_in_slurm(real, "bare-1")
    assert shown.startswith("springtide: its instance died while it booted: ")
    assert "slurmd: not found" in shown
    assert "slurmd: not found" in comment(real, id)
    assert "slurmd: not found" in given_up(real, id, "bare-1")
    said = real.tide("log", "bare-1").stdout
    assert "munged: Notice: Starting munge" in said
    own = [line for line in said.splitlines() if not line.startswith("munged: ")]
    assert own[-2].endswith("slurmd: not found")
    assert own[-1] == "the boot script ended with status 127"


def slurmd_of(name: str) -> int | None:
    """The process of a node's slurmd, told by its environment."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            mine = f"TIDE_NODE={name}\0".encode() in (path / "environ").read_bytes()
            if mine and (path / "comm").read_text() == "slurmd\n":
                return int(path.name)
        except OSError:
            continue
    return None


def console(real: RealCluster, name: str) -> str:
    """What it said so far; nothing, before there is one."""
    try:
        return str(real.client.get(f"/nodes/{name}/boot")["text"])
    except Refused:
        return ""


@pytest.mark.accepts("A20")
def test_a_slurmd_that_is_killed_while_it_joins_is_told(real: RealCluster) -> None:
    id = real.sbatch("hostname", "-w", "lost-1")
    until(lambda: "slurmd started on" in console(real, "lost-1"))
    pid = until(lambda: slurmd_of("lost-1"))
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert "its slurmd ended: killed by SIGKILL" in reason_in_slurm(real, "lost-1")
    assert "its slurmd ended: killed by SIGKILL" in comment(real, id)
    assert given_up(real, id, "lost-1").startswith("its slurmd ended: killed by SIGKILL")


@pytest.mark.accepts("B13", "A9")
def test_a_boot_time_before_the_request_makes_no_node_ready_and_is_told(
    real: RealCluster,
) -> None:
    """Without -b slurmd reports the boot of this machine, which was long before."""
    id = real.sbatch("hostname", "-w", "early-1")
    until(lambda: real.node("early-1")["BootTime"] not in ("", "None"))
    until(lambda: real.states("early-1") == {"joining"})
    (row,) = real.client.get("/nodes", names="early-1")["nodes"]
    assert not row["batch"]["registered"]
    assert real.job(id)["JobState"] == "CONFIGURING"
    assert "it seems to have booted before it was asked for" in reason_in_slurm(real, "early-1")
    why = given_up(real, id, "early-1")
    assert why.endswith("; run slurmd with -b")
    assert "node registered" not in [e["what"] for e in real.events(node="early-1")]
    assert not (real.shared / f"{id}.0.out").exists()


@pytest.mark.accepts("A20")
def test_what_slurm_itself_gives_up_is_told_with_its_cause(real: RealCluster) -> None:
    """ResumeFailProgram, when Slurm has less patience than we."""
    real.sbatch("hostname", "-p", "hasty", "-w", "hasty-1")
    cause = "its boot script still waits: for the user slurm in /etc/passwd"
    why = f"it did not register within ResumeTimeout; {cause}"
    assert why in reason_in_slurm(real, "hasty-1")
    (told,) = [e for e in real.events(node="hasty-1") if e["what"] == "resume failed"]
    assert told["detail"] == why
    real.slurm("scancel", "--user", "root")
    real.all_off("hasty-1")
    assert real.tide("log", "hasty-1").stdout.startswith(cause)


def test_the_log_of_a_node_that_is_up_is_its_console(real: RealCluster) -> None:
    id = real.sbatch("hostname", "-w", "plain-1")
    real.finished(id)
    said = real.tide("log", "plain-1")
    assert said.stderr == "tide: boot 1 of plain-1\n"
    assert "slurmd version" in said.stdout
