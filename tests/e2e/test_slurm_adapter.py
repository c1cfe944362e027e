"""The Slurm adapter against a real slurmctld, with real slurmds on machines of their own."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.batch import slurm_conf, slurm_nodes, slurm_service
from springtide.batch.slurm import Slurm
from springtide.batch.slurm_nodes import MOST_NODES
from springtide.batch.slurm_versions import Change, one_job_at_a_time
from springtide.nodeset import expand
from springtide.ports import OURS, BatchNode, Power, Site, Unavailable
from springtide.spec import load
from tests.e2e.slurm_lab import Lab, called, early_in_a_second, job_in, made_lab, seen, until
from tests.slurm_release import before, installed

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CASES = Path(__file__).parents[1] / "cases" / "slurm_conf"


@pytest.fixture
async def lab(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    """On a busy machine slurmctld may take its time to begin with what it is asked for."""
    monkeypatch.setattr(slurm_nodes, "BEGIN_S", 60.0)
    async with made_lab() as lab:
        yield lab


# Starting, finding again, stopping


async def test_reload_starts_a_controller_and_a_second_one_changes_nothing(lab: Lab) -> None:
    slurm = await lab.up()
    before = lab.pid(), lab.pid("munged"), (lab.layout.conf / "slurm.conf").stat().st_mtime_ns
    await slurm.reload(Site(lab.address))
    assert before == (
        lab.pid(),
        lab.pid("munged"),
        (lab.layout.conf / "slurm.conf").stat().st_mtime_ns,
    )
    assert (await slurm.nodes()).keys() == {f"c{i}" for i in range(1, 9)}
    assert (await slurm.version())[:2].isdecimal()


@pytest.mark.accepts("E32")
async def test_a_cluster_without_nodes_is_legal(lab: Lab) -> None:
    slurm = await lab.up(groups={})
    assert await slurm.nodes() == {}
    assert await slurm.jobs() == []


async def test_two_clusters_share_a_port_on_different_addresses(lab: Lab) -> None:
    slurm = await lab.up("c1")
    other = replace(lab, home=lab.home / "other", address="127.0.0.2")
    other.home.mkdir()
    theirs = await other.up("d1")
    assert (await slurm.nodes()).keys() == {"c1"}
    assert (await theirs.nodes()).keys() == {"d1"}
    await theirs.stop()
    assert (await slurm.nodes()).keys() == {"c1"}


async def test_a_taken_port_is_told_with_the_key_to_change(lab: Lab) -> None:
    with socket.socket() as squatter:
        squatter.bind((lab.address, lab.port))
        squatter.listen()
        with pytest.raises(Unavailable, match=rf"port {lab.port} .* is taken .* set batch\.port"):
            await lab.up()


async def test_an_address_that_is_not_ours_is_told(lab: Lab) -> None:
    lab.address = "192.0.2.200"
    with pytest.raises(Unavailable, match=r"cannot listen on 192\.0\.2\.200"):
        await lab.up()


async def test_a_controller_that_dies_at_its_start_says_why(lab: Lab) -> None:
    with pytest.raises(Unavailable, match=r"slurmctld died at its start: .*sched/nonsense"):
        await lab.up(parameters={"SchedulerType": "sched/nonsense"})


async def test_a_configuration_that_slurm_cannot_read_is_never_put_in_place(lab: Lab) -> None:
    slurm = await lab.up()
    before = {path.name: path.read_text() for path in lab.layout.conf.iterdir()}
    wrong = lab.adapter(lab.cluster(parameters={"Nonsense": "1"}))
    with pytest.raises(Unavailable, match=r"would not read its new configuration: .*Nonsense"):
        await wrong.reload(Site(lab.address))
    assert {path.name: path.read_text() for path in lab.layout.conf.iterdir()} == before
    assert await slurm.nodes()


async def test_a_user_that_does_not_exist_is_told(lab: Lab) -> None:
    cluster = lab.cluster()
    batch = cluster.batch.model_copy(update={"user": "nosuchuser"})
    slurm = lab.adapter(cluster.model_copy(update={"batch": batch}))
    with pytest.raises(Unavailable, match=r"no user nosuchuser .* set batch\.user"):
        await slurm.reload(Site(lab.address))


async def test_a_state_directory_that_slurm_cannot_enter_is_told(lab: Lab) -> None:
    lab.home.chmod(0o700)
    with pytest.raises(Unavailable, match=f"user slurm may not enter {lab.home}"):
        await lab.up()


async def test_a_missing_key_is_told(lab: Lab) -> None:
    lab.install()
    lab.layout.munge_key.unlink()
    with pytest.raises(Unavailable, match=r"munge\.key is missing"):
        await lab.adapter(lab.cluster()).reload(Site(lab.address))


KILLED_DAEMON = """\
import asyncio, json, os, signal, sys
from springtide.batch.slurm import Slurm
from springtide.ports import Site
from springtide.spec import Cluster
cluster = Cluster.model_validate(json.loads(sys.argv[1]))
asyncio.run(Slurm(cluster).reload(Site(sys.argv[2])))
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_the_controller_outlives_a_killed_daemon_and_is_found_again(lab: Lab) -> None:
    lab.install()
    cluster = lab.cluster("c[1-2]")
    spec = cluster.model_dump_json(exclude_defaults=True)
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED_DAEMON, spec, lab.address
    )
    assert await killed.wait() == -signal.SIGKILL
    pid = lab.pid()
    slurm = lab.adapter(cluster)
    assert (await slurm.nodes()).keys() == {"c1", "c2"}
    await slurm.reload(Site(lab.address))
    assert lab.pid() == pid
    await slurm.stop()
    with pytest.raises(Unavailable):
        await lab.adapter(cluster, timeout_s=1).nodes()


