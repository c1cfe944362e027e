"""A real Slurm grows and shrinks: what users and admins see, row by row."""

import time
from collections.abc import Iterator

import pytest

from tests.e2e.real import RealCluster, cluster, until

pytestmark = pytest.mark.real

IDLE_S = 4
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
partitions:
  main: {{groups: [general], default: true}}
  kept: {{groups: [kept]}}
  racks: {{groups: [padded]}}
timing: {{idle: {IDLE_S}s, start: 30s, stop: 30s}}
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
    real.all_off("tx-[000-127],rack[01-02]n[1-6]")


@pytest.mark.accepts("E5", "C13", "C17")
def test_a_ranged_list_with_a_gap_makes_exactly_these_instances(real: RealCluster) -> None:
    id = real.sbatch("srun hostname", "-N3", "-w", "tx-[003-004,008]")
    seen = set()

    def running() -> bool:
        seen.add(real.job(id).get("JobState"))
        return "RUNNING" in seen or "COMPLETED" in seen

    until(running, pause_s=0.02)
    assert "CONFIGURING" in seen
    created = {e["node"]: e for e in real.events() if e["what"] == "instance created"}
    assert {"tx-003", "tx-004", "tx-008"} == {name for name in created if name.startswith("tx")}
    for name in ("tx-003", "tx-004", "tx-008"):
        address = real.record(name)[name]["address"]
        assert real.node(name)["NodeAddr"] == address
        assert address in created[name]["detail"]
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
    listed = real.slurm("sacct", "-c", "-n", "-P", "-j", id, "-o", "NodeList").split()
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
    long = real.sbatch(f"sleep {IDLE_S + 6}", "-w", "tx-030")
    short = real.sbatch("true", "-w", "tx-031")
    real.finished(short)
    real.all_off("tx-031")
    assert real.job(long)["JobState"] == "RUNNING"
    again = real.slurm("scontrol", "show", "config").split("BOOT_TIME")[1].splitlines()[0]
    assert again == started
    real.finished(long)
    assert real.job(long)["Restarts"] == "0"


@pytest.mark.accepts("C29", "E27")
def test_an_admin_powers_a_node_up_and_down_with_slurms_own_command(real: RealCluster) -> None:
    real.slurm("scontrol", "update", "nodename=tx-040", "state=power_up")
    until(lambda: real.states("tx-040") == {"ready"})
    until(lambda: real.node("tx-040")["State"] == "IDLE+CLOUD")
    real.slurm("scontrol", "update", "nodename=tx-040", "state=power_down")
    real.all_off("tx-040")


@pytest.mark.accepts("E13", "E12")
def test_a_reboot_asked_of_slurm_with_the_same_image_is_a_real_reboot(real: RealCluster) -> None:
    real.slurm("scontrol", "update", "nodename=tx-090", "state=power_up")
    until(lambda: real.states("tx-090") == {"ready"})
    before, boot = real.record("tx-090")["tx-090"], real.node("tx-090")["BootTime"]
    real.slurm("scontrol", "reboot", "ASAP", "nextstate=resume", "tx-090")
    until(lambda: real.node("tx-090")["BootTime"] > boot)
    until(lambda: real.node("tx-090")["State"] == "IDLE+CLOUD")
    until(lambda: real.states("tx-090") == {"ready"})
    after = real.record("tx-090")["tx-090"]
    for same in ("instance", "image", "address", "generation"):
        assert after[same] == before[same]
    assert "instance rebooted" in [e["what"] for e in real.events(node="tx-090")]
    real.finished(real.sbatch("hostname", "-w", "tx-090"))


@pytest.mark.accepts("E27", "E7")
def test_resume_and_suspend_by_hand_at_once_both_finish(real: RealCluster) -> None:
    assert real.tide("resume", "tx-[050-051]").returncode == 0
    assert real.states("tx-[050-051]") == {"ready"}
    down = real.client.post("/operations", {"operation": "suspend", "nodes": "tx-[050-051]"})
    up = real.client.post("/operations", {"operation": "resume", "nodes": "tx-[050-051]"})
    assert down["asked"] == "tx-[050-051]"
    assert {one["kind"] for one in up["operations"]} <= {"resume"}
    until(lambda: all(o["ended_at"] for o in real.client.get("/operations")["operations"]))
    real.all_off("tx-[050-051]")


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


