"""A real Slurm grows and shrinks: what users and admins see, row by row."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest

from tests.e2e.real import RealCluster, cluster, until

pytestmark = pytest.mark.real

IDLE_S = 4
STALL_S = 12.0
SPEC = f"""
cluster: auto
batch:
  kind: slurm
  port: 16817
  node_port: 16818
  parameters: {{JobCompType: jobcomp/filetxt, JobCompLoc: SHARED/jobs.txt}}
provider: {{kind: containers, mounts: [SHARED]}}
groups:
  general: {{nodes: "tx-[000-127]"}}
  kept: {{nodes: "keep-[1-2]", min: 1}}
  padded: {{nodes: "rack[01-02]n[1-6]"}}
  patient: {{nodes: "pat-[1-4]"}}
partitions:
  main: {{groups: [general], default: true}}
  kept: {{groups: [kept]}}
  racks: {{groups: [padded]}}
  patient: {{groups: [patient], parameters: {{SuspendTime: 3600}}}}
timing: {{idle: {IDLE_S}s, start: 2m, stop: 30s}}
"""


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC) as deployed:
        jobs = deployed.shared / "jobs.txt"
        jobs.touch()
        jobs.chmod(0o666)
        yield deployed


@pytest.fixture(autouse=True)
def quiet(real: RealCluster) -> Iterator[None]:
    """Each test begins and ends with nothing up but what is always up."""
    yield
    real.all_off("tx-[000-127],rack[01-02]n[1-6],pat-[1-4]")


def held(real: RealCluster, script: str, *options: str) -> tuple[str, Path]:
    """A job that ends when the file is there."""
    go = real.shared / f"go-{len(list(real.shared.glob('go-*')))}"
    id = real.sbatch(f"{script}; until [ -e {go} ]; do sleep 0.1; done", *options)
    return id, go


@contextmanager
def stopped(real: RealCluster) -> Iterator[None]:
    """The daemon does nothing; what Slurm asks meanwhile waits for it on disk."""
    assert real.daemon is not None
    real.daemon.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        real.daemon.send_signal(signal.SIGCONT)


@pytest.mark.accepts("E5", "C13", "C17")
def test_a_ranged_list_with_a_gap_makes_exactly_these_instances(real: RealCluster) -> None:
    with stopped(real):  # nodes cannot come up meanwhile
        id, go = held(real, "srun hostname", "-N3", "-w", "tx-[003-004,008]")
        until(lambda: real.job(id)["JobState"] == "CONFIGURING")
    until(lambda: real.job(id)["JobState"] == "RUNNING")
    created = {e["node"]: e for e in real.events() if e["what"] == "instance created"}
    assert {"tx-003", "tx-004", "tx-008"} == {name for name in created if name.startswith("tx")}
    for name in ("tx-003", "tx-004", "tx-008"):
        address = real.record(name)[name]["address"]
        assert real.node(name)["NodeAddr"] == address
        assert address in created[name]["detail"]
    go.touch()
    real.finished(id)
    assert real.output(id) == ["tx-003", "tx-004", "tx-008"]
    real.all_off("tx-[003-004,008]")
    story = [e["what"] for e in real.events(node="tx-008")]
    assert story == [
        "node requested",
        "instance created",
        "address told",
        "node registered",
        "instance deleting",
        "instance gone",
    ]


@pytest.mark.accepts("C31")
def test_the_host_name_a_job_prints_is_the_node_slurm_accounts_for(real: RealCluster) -> None:
    id = real.slurm(
        "sbatch", "--parsable", "--wait", "-o", f"{real.shared}/%A.0.out", "--wrap", "hostname"
    ).strip()
    listed = until(
        lambda: real.slurm("sacct", "-c", "-n", "-P", "-j", id, "-o", "NodeList").split()
    )
    assert real.output(id) == listed


@pytest.mark.accepts("E11", "C15")
def test_nodes_go_when_they_were_idle_for_long_enough_and_not_before(real: RealCluster) -> None:
    id = real.sbatch("hostname; date +%s.%N", "-w", "tx-020")
    real.finished(id)
    end = float(next(line for line in real.output(id) if line[0].isdigit()))
    real.all_off("tx-020")
    (deleting,) = [e for e in real.events(node="tx-020") if e["what"] == "instance deleting"]
    assert deleting["at"] - end >= IDLE_S


@pytest.mark.accepts("E8")
def test_a_suspend_restarts_nothing_and_jobs_elsewhere_go_on(real: RealCluster) -> None:
    started = real.slurm("scontrol", "show", "config").split("BOOT_TIME")[1].splitlines()[0]
    long, go = held(real, "true", "-w", "tx-030")
    short = real.sbatch("true", "-w", "tx-031")
    until(lambda: real.job(long)["JobState"] == "RUNNING")
    real.finished(short)
    real.all_off("tx-031")
    assert real.job(long)["JobState"] == "RUNNING"
    again = real.slurm("scontrol", "show", "config").split("BOOT_TIME")[1].splitlines()[0]
    assert again == started
    go.touch()
    real.finished(long)
    assert real.job(long)["Restarts"] == "0"


@pytest.mark.accepts("C29", "E27")
def test_an_admin_powers_a_node_up_and_down_with_slurms_own_command(real: RealCluster) -> None:
    real.slurm("scontrol", "update", "nodename=pat-1", "state=power_up")
    until(lambda: real.states("pat-1") == {"ready"})
    until(lambda: real.node("pat-1")["State"] == "IDLE+CLOUD")
    real.slurm("scontrol", "update", "nodename=pat-1", "state=power_down")
    real.all_off("pat-1")


@pytest.mark.accepts("E13", "E12")
def test_a_reboot_asked_of_slurm_with_the_same_image_is_a_real_reboot(real: RealCluster) -> None:
    real.slurm("scontrol", "update", "nodename=pat-2", "state=power_up")
    until(lambda: real.states("pat-2") == {"ready"})
    before, boot = real.record("pat-2")["pat-2"], until(lambda: booted_at(real, "pat-2"))
    until(lambda: time.strftime("%FT%T") > boot)  # in the same second it would look like this one
    real.slurm("scontrol", "reboot", "ASAP", "nextstate=resume", "pat-2")
    until(lambda: booted_at(real, "pat-2") > boot)
    until(lambda: real.node("pat-2")["State"] == "IDLE+CLOUD")
    until(lambda: real.states("pat-2") == {"ready"})
    after = real.record("pat-2")["pat-2"]
    for same in ("instance", "image", "address", "generation"):
        assert after[same] == before[same]
    assert "instance rebooted" in [e["what"] for e in real.events(node="pat-2")]
    real.finished(real.sbatch("hostname", "-p", "patient", "-w", "pat-2"))
    real.slurm("scontrol", "update", "nodename=pat-2", "state=power_down")


def booted_at(real: RealCluster, name: str) -> str:
    """Empty as long as slurmctld does not tell."""
    return str(real.node(name)["BootTime"]).replace("None", "")


@pytest.mark.accepts("E27", "E7")
def test_resume_and_suspend_by_hand_at_once_both_finish(real: RealCluster) -> None:
    assert real.tide("resume", "pat-[3-4]").returncode == 0
    assert real.states("pat-[3-4]") == {"ready"}
    down = real.client.post("/operations", {"operation": "suspend", "nodes": "pat-[3-4]"})
    up = real.client.post("/operations", {"operation": "resume", "nodes": "pat-[3-4]"})
    assert down["asked"] == "pat-[3-4]"
    assert {one["kind"] for one in up["operations"]} <= {"resume"}
    until(lambda: all(o["ended_at"] for o in real.client.get("/operations")["operations"]))
    assert real.tide("suspend", "pat-[3-4]").returncode == 0
    real.all_off("pat-[3-4]")


@pytest.mark.accepts("B5", "E32", "E28")
def test_twelve_nodes_with_padded_names_come_up_in_parallel(real: RealCluster) -> None:
    id = real.sbatch("srun hostname", "-N12", "-p", "racks")
    real.finished(id)
    expected = sorted(f"rack{r:02}n{n}" for r in (1, 2) for n in range(1, 7))
    assert real.output(id) == expected
    created = [e for e in real.events() if e["what"] == "instance created" and "rack" in e["node"]]
    registered = [
        e for e in real.events() if e["what"] == "node registered" and "rack" in e["node"]
    ]
    assert len({e["operation"] for e in created}) == 1
    assert max(e["at"] for e in created) <= min(e["at"] for e in registered)


@pytest.mark.accepts("B16")
def test_a_node_runs_with_the_controllers_configuration(real: RealCluster) -> None:
    id = real.sbatch("scontrol show config | grep HASH_VAL", "-w", "tx-060")
    real.finished(id)
    assert real.output(id) == ["=", "HASH_VAL", "Match"]


@pytest.mark.accepts("B10")
def test_the_tree_is_as_wide_as_the_cluster(real: RealCluster) -> None:
    shown = real.slurm("scontrol", "show", "config")
    (line,) = [line for line in shown.splitlines() if line.startswith("TreeWidth")]
    assert int(line.split("=")[1]) >= 128 + 2 + 12 + 4


@pytest.mark.accepts("C18")
def test_every_configured_node_is_listed_with_all_three_views(real: RealCluster) -> None:
    rows = {row["name"]: row for row in real.client.get("/nodes")["nodes"]}
    assert len(rows) == 128 + 2 + 12 + 4
    assert rows["tx-127"]["batch"]["flags"] == ["CLOUD", "POWERED_DOWN"]
    assert rows["tx-127"]["instances"] == []
    assert rows["keep-1"]["instances"][0]["state"] == "running"
    listed = real.tide("nodes", "--each").stdout
    assert "tx-127" in listed
    assert "keep-1" in listed


def test_a_batch_job_starts_without_slurms_thirty_second_stall(real: RealCluster) -> None:
    """Its timer alone would take 13 s more than the nodes at the least, and mostly half a minute.

    An array is the worse case. A machine that stalls may hold up one, but not most of them.
    """
    say = "echo $(hostname)@$(date +%s.%N)"
    single = real.sbatch(say, "-w", "tx-070")
    tasks = real.sbatch(say, "--array=1-8", "--exclusive")
    real.finished(single)
    real.finished(tasks)
    ran = [line.split("@") for line in real.output(single) + real.output(tasks)]
    up = {e["node"]: e["at"] for e in real.events() if e["what"] == "node registered"}
    assert len(ran) == 9
    assert median(float(at) - up[name] for name, at in ran) < STALL_S


@pytest.mark.accepts("E25")
def test_the_hook_refuses_an_empty_list_and_an_unknown_program(real: RealCluster) -> None:
    programs = real.state / "bin"
    empty = real.try_slurm(str(programs / "resume"), "")
    assert empty.returncode == 2
    assert "one host list" in empty.stderr
    unknown = real.try_slurm(str(programs / "hook"), "tx-001")
    assert unknown.returncode == 2
    assert "call me as one of resume, suspend" in unknown.stderr

    def complaint() -> str:
        """Nobody can be told when a daemon does not answer soon, which finds the list on disk."""
        strange = real.try_slurm(str(programs / "resume"), "nowhere-[1-3]")
        return strange.stderr if strange.returncode == 1 else ""

    assert "nowhere-[1-3]" in until(complaint)


def test_a_program_called_by_a_plain_user_has_no_effect(real: RealCluster) -> None:
    refused = real.try_slurm(str(real.state / "bin" / "resume"), "tx-099", user="nobody")
    assert refused.returncode == 1
    assert real.states("tx-099") == {"off"}


@pytest.mark.accepts("B7")
def test_check_finds_a_program_that_slurm_would_not_run(real: RealCluster) -> None:
    until(lambda: real.tide("check", str(real.file)).returncode == 0)
    program = real.state / "bin" / "hook"
    program.chmod(0o775)
    try:
        found = real.tide("check", str(real.file))
    finally:
        program.chmod(0o755)
    assert found.returncode == 1
    assert "may be written by its group or others" in found.stdout + found.stderr