async def test_nobody_of_ours_is_left_unreaped(lab: Lab) -> None:
    """Other tests of this process may have left theirs running for those that follow."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    slurm = await lab.up()
    assert str(lab.pid()) not in children.read_text().split()
    await slurm.stop()
    assert set(children.read_text().split()) <= set(before.split())


async def test_a_controller_that_does_not_end_is_killed_with_its_children(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_service, "STOP_S", 0.2)
    monkeypatch.setattr(slurm_service, "KILL_S", 60.0)
    slurm = await lab.up()
    pid = lab.pid()
    os.kill(pid, signal.SIGSTOP)
    await slurm.stop()

    async def gone() -> bool:
        return not [p for p in _group(pid) if p.alive]

    await until(gone)


def _group(leader: int) -> list[slurm_service.Process]:
    """The processes of a process group."""
    stats = [slurm_service.read(path / "stat") for path in Path("/proc").glob("[0-9]*")]
    members = [s for s in stats if s and s.rsplit(")", 1)[1].split()[2] == str(leader)]
    return [process for process in map(slurm_service.parse_stat, members) if process]


async def test_another_process_with_the_noted_id_is_left_alone(lab: Lab) -> None:
    slurm = await lab.up()
    await slurm.stop()
    bystander = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        await until(lambda: is_named(bystander.pid))
        stat = slurm_service.read(f"/proc/{bystander.pid}/stat")
        process = slurm_service.parse_stat(stat)
        assert process is not None
        lab.named().with_suffix(".started").write_text(f"{process.start}\n")
        for text in (f"{bystander.pid}\n", stat):
            lab.named().write_text(text)
            await slurm.stop()
            assert bystander.returncode is None
    finally:
        bystander.kill()
        await bystander.wait()


async def is_named(pid: int) -> bool:
    """Not while it becomes another program."""
    return bool(slurm_service.read(f"/proc/{pid}/cmdline"))


HEADLESS = """\
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


async def test_a_process_lives_as_long_as_one_of_its_threads() -> None:
    """Its ports are taken until then, though its first thread has ended."""
    headless = await asyncio.create_subprocess_exec(sys.executable, "-c", HEADLESS)
    try:
        process = slurm_service.parse_stat(slurm_service.read(f"/proc/{headless.pid}/stat"))
        assert process is not None
        await until(lambda: is_zombie(headless.pid))
        assert process.alive
    finally:
        headless.kill()
        await headless.wait()
    assert not process.alive


async def is_zombie(pid: int) -> bool:
    return slurm_service.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0] == "Z"


async def test_a_file_that_names_a_process_may_be_given_to_kill(lab: Lab) -> None:
    slurm = await lab.up()
    for path in sorted(lab.layout.run.glob("*.pid")):
        assert path.read_text() == f"{lab.pid(path.stem)}\n"
        words = slurm_service.read(f"/proc/{lab.pid(path.stem)}/cmdline").split("\0")
        assert words[0] == path.stem
    os.kill(lab.pid(), signal.SIGTERM)

    async def gone() -> bool:
        return await slurm.standing() == "slurmctld does not run"

    await until(gone)


async def test_services_of_before_are_found_and_named_anew(lab: Lab) -> None:
    """They had a line of /proc in that file, with words that mean every process."""
    slurm = await lab.up()
    pids = {name: lab.pid(name) for name in ("munged", "slurmctld")}
    for name, pid in pids.items():
        lab.named(name).with_suffix(".started").unlink()
        lab.named(name).write_text(slurm_service.read(f"/proc/{pid}/stat"))
    assert await slurm.standing() == ""
    await slurm.reload(Site(lab.address))
    assert {name: lab.pid(name) for name in pids} == pids
    assert await slurm.standing() == ""
    await slurm.stop()
    assert [*lab.layout.run.glob("*.pid"), *lab.layout.run.glob("*.started")] == []


async def test_a_dead_controller_is_started_again_and_remembers(lab: Lab) -> None:
    slurm = await lab.up()
    await slurm.set_addresses({"c1": "127.0.0.9"})
    job = lab.submit("--hold")
    lab.run("scontrol", "shutdown", "slurmctld")

    async def gone() -> bool:
        return await slurm.standing() == "slurmctld does not run"

    await until(gone)
    await slurm.reload(Site(lab.address))
    assert (await slurm.nodes(["c1"]))["c1"].address == "127.0.0.9"
    assert [j.id for j in await slurm.jobs()] == [job]


async def test_new_limits_are_reread_but_new_nodes_restart_the_controller(lab: Lab) -> None:
    slurm = await lab.up("c[1-4]")
    job, pid = lab.submit("--hold"), lab.pid()
    lab.admin_drains("c4")
    await slurm.set_addresses({"c3": "127.0.0.9"})
    await slurm.power_up(["c3"])
    await seen(slurm, "c3", lambda node: "POWERING_UP" in node.flags)
    busier = lab.adapter(lab.cluster(groups={"general": {"nodes": "c[1-4]", "min": 2}}))
    await busier.reload(Site(lab.address))
    assert lab.pid() == pid
    assert "SuspendExcNodes         = c[1-2]" in lab.run("scontrol", "show", "config")
    assert (await busier.nodes())["c3"].power is Power.GOING_UP
    bigger = lab.adapter(lab.cluster(groups={"general": {"nodes": "c[1-6]", "min": 2}}))
    await bigger.reload(Site(lab.address))
    assert lab.pid() != pid
    nodes = await bigger.nodes()
    assert len(nodes) == 6
    assert (nodes["c3"].power, nodes["c3"].address) == (Power.GOING_UP, "127.0.0.9")
    assert (nodes["c4"].owner, nodes["c4"].reason) == ("root", "disk")
    assert [j.id for j in await bigger.jobs()] == [job]
    smaller = lab.adapter(lab.cluster("c[1-4]"))
    await smaller.reload(Site(lab.address))
    nodes = await smaller.nodes()
    assert [name for name, node in nodes.items() if node.drained] == ["c4"]
    assert (len(nodes), nodes["c3"].power) == (4, Power.GOING_UP)
    assert [j.id for j in await smaller.jobs()] == [job]