@pytest.mark.accepts("E10")
@pytest.mark.timeout(240)
def test_the_first_act_of_a_job_reads_the_shared_filesystem_a_hundred_times(
    real: RealCluster,
) -> None:
    (real.shared / "data").write_text("here")
    id = real.sbatch(f"cat {real.shared}/data; echo", "--array=1-100", "--exclusive")
    real.finished(id, 120)
    assert real.output(id) == ["here"] * 100


@pytest.mark.accepts("B16")
def test_a_node_runs_with_the_controllers_configuration(real: RealCluster) -> None:
    id = real.sbatch("scontrol show config | grep HASH_VAL", "-w", "tx-060")
    real.finished(id)
    assert real.output(id) == ["=", "HASH_VAL", "Match"]


@pytest.mark.accepts("B10")
def test_the_tree_is_as_wide_as_the_cluster(real: RealCluster) -> None:
    shown = real.slurm("scontrol", "show", "config")
    (line,) = [line for line in shown.splitlines() if line.startswith("TreeWidth")]
    assert int(line.split("=")[1]) >= 128 + 2 + 12


@pytest.mark.accepts("C18")
def test_every_configured_node_is_listed_with_all_three_views(real: RealCluster) -> None:
    rows = {row["name"]: row for row in real.client.get("/nodes")["nodes"]}
    assert len(rows) == 128 + 2 + 12
    assert rows["tx-127"]["batch"]["flags"] == ["CLOUD", "POWERED_DOWN"]
    assert rows["tx-127"]["instances"] == []
    assert rows["keep-1"]["instances"][0]["state"] == "running"
    listed = real.tide("nodes", "--each").stdout
    assert "tx-127" in listed
    assert "keep-1" in listed


def test_a_batch_job_starts_without_slurms_thirty_second_stall(real: RealCluster) -> None:
    """Slurm's timer alone would take 14 s at the least; an array is the worse case."""
    began = time.time()
    single = real.sbatch("date +%s.%N", "-w", "tx-070")
    tasks = real.sbatch("date +%s.%N", "--array=1-8", "--exclusive")
    real.finished(single)
    real.finished(tasks)
    times = [float(line) for line in real.output(single) + real.output(tasks)]
    assert len(times) == 9
    assert max(times) - began < 14


@pytest.mark.accepts("E25")
def test_the_hook_refuses_an_empty_list_and_an_unknown_program(real: RealCluster) -> None:
    programs = real.state / "bin"
    empty = real.try_slurm(str(programs / "resume"), "")
    assert empty.returncode == 2
    assert "one host list" in empty.stderr
    unknown = real.try_slurm(str(programs / "hook"), "tx-001")
    assert unknown.returncode == 2
    assert "call me as one of resume, suspend" in unknown.stderr
    strange = real.try_slurm(str(programs / "resume"), "nowhere-[1-3]")
    assert strange.returncode == 1
    assert "nowhere-[1-3]" in strange.stderr


def test_a_program_called_by_a_plain_user_has_no_effect(real: RealCluster) -> None:
    refused = real.try_slurm(str(real.state / "bin" / "resume"), "tx-099", user="nobody")
    assert refused.returncode == 1
    assert real.states("tx-099") == {"off"}


@pytest.mark.accepts("B7")
def test_check_finds_a_program_that_slurm_would_not_run(real: RealCluster) -> None:
    assert real.tide("check", str(real.file)).returncode == 0
    program = real.state / "bin" / "hook"
    program.chmod(0o775)
    try:
        found = real.tide("check", str(real.file))
    finally:
        program.chmod(0o755)
    assert found.returncode == 1
    assert "may be written by its group or others" in found.stdout + found.stderr