@pytest.mark.parametrize("case", ["small", "no_nodes", "parameters"])
async def test_each_golden_configuration_is_taken_by_a_real_controller(case: str, lab: Lab) -> None:
    lab.install()
    cluster = load(CASES / f"{case}.yaml")
    batch = cluster.batch.model_copy(update={"port": lab.port, "user": "slurm"})
    slurm = lab.adapter(cluster.model_copy(update={"state": lab.layout.state, "batch": batch}))
    await slurm.reload(Site(lab.address))
    assert (await slurm.nodes()).keys() == cluster.node_group.keys()


@pytest.mark.accepts("B8")
async def test_machines_on_premises_and_nodes_always_up_are_never_suspended(lab: Lab) -> None:
    groups = {
        "rack": {"nodes": "r3", "provider": {"kind": "none"}, "addresses": lab.places("r3")},
        "cloud": {"nodes": "c[1-2]", "min": 1},
    }
    slurm = await lab.up(groups=groups, timing={"idle": "1s"})
    await slurm.set_addresses(lab.places("c1", "c2"))
    with lab.slurmd("r3"), lab.slurmd("c1"):
        for name in ("r3", "c1"):
            await seen(slurm, name, lambda node: node.registered)
        with lab.slurmd("c2"):
            # The last to come is the only one to go.
            await seen(slurm, "c2", lambda node: node.power is Power.GOING_DOWN)
        nodes = await slurm.nodes()
    assert "CLOUD" not in nodes["r3"].flags
    assert nodes["r3"].registered
    assert nodes["c1"].registered


@pytest.mark.accepts("B12", "C16")
async def test_nodes_start_and_stop_at_the_rates_of_the_spec(lab: Lab) -> None:
    slurm = await lab.up("c[1-8]", resume_rate=3, suspend_rate=2)
    await slurm.power_up([f"c{i}" for i in range(1, 9)])
    await seen(slurm, "c1", lambda node: "POWERING_UP" in node.flags)
    await slurm.give_back(["c1", "c2", "c3"], "not wanted")
    await seen(slurm, "c1", lambda node: "POWERING_DOWN" in node.flags)

    # 22.05 begins with a minute's share, newer ones spread it over the minute.
    assert (await called(lab, "resume"))[0] in ("resume c[1-3]", "resume c1")
    assert (await called(lab, "suspend"))[0] in ("suspend c[1-2]", "suspend c1")


# Reading and changing


async def test_nodes_that_slurm_does_not_know_are_left_out(lab: Lab) -> None:
    slurm = await lab.up()
    assert (await slurm.nodes(["c2", "x1", "c1"])).keys() == {"c1", "c2"}
    assert await slurm.nodes(["x1"]) == {}
    assert await slurm.nodes([]) == {}


@before(Change.SHOWS_POWERED_DOWN)
async def test_hidden_nodes_are_taken_to_be_powered_down(lab: Lab) -> None:
    slurm = await lab.up("c[1-3]", parameters={"PrivateData": "jobs"})
    assert lab.run("sinfo", "-h", "-N") == ""
    assert {node.power for node in (await slurm.nodes()).values()} == {Power.DOWN}
    await slurm.power_up(["c2"])
    await seen(slurm, "c2", lambda node: node.power is Power.GOING_UP)
    assert (await slurm.nodes()).keys() == {"c1", "c2", "c3"}
    assert lab.run("sinfo", "-h", "-p", "main", "-N", "-o", "%N").split() == ["c2"]


@before(Change.SHOWS_POWERED_DOWN)
@pytest.mark.accepts("X9")
async def test_hidden_nodes_are_drained_and_undrained_though_nobody_sees_it(lab: Lab) -> None:
    slurm = await lab.up("c[1-3]", parameters={"PrivateData": "jobs"})
    await slurm.drain(["c1"], "bad fan", "alice")
    await slurm.drain(["c2"], "the provider is full")
    assert {n.name: n.owner for n in (await slurm.nodes()).values() if n.drained} == {"c1": "alice"}
    lab.run("sbatch", "-w", "c[1-2]", "-o", "/dev/null", "--wrap", "true")
    await slurm.undrain(["c1", "c2"])
    assert lab.run("squeue", "-h", "-o", "%T").split() == ["PENDING"]
    await slurm.undrain(["c1"], "alice")
    await seen(slurm, "c1", lambda node: node.power is Power.GOING_UP)
    assert not (await slurm.nodes())["c1"].drained


@pytest.mark.accepts("B10")
async def test_slurmctld_speaks_to_each_node_itself(lab: Lab) -> None:
    slurm = await lab.up("n[1-300]")
    shown = lab.run("scontrol", "show", "config").split("TreeWidth")[1].split()
    assert int(shown[1]) >= len(await slurm.nodes())


async def test_addresses_in_any_order_reach_their_nodes_in_few_calls(lab: Lab) -> None:
    slurm = await lab.up("n[1-2400],r[1-2]u[1-30],odd")
    names = [*(await slurm.nodes())]
    addresses = {name: f"10.{i * 7 % 251}.{i % 13}.{i % 199}" for i, name in enumerate(names)}
    shuffled = dict(sorted(addresses.items(), key=lambda item: hash(item)))
    await slurm.set_addresses(shuffled)
    assert {n.name: n.address for n in (await slurm.nodes()).values()} == addresses
    log = (lab.layout.log / "slurmctld.log").read_text()
    assert len(names) > MOST_NODES
    assert "error: update_node" not in log


async def test_a_wrong_address_is_told_before_slurm_hears_it(lab: Lab) -> None:
    slurm = await lab.up()
    with pytest.raises(Unavailable, match=r"'10\.0\.0\.1 state=down' is no address for node c1"):
        await slurm.set_addresses({"c1": "10.0.0.1 state=down"})
    with pytest.raises(Unavailable, match="Invalid node name"):
        await slurm.set_addresses({"x9": "10.0.0.1"})


async def test_jobs_are_shown_whole(lab: Lab) -> None:
    long = "a-partition-with-a-long-name"
    partitions = {long: {"groups": ["general"], "default": True}}
    slurm = await lab.up("c[1-3]", partitions=partitions)
    array = lab.submit("--array=0-4", "--exclusive")
    held = lab.submit("--hold", "-N2")

    async def three_configuring() -> bool:
        return sum(job.configuring for job in await slurm.jobs()) == 3

    await until(three_configuring)
    jobs = {job.id: job for job in await slurm.jobs()}
    configuring = [job for job in jobs.values() if job.configuring]
    assert {job.nodes for job in configuring} == {"c1", "c2", "c3"}
    assert len({job.id for job in configuring}) == 3, "each its own id, not the array's"
    assert {job.partition for job in jobs.values()} == {long}
    assert (jobs[held].reason, jobs[held].node_count) == ("JobHeldUser", 2)
    assert jobs[array].state == "PENDING", "what is left of the array is one line"
    for job in jobs:
        await slurm.tell(job, "it waits")


async def test_a_jobs_owner_is_told_in_one_line(lab: Lab) -> None:
    slurm = await lab.up()
    job = lab.submit("--hold")
    await slurm.tell(job, "c1 could\nnot start: \x1b[1m\"full\" = 'full' state=DOWN")
    shown = lab.run("scontrol", "-o", "show", "job", job)
    assert "AdminComment=springtide: c1 could not start: [1m\"full\" = 'full' state=DOWN" in shown
    with pytest.raises(Unavailable, match="Invalid job id"):
        await slurm.tell("4242", "nobody hears this")
    with pytest.raises(Unavailable, match="is no job id"):
        await slurm.tell("1 state=down", "nor this")


async def test_several_jobs_are_told_the_same_with_one_command(lab: Lab) -> None:
    slurm = await lab.up()
    first, second = lab.submit("--hold"), lab.submit("--hold")
    with pytest.raises(Unavailable, match="Invalid job id specified for job 4242"):
        await slurm.tell(f"{first},4242,{second}", "their node broke")
    for job in (first, second):
        shown = lab.run("scontrol", "-o", "show", "job", job)
        assert "AdminComment=springtide: their node broke" in shown


# Nodes come and go


async def test_a_node_that_registers_is_ready_and_runs_its_job(lab: Lab) -> None:
    slurm = await lab.up("c[1-2]")
    before = time.time()
    (lab.home / "hold").touch()
    job = lab.submit("-N2", seconds=600)
    # A node that booted before Slurm asked for it, in whole seconds, would not be heard.
    await seen(slurm, "c1", lambda node: "POWERING_UP" in node.flags)
    await slurm.set_addresses(lab.places("c1", "c2"))
    now = int(time.time())
    await until(lambda: early_in_a_second(after=now))
    with lab.slurmd("c1"), lab.slurmd("c2"):
        first = await seen(slurm, "c1", lambda node: node.registered)
        await seen(slurm, "c2", lambda node: node.registered)
        assert first.power is Power.UP
        assert first.address == lab.place("c1")
        assert first.boot_at is not None
        assert first.boot_at > before - 2
        (lab.home / "hold").unlink()
        await job_in(slurm, job, "RUNNING")
        lab.run("scancel", job)


async def test_a_node_that_was_not_asked_for_may_join(lab: Lab) -> None:
    slurm = await lab.up("c[1-2]")
    await slurm.set_addresses(lab.places("c1"))
    with lab.slurmd("c1"):
        node = await seen(slurm, "c1", lambda node: node.registered)
    assert (node.state, node.flags) == ("IDLE", frozenset({"CLOUD"}))


async def test_a_node_given_back_frees_its_job_and_is_released_at_once(lab: Lab) -> None:
    slurm = await lab.up("c[1-2]")
    job = lab.submit("-N2")
    await job_in(slurm, job, "CONFIGURING")
    await slurm.give_back(["c1"], "the provider is\nfull: no host")
    await job_in(slurm, job, "PENDING")
    lab.run("scancel", job)  # or it would take the node again
    down = await seen(slurm, "c1", lambda node: "POWERING_DOWN" in node.flags)
    assert down.reason == "springtide: the provider is full: no host"
    await slurm.release(["c1"])
    node = (await slurm.nodes(["c1"]))["c1"]
    assert (node.state, node.power) == ("IDLE", Power.DOWN)
    await slurm.power_up(["c1"])
    await seen(slurm, "c1", lambda node: node.power is Power.GOING_UP)
    assert await called(lab, "suspend") == ["suspend c1"]


async def test_release_touches_only_what_powers_down_and_never_an_admins_drain(lab: Lab) -> None:
    slurm = await lab.up("c[1-4]")
    await slurm.power_up(["c1"])
    await slurm.give_back(["c2", "c3"], "gone")
    await seen(slurm, "c1", lambda node: "POWERING_UP" in node.flags)
    await seen(slurm, "c3", lambda node: "POWERING_DOWN" in node.flags)
    lab.run("scontrol", "update", "nodename=c3", "state=drain", "reason=disk")
    await slurm.release(["c1", "c2", "c3", "c4", "x9"])
    nodes = await slurm.nodes()
    assert nodes["c1"].power is Power.GOING_UP
    assert nodes["c2"].power is Power.DOWN
    assert "DRAIN" in nodes["c3"].flags
    assert nodes["c3"].reason == "disk"
    assert nodes["c4"].power is Power.DOWN


async def test_a_node_that_powers_down_cannot_be_asked_for_until_it_is_down(lab: Lab) -> None:
    slurm = await lab.up("c[1-2]", timing={"stop": "30s"})
    await slurm.give_back(["c1"], "gone")
    await seen(slurm, "c1", lambda node: "POWERING_DOWN" in node.flags)
    with pytest.raises(Unavailable, match="c1: still powering down; ask again"):
        await slurm.power_up(["c1", "c2"])
    await seen(slurm, "c2", lambda node: node.power is Power.GOING_UP)
    await seen(slurm, "c1", lambda node: node.power is Power.DOWN)
    await slurm.release(["c1"])
    await slurm.power_up(["c1"])
    await seen(slurm, "c1", lambda node: node.power is Power.GOING_UP)


async def test_a_node_that_never_came_is_down_until_it_is_given_back(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_conf, "PATIENCE_S", 0)
    slurm = await lab.up("c[1-2]", timing={"start": "1s"})
    await slurm.power_up(["c1"])
    down = await seen(slurm, "c1", lambda node: node.state == "DOWN")
    assert (down.power, down.reason) == (Power.DOWN, "ResumeTimeout reached")
    await slurm.give_back(["c1"], "it did not register")
    await seen(slurm, "c1", lambda node: "POWERING_DOWN" in node.flags)
    await slurm.release(["c1"])
    node = (await slurm.nodes(["c1"]))["c1"]
    assert (node.state, node.power, node.reason) == ("IDLE", Power.DOWN, "")
    assert "resume-fail c1" in await called(lab, "resume-fail")


async def test_a_busy_node_powers_down_after_its_job(lab: Lab) -> None:
    slurm = await lab.up("c[1-2]", timing={"idle": "1h"})
    with lab.slurmd("c1"):
        await seen(slurm, "c1", lambda node: node.registered)
        job = lab.submit("-w", "c1", seconds=600)
        await job_in(slurm, job, "RUNNING")
        await slurm.power_down(["c1"])
        await until(lambda: _flagged(slurm, "c1", "POWER_DOWN"))
        assert (await slurm.nodes(["c1"]))["c1"].power is Power.UP
        await job_in(slurm, job, "RUNNING")
        lab.run("scancel", job)
        await seen(slurm, "c1", lambda node: node.power is Power.GOING_DOWN)
    await seen(slurm, "c1", lambda node: "POWERING_DOWN" in node.flags)
    await slurm.release(["c1"])
    node = (await slurm.nodes(["c1"]))["c1"]
    assert (node.power, node.flags) == (Power.DOWN, frozenset({"CLOUD", "POWERED_DOWN"}))


async def _flagged(slurm: Slurm, name: str, flag: str) -> bool:
    return flag in (await slurm.nodes([name]))[name].flags


async def test_a_booting_node_without_a_job_powers_down_at_once(lab: Lab) -> None:
    slurm = await lab.up("c[1-2]")
    await slurm.power_up(["c1"])
    await seen(slurm, "c1", lambda node: "POWERING_UP" in node.flags)
    await slurm.power_down(["c1", "c2"])
    await seen(slurm, "c1", lambda node: "POWERING_DOWN" in node.flags)
    assert (await slurm.nodes(["c2"]))["c2"].power is Power.DOWN, "it was down already"


# Drains, and whose they are


def wish(node: BatchNode) -> tuple[bool, str | None, str]:
    return node.drained, node.owner, node.reason


@pytest.mark.accepts("X9")
async def test_only_its_owner_ends_a_drain(lab: Lab) -> None:
    slurm = await lab.up("c[1-3]")
    await slurm.drain(["c1"], "shrink\n(operation 7)")
    await slurm.drain(["c2"], "GPU: xid 79", "alice")
    lab.admin_drains("c3")
    await slurm.drain(["c2", "c3"], "mine now", "bob")
    owners = {"c1": OURS, "c2": "alice", "c3": "root"}
    assert {n.name: n.owner for n in (await slurm.nodes()).values()} == owners
    assert "Reason=GPU: xid 79 (by alice) [root@" in lab.run("scontrol", "show", "node", "c2")
    assert (await slurm.nodes())["c1"].reason == "springtide: shrink (operation 7)"
    for by, left in ((OURS, {"c2", "c3"}), ("bob", {"c2", "c3"}), ("alice", {"c3"}), (None, set())):
        await slurm.undrain(["c1", "c2", "c3"], by)
        assert {n.name for n in (await slurm.nodes()).values() if n.drained} == left


async def restarted(lab: Lab, slurm: Slurm) -> None:
    """What happened before is in its files by then."""
    lab.run("scontrol", "shutdown", "slurmctld")

    async def gone() -> bool:
        return await slurm.standing() == "slurmctld does not run"

    await until(gone)
    await slurm.reload(Site(lab.address))


async def is_asked_for(lab: Lab, slurm: Slurm, *names: str) -> None:
    for name in names:
        await job_in(slurm, lab.submit("-w", name), "CONFIGURING")


OFF = frozenset({"CLOUD", "POWERED_DOWN"})


async def test_a_drain_that_ends_while_its_node_is_off_leaves_it_fit_for_jobs(lab: Lab) -> None:
    """With nothing to tell it from others, also after the controller's next start."""
    slurm = await lab.up("c[1-4]", timing={"stop": "30s"})
    await slurm.drain(["c1"], "the provider is full")
    await slurm.drain(["c2"], "bad fan", "alice")
    lab.run("scontrol", "update", "nodename=c3", "state=down", "reason=bad fan")
    await slurm.give_back(["c4"], "gone")
    await seen(slurm, "c4", lambda node: "POWERING_DOWN" in node.flags)
    await slurm.drain(["c4"], "the provider is full")
    await slurm.undrain(["c1", "c4"])
    await slurm.undrain(["c2"], "alice")
    await slurm.undrain(["c3"], "root")
    await seen(slurm, "c4", lambda node: node.power is Power.DOWN)
    nodes = await slurm.nodes()
    assert {(n.state, n.flags, n.reason) for n in nodes.values()} == {("IDLE", OFF, "")}
    await restarted(lab, slurm)
    await is_asked_for(lab, slurm, "c1", "c2", "c3", "c4")


@before(Change.HEARS_THE_POWERED_DOWN)
async def test_release_cures_what_slurm_waits_to_hear_from_though_it_is_off(lab: Lab) -> None:
    """As an admin's own undrain leaves it; what somebody has drained is left alone."""
    slurm = await lab.up("c[1-3]")
    lab.admin_drains("c[1-2]")
    lab.run("scontrol", "update", "nodename=c[1-2]", "state=undrain")
    lab.admin_drains("c2")
    await restarted(lab, slurm)
    stuck = (await slurm.nodes())["c1"]
    assert (stuck.state, stuck.flags) == ("IDLE", OFF | {"NOT_RESPONDING"})
    job = lab.submit("-w", "c1")
    await slurm.release(["c1", "c2", "c3"])
    nodes = await slurm.nodes()
    assert wish(nodes["c2"]) == (True, "root", "disk")
    assert (nodes["c3"].state, nodes["c3"].flags) == ("IDLE", OFF)
    await job_in(slurm, job, "CONFIGURING")
    assert await called(lab, "suspend") == ["suspend c1"]
    await slurm.release(["c3"])


async def test_what_is_released_while_down_is_not_waited_for(lab: Lab) -> None:
    slurm = await lab.up("c[1-2]")
    async with lab.joined(slurm, "c1"):
        pass
    await slurm.fail(["c1"], "it died")
    await slurm.give_back(["c1"], "it died")
    down = await seen(slurm, "c1", lambda node: "POWERING_DOWN" in node.flags)
    assert down.state == "DOWN"
    await slurm.release(["c1"])
    node = (await slurm.nodes())["c1"]
    assert (node.state, node.flags, node.reason) == ("IDLE", OFF, "")


async def test_only_what_a_person_put_down_is_undrained(lab: Lab) -> None:
    slurm = await lab.up("c[1-3]")
    async with lab.joined(slurm, "c1", "c2", "c3"):
        lab.run("scontrol", "update", "nodename=c[1-2]", "state=down", "reason=kernel panic")
        await slurm.fail(["c3"], "it did not register")
        await slurm.undrain(["c1", "c2", "c3"])
        await slurm.undrain(["c1", "c2", "c3"], "alice")
        assert {n.state for n in (await slurm.nodes()).values()} == {"DOWN"}
        await slurm.undrain(["c1"], "root")
        await seen(slurm, "c1", lambda node: node.registered)
        await slurm.undrain(["c2", "c3"], None)
        await seen(slurm, "c2", lambda node: node.registered)
        assert (await slurm.nodes())["c3"].state == "DOWN"


async def test_a_name_that_could_not_be_found_again_drains_nothing(lab: Lab) -> None:
    slurm = await lab.up("c1")
    with pytest.raises(Unavailable, match="is no name of somebody"):
        await slurm.drain(["c1"], "disk", "me) state=down (by you")
    assert not (await slurm.nodes())["c1"].drained


@pytest.mark.accepts("X9")
async def test_an_admins_drain_outlives_being_idle_for_too_long(lab: Lab) -> None:
    slurm = await lab.up("c[1-2]", timing={"idle": "1h"})
    async with lab.joined(slurm, "c1"):
        lab.admin_drains("c1")
        hasty = lab.adapter(lab.cluster("c[1-2]", timing={"idle": "1s"}))
        await hasty.reload(Site(lab.address))
        await seen(slurm, "c1", lambda node: "POWERING_DOWN" in node.flags)
    await slurm.release(["c1"])
    assert wish((await slurm.nodes())["c1"]) == (True, "root", "disk")


@pytest.mark.accepts("X9")
async def test_an_admins_drain_outlives_being_powered_down_or_given_back(lab: Lab) -> None:
    slurm = await lab.up("c[1-4]", timing={"stop": "30s"})
    async with lab.joined(slurm, "c1", "c2", "c3"):
        lab.admin_drains("c[1-2]")
        await slurm.drain(["c3"], "shrink")
        await slurm.power_down(["c1", "c3"])
        await slurm.give_back(["c2"], "its instance died")
        await slurm.release(["c1", "c2", "c3", "c4"])
    nodes = await slurm.nodes()
    for name in ("c1", "c2"):
        assert wish(nodes[name]) == (True, "root", "disk")
    assert (nodes["c3"].power, nodes["c3"].drained, nodes["c3"].reason) == (Power.DOWN, False, "")
    await seen(slurm, "c1", lambda node: node.power is Power.DOWN)
    assert wish((await slurm.nodes())["c1"]) == (True, "root", "disk")


@pytest.mark.accepts("X9")
async def test_an_admins_drain_outlives_the_power_down_of_a_busy_node(lab: Lab) -> None:
    slurm = await lab.up("c[1-2]", timing={"idle": "1h"})
    async with lab.joined(slurm, "c1"):
        job = lab.submit("-w", "c1", seconds=600)
        await job_in(slurm, job, "RUNNING")
        lab.admin_drains("c1")
        await slurm.power_down(["c1"])
        assert (await slurm.nodes())["c1"].busy
        lab.run("scancel", job)
        await seen(slurm, "c1", lambda node: "POWERING_DOWN" in node.flags)
    assert not (await slurm.nodes())["c1"].drained, "Slurm has ended it"
    await slurm.release(["c1"])
    assert wish((await slurm.nodes())["c1"]) == (True, "root", "disk")


@pytest.mark.accepts("X9")
async def test_a_drained_node_that_is_powered_up_stays_drained_and_says_why(lab: Lab) -> None:
    slurm = await lab.up("c[1-3]")
    lab.admin_drains("c1")
    await slurm.drain(["c2"], "shrink")
    await slurm.power_up(["c1", "c2", "c3"])
    for name in ("c1", "c2", "c3"):
        await seen(slurm, name, lambda node: node.power is Power.GOING_UP)
    async with lab.joined(slurm, "c1"):
        nodes = await slurm.nodes()
    assert wish(nodes["c1"]) == (True, "root", "disk")
    assert wish(nodes["c2"]) == (True, OURS, "springtide: shrink")
    assert wish(nodes["c3"]) == (False, None, "")


async def test_what_slurm_put_down_itself_is_released_whenever_that_is(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_conf, "PATIENCE_S", 0)
    slurm = await lab.up("c[1-2]", timing={"start": "1s"})
    await slurm.power_up(["c1", "c2"])
    for name in ("c1", "c2"):
        await seen(slurm, name, lambda node: node.state == "DOWN")
    lab.run("scontrol", "update", "nodename=c2", "state=down", "reason=bad fan")
    await slurm.release(["c1", "c2"])
    nodes = await slurm.nodes()
    assert (nodes["c1"].state, nodes["c1"].power) == ("IDLE", Power.DOWN)
    assert (nodes["c2"].state, nodes["c2"].owner) == ("DOWN", "root"), "an admin has, since"


# Fresh starts


@pytest.mark.accepts("X9")
async def test_a_reboot_keeps_every_drain_but_ours(lab: Lab) -> None:
    slurm = await lab.up("c[1-4]")
    async with lab.joined(slurm, "c1", "c2", "c3"):
        lab.admin_drains("c1")
        await slurm.drain(["c3"], "rebuild")
        await slurm.reboot(["c1", "c2", "c3", "c4"], "rebuild")
        for name in ("c1", "c2", "c3"):
            await seen(slurm, name, lambda node: "REBOOT_ISSUED" in node.flags)
        lab.admin_drains("c3", "fan")
        program = "rebuild" if Change.POWER_ACTIONS.applies(installed()) else "reboot"

        async def rebooted() -> bool:
            names = [call.split()[1] for call in await called(lab, program)]
            return sorted(expand(",".join(names))) == ["c1", "c2", "c3"]

        await until(rebooted)
        assert not any(node.registered for node in (await slurm.nodes()).values())
    async with lab.joined(slurm, "c1", "c2", "c3"):
        await slurm.undrain(["c1", "c2", "c3"])
        after = await seen(slurm, "c2", lambda node: node.registered)
        nodes = await slurm.nodes()
    assert wish(nodes["c1"]) == (True, "root", "disk")
    assert wish(nodes["c3"]) == (True, "root", "fan")
    assert wish(after) == (False, None, "")
    assert nodes["c4"].power is Power.DOWN, "it had nothing to reboot"


@before(Change.KEEPS_REBOOTING)
async def test_a_node_that_answered_as_its_reboot_began_comes_back_all_the_same(lab: Lab) -> None:
    """Slurm takes it for idle then; an admin's `state=idle` has the same effect."""
    slurm = await lab.up("c[1-2]")
    reboot = ("scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=rebuild image:two")
    async with lab.joined(slurm, "c1", "c2"):
        lab.run(*reboot, "c[1-2]")
        for name in ("c1", "c2"):
            await seen(slurm, name, lambda node: "REBOOT_ISSUED" in node.flags)
    lab.run("scontrol", "update", "nodename=c1", "state=idle")
    await slurm.expect(["c1", "c2"])
    async with lab.joined(slurm, "c1", "c2"):
        nodes = await slurm.nodes()
    assert {(n.state, *wish(n)) for n in nodes.values()} == {("IDLE", False, None, "")}


async def test_a_reboot_waits_for_jobs_and_can_be_called_off(lab: Lab) -> None:
    slurm = await lab.up("c[1-2]", timing={"idle": "1h"})
    async with lab.joined(slurm, "c1"):
        job = lab.submit("-w", "c1", seconds=600)
        await job_in(slurm, job, "RUNNING")
        await slurm.reboot(["c1"], "rebuild")
        await slurm.reboot(["c1"], "rebuild")
        node = (await slurm.nodes())["c1"]
        assert (node.busy, wish(node)) == (True, (True, OURS, "springtide: rebuild"))
        assert "REBOOT_REQUESTED" in node.flags
        await slurm.undrain(["c1"])
        node = await seen(slurm, "c1", lambda node: node.registered)
        assert (set(node.flags), *wish(node)) == ({"CLOUD"}, False, None, "")
        await job_in(slurm, job, "RUNNING")
        lab.run("scancel", job)


@pytest.mark.accepts("X9")
async def test_nodes_that_start_afresh_are_down_until_heard_from(lab: Lab) -> None:
    slurm = await lab.up("c[1-4]")
    async with lab.joined(slurm, "c1", "c2", "c3"):
        await slurm.drain(["c1"], "rebuild")
        lab.admin_drains("c2")
    await slurm.expect(["c1", "c2", "c3", "c4"])
    nodes = await slurm.nodes()
    assert [n.state for n in nodes.values()] == ["DOWN", "DOWN", "DOWN", "IDLE"]
    assert not any(node.registered for node in nodes.values())
    async with lab.joined(slurm, "c1", "c2", "c3"):
        nodes = await slurm.nodes()
    assert wish(nodes["c1"]) == (True, OURS, "springtide: rebuild")
    assert wish(nodes["c2"]) == (True, "root", "disk")
    assert wish(nodes["c3"]) == (False, None, "")


@pytest.mark.accepts("X9")
async def test_a_node_that_does_not_come_back_says_so_but_stays_its_drainers(lab: Lab) -> None:
    slurm = await lab.up("c[1-2]")
    async with lab.joined(slurm, "c1", "c2"):
        lab.admin_drains("c1")
        await slurm.reboot(["c1", "c2"], "rebuild")
        await seen(slurm, "c1", lambda node: "REBOOT_ISSUED" in node.flags)
        await seen(slurm, "c2", lambda node: "REBOOT_ISSUED" in node.flags)
    await slurm.fail(["c1", "c2"], "it did not register within 600 s")
    nodes = await slurm.nodes()
    assert {node.state for node in nodes.values()} == {"DOWN"}
    assert wish(nodes["c1"]) == (True, "root", "disk")
    assert "REBOOT_ISSUED" not in nodes["c1"].flags
    assert nodes["c2"].reason == "springtide: it did not register within 600 s"


# Rebuilds by jobs


@pytest.mark.accepts("A4")
async def test_a_rebuild_partition_is_roots_alone(lab: Lab) -> None:
    await lab.up("c[1-2]", rebuild={"max_time": "30m"})
    shown = lab.run("scontrol", "-o", "show", "partition", "rebuild").split()
    wanted = "Nodes=c[1-2] Default=NO PriorityJobFactor=65533 Hidden=YES RootOnly=YES "
    wanted += "DisableRootJobs=NO PreemptMode=OFF MaxTime=00:30:00"
    alone = [f"{key}={value}" for key, value in one_job_at_a_time(installed()).items()]
    assert {*wanted.split(), *alone} <= set(shown)
    assert lab.run("sinfo", "-h", "-o", "%P", user="nobody").split() == ["main*"]
    refused = lab.try_run("sbatch", "-p", "rebuild", "--wrap", "true", user="nobody")
    assert refused.returncode != 0
    assert "Access/permission denied" in refused.stderr


@pytest.mark.accepts("A2")
async def test_a_rebuild_job_has_its_node_before_all_others(lab: Lab) -> None:
    slurm = await lab.up("c[1-2]", timing={"idle": "1h"})
    async with lab.joined(slurm, "c1"):
        running = lab.submit("-w", "c1", seconds=600)
        await job_in(slurm, running, "RUNNING")
        waiting = lab.submit("-w", "c1", seconds=600)
        ids = await slurm.submit_rebuilds(["c1"], None)
        assert await slurm.submit_rebuilds(["c1"], None) == ids, "it waits already"
        assert "rebuild-c1" in lab.run("squeue", "-h", "-o", "%j")
        hold = lab.home / "hold"
        hold.touch()
        lab.run("scancel", running)
        await job_in(slurm, ids["c1"], "CONFIGURING")
        await job_in(slurm, waiting, "PENDING")
        lab.run("scancel", waiting, ids["c1"])
        hold.unlink()


@pytest.mark.accepts("A2", "A12")
async def test_a_rebuild_job_can_run_a_command_instead_and_only_where_there_are_such_jobs(
    lab: Lab,
) -> None:
    groups = {"thin": {"nodes": "c[1-2]"}, "thick": {"nodes": "c3"}}
    partitions = {"main": {"groups": ["thin"], "default": True}, "big": {"groups": ["thick"]}}
    rebuild = {"partitions": {"again": ["main"]}}
    slurm = await lab.up(groups=groups, partitions=partitions, rebuild=rebuild)
    ran = lab.home / "ran"
    async with lab.joined(slurm, "c1"):
        with pytest.raises(Unavailable, match="c3: in no rebuild partition"):
            await slurm.submit_rebuilds(["c1", "c3"], f"hostname >{ran}")
        assert await slurm.jobs() == []
        await slurm.submit_rebuilds(["c1"], f"hostname >{ran}")

        async def has_run() -> bool:
            return ran.exists() and ran.read_text() == "c1\n"

        await until(has_run)
    assert not any(call.startswith("re") for call in lab.calls())


async def test_a_closed_queue_takes_jobs_and_starts_them_after_the_next_start(lab: Lab) -> None:
    slurm = await lab.up("c[1-2]")
    await slurm.close()
    job = lab.submit()

    async def waits() -> bool:
        return [j.reason for j in await slurm.jobs()] == ["PartitionDown"]

    await until(waits)
    await slurm.stop()
    await slurm.reload(Site(lab.address))
    await job_in(slurm, job, "CONFIGURING")
    await slurm.close()
    later = lab.submit()
    await slurm.open()
    await job_in(slurm, later, "CONFIGURING")


# What goes wrong


async def test_without_a_configuration_it_says_what_to_do(lab: Lab) -> None:
    slurm = lab.adapter(lab.cluster())
    for ask in (slurm.nodes, slurm.jobs):
        with pytest.raises(Unavailable, match=r"slurm\.conf does not exist; run `tide deploy`"):
            await ask()
    assert await slurm.version()


async def test_a_silent_controller_is_unavailable_not_empty(lab: Lab) -> None:
    slurm = await lab.up()
    os.kill(lab.pid(), signal.SIGSTOP)
    try:
        hasty = lab.adapter(lab.cluster(), timeout_s=0.5)
        with pytest.raises(Unavailable, match=r"`scontrol -o show nodes` took longer than 0\.5 s"):
            await hasty.nodes()
    finally:
        os.kill(lab.pid(), signal.SIGCONT)
    assert await slurm.nodes()


async def test_a_stopped_controller_is_unavailable_not_empty(lab: Lab) -> None:
    slurm = await lab.up()
    await slurm.stop()
    with pytest.raises(Unavailable, match="munged and slurmctld do not run"):
        await slurm.nodes()
    with pytest.raises(Unavailable, match="munged and slurmctld do not run"):
        await slurm.jobs()


async def test_missing_programs_are_told_with_their_package(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = await lab.up()
    monkeypatch.setenv("PATH", str(lab.home))
    monkeypatch.setattr(slurm_service, "PATH", str(lab.home))
    with pytest.raises(Unavailable, match="scontrol not found; install the package slurm-client"):
        await slurm.nodes()


async def test_nothing_of_the_daemons_environment_reaches_slurm(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = await lab.up()
    lab.submit("--hold")
    hostile: Mapping[str, str] = {"SQUEUE_STATES": "CD", "SLURM_CLUSTERS": "x", "TZ": "Asia/Tokyo"}
    for key, value in hostile.items():
        monkeypatch.setenv(key, value)
    assert len(await slurm.jobs()) == 1
