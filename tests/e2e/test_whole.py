"""A whole real cluster is stopped, started, killed, protected, and is not the only one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from springtide.batch.slurm_versions import Change
from springtide.cli.client import Refused
from springtide.cli.endings import Exit
from tests.e2e.by_hand import AGAIN, instances, started, tide, typed
from tests.e2e.gate import Gate
from tests.e2e.real import LIMIT_S, Json, RealCluster, cluster, until
from tests.e2e.test_service import newest
from tests.slurm_release import installed

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

SPEC = """
cluster: whole
batch: {kind: slurm, port: 16947, node_port: 16948, hide_off: true}
provider: {kind: containers, mounts: [SHARED]}
groups: {general: {nodes: "k-[1-12]", min: 2}}
timing: {idle: 3600s, start: 120s, stop: 30s}
"""
TWIN = SPEC.replace("whole", "twin").replace("1694", "1695")
ALL = "k-[1-12]"


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC) as deployed:
        yield deployed


def slurmctld(real: RealCluster) -> int | None:
    """Its process, if it runs."""
    try:
        pid = int((real.state / "run" / "slurmctld.pid").read_text().split()[0])
        name = Path(f"/proc/{pid}/comm").read_text()
    except (FileNotFoundError, IndexError, ProcessLookupError):
        return None
    return pid if name.strip() == "slurmctld" else None


def test_a_stop_waits_for_running_jobs_and_a_start_goes_on_with_those_in_the_queue(
    real: RealCluster,
) -> None:
    tide(real, "resume", "k-6")
    gate = Gate(real.shared / "gate")
    running = started(real, f"{gate.wait}; hostname", "-w", "k-5")
    waiting = real.sbatch("hostname", "-w", "k-5", "--exclusive")
    assert slurmctld(real)
    tide(real, "stop", "--yes", "--no-wait")
    stop = newest(real, "stop")
    until(lambda: "State=DOWN" in real.slurm("scontrol", "show", "partition", "main"))
    gate.open()
    assert real.ended(stop["id"])["state"] == "done"
    assert real.output(running) == ["k-5"]
    assert real.output(waiting) == []
    assert real.states(ALL) == {"off"}
    assert instances(real) == {}
    assert slurmctld(real) is None

    assert "stopped" in tide(real, "status")
    assert "run `tide start`" in tide(real, "resume", "k-3", code=Exit.FAILED)
    real.restart_daemon()
    assert "stopped" in tide(real, "status")

    assert "k-[1-2] started" in tide(real, "start")
    assert "stopped" not in tide(real, "status")
    assert real.states("k-[1-2]") == {"ready"}
    assert real.finished(waiting)["Restarts"] == "0"
    assert real.output(waiting) == ["k-5"]
    ended = real.job(running)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "0")


def test_a_stop_that_does_not_wait_puts_jobs_back_into_the_queue(real: RealCluster) -> None:
    id = started(real, AGAIN, "-w", "k-1")
    tide(real, "stop", "--now", "--yes")
    assert instances(real) == {}
    tide(real, "start")
    assert real.finished(id)["Restarts"] == "1"
    assert real.output(id) == ["k-1"]


@pytest.mark.accepts("C25")
def test_all_nodes_are_killed_also_hidden_ones_and_their_jobs_run_again(real: RealCluster) -> None:
    tide(real, "resume", "k-3")
    id = started(real, AGAIN, "-w", "k-4")
    if not Change.SHOWS_POWERED_DOWN.applies(installed()):
        assert "k-9" not in real.slurm("sinfo", "-h", "-N", "-o", "%N").split()
    before = instances(real)
    assert before.keys() >= {"k-1", "k-2", "k-3", "k-4"}

    assert "say --yes" in tide(real, "kill", "--all", code=Exit.WRONG)
    assert typed(real, "no", "kill", "--all") == Exit.FAILED
    foreseen = tide(real, "kill", "--all", "--dry-run")
    assert f"12: {ALL}" in foreseen
    assert f"1 put back into the queue: {id} of root on k-4" in foreseen
    assert instances(real) == before

    tide(real, "kill", "--all", "--force")
    assert not set(before.values()) & set(instances(real).values())
    assert real.states("k-3") == {"off"}  # the others are always up, and soon there again
    assert real.finished(id)["Restarts"] == "1"
    assert real.output(id) == ["k-4"]
    assert real.deploy()["state"] == "done"


@pytest.mark.accepts("A22")
def test_a_prefix_kills_just_those_nodes_and_an_empty_one_none(real: RealCluster) -> None:
    tide(real, "resume", "k-[10-11]")
    before = instances(real)
    for prefix in ("", " "):
        said = tide(real, "kill", "--prefix", prefix, "--yes", code=Exit.WRONG)
        assert "an empty prefix would mean every node" in said
    assert "no node" in tide(real, "kill", "--prefix", "q", "--yes", code=Exit.WRONG)
    tide(real, "kill", "--yes", code=Exit.WRONG)
    assert instances(real) == before
    tide(real, "kill", "--prefix", "k-1", "--yes")
    after = instances(real)
    again = after.pop("k-1", None)  # it is always up, and may be there again
    assert again != before.pop("k-1")
    assert not after.keys() & {"k-10", "k-11", "k-12"}
    assert after == {name: before[name] for name in after}
    assert "k-2" in after
    assert real.deploy()["state"] == "done"


@pytest.mark.accepts("C2", "E21", "C26")
def test_what_is_done_to_one_cluster_never_touches_another_with_the_same_names(
    real: RealCluster,
) -> None:
    id = started(real, "sleep 600", "-w", "k-2")
    kept = instances(real)

    def untouched() -> bool:
        return instances(real) == kept and real.job(id)["JobState"] == "RUNNING"

    with cluster(TWIN) as twin:
        twins = started(twin, AGAIN, "-w", "k-2")
        assert set(instances(twin).values()) == {"twin.k-1.1", "twin.k-2.1"}
        assert not set(instances(twin).values()) & set(kept.values())
        tide(twin, "kill", "--all", "--yes")
        assert twin.finished(twins)["Restarts"] == "1"
        assert untouched()
        tide(twin, "stop", "--yes")
        assert instances(twin) == {}
        assert untouched()
        tide(twin, "start")
        grown = started(twin, "sleep 300", "-w", "k-[5-6]", "-N2")
        assert twin.job(grown)["NodeList"] == "k-[5-6]"
        twin.note_links()
        tide(twin, "destroy", "--yes")
        assert not twin.state.exists()
        twin.see_it_gone()
        assert untouched()
    real.slurm("scancel", id)


@pytest.mark.accepts("A23")
def test_a_protected_cluster_asks_for_its_name_before_nodes_or_all_of_it_go() -> None:
    with cluster(TWIN.replace("twin", "guarded") + "protected: true\n") as real:
        before = instances(real)
        for words in (["stop"], ["kill", "--all"], ["destroy"], ["resize", "general=1"]):
            said = tide(real, *words, "--yes", code=Exit.WRONG)
            assert "guarded is protected" in said
            assert "say --yes-really guarded" in said
            tide(real, *words, "--yes-really", "another", code=Exit.WRONG)
        for word in ("stop", "kill", "destroy"):
            with pytest.raises(Refused, match="guarded is protected"):
                real.client.post("/operations", {"operation": word, "nodes": "k-1"})
        assert instances(real) == before
        assert real.client.get("/operations", limit=9)["operations"][1:] == []

        tide(real, "resize", "general=3", "--yes")
        assert typed(real, "yes", "resize", "general=2") == Exit.FAILED
        assert typed(real, "guarded", "resize", "general=2") == Exit.DONE
        assert instances(real) == before
        for words in (["kill", "--all"], ["stop"], ["destroy"]):
            tide(real, *words, "--yes-really", "guarded")
        assert not real.state.exists()


@pytest.mark.accepts("C26")
def test_a_destroy_that_cannot_go_on_says_how_and_the_next_one_ends_it() -> None:
    """As long as a start may take, calls to the provider are tried again: so that is not long."""
    with cluster(TWIN.replace("twin", "stuck")) as real:
        started(real, "sleep 300", "-w", "k-7")
        short = real.file.read_text().replace("start: 120s, stop: 30s", "start: 12s, stop: 2s")
        real.file.write_text(short)
        assert "timing.start" in tide(real, "apply", "--yes")
        with in_use(real.state / "containers" / "instances" / "k-7"):
            said = tide(real, "destroy", "--yes", code=Exit.FAILED)
            assert "stuck.k-7.1" in said
            assert "run `tide destroy` again to go on" in said
            assert set(instances(real)) == {"k-7"}
        real.note_links()
        assert "is gone: nothing left" in tide(real, "destroy", "--yes")
        assert not real.state.exists()
        real.see_it_gone()


@contextmanager
def in_use(directory: Path) -> Iterator[None]:
    """One that cannot be renamed, for somebody has mounted something there."""
    subprocess.run(["mount", "--bind", str(directory), str(directory)], check=True)
    try:
        yield
    finally:
        # Whoever looks for instances may be at it.
        until(lambda: subprocess.run(["umount", str(directory)], check=False).returncode == 0)


@pytest.mark.accepts("C27")
def test_dry_runs_change_nothing_and_a_deploy_that_was_cut_off_is_continued() -> None:
    """Nodes come up when the daemon was killed, so that it was not done before."""
    many = TWIN.replace("twin", "broken").replace("min: 2", "min: 8") + "health: SHARED/health\n"
    with cluster(many, deployed=False) as real, second_daemon(real):
        gate = Gate(real.shared / "go")
        (real.shared / "health").write_text(f"#!/bin/sh\n{gate.wait}\n")
        (real.shared / "health").chmod(0o755)
        for words in (["deploy", str(real.file)], ["destroy"]):
            assert "nothing was changed" in tide(real, *words, "--dry-run")
        assert real.events() == []
        assert not (real.state / "containers").exists()

        first = deploying(real)
        until(lambda: list(real.state.glob("containers/instances/k-*")))
        real.kill_daemon()
        killed_at = time.time()
        gate.open()
        tide(real, "deploy", str(real.file))
        said, _ = first.communicate(timeout=LIMIT_S)
        assert first.returncode == Exit.DONE, said
        assert real.states("k-[1-8]") == {"ready"}
        cut, again = reversed(real.client.get("/operations")["operations"])
        assert cut["started_at"] < killed_at < cut["ended_at"]
        assert [cut["state"], again["state"]] == ["done", "done"]
        made = [e["node"] for e in real.events() if e["what"] == "instance created"]
        assert sorted(made) == sorted(f"k-{number}" for number in range(1, 9))
        real.finished(real.sbatch("srun hostname", "-N8"))

        before = changes(real)
        for words in (["deploy", str(real.file)], ["destroy"]):
            assert "nothing was changed" in tide(real, *words, "--dry-run")
        assert changes(real) == before
        assert len(instances(real)) == 8
        tide(real, "destroy", "--yes")


def changes(real: RealCluster) -> list[Json]:
    """What was done; what befalls the batch system meanwhile is no part."""
    return [event for event in real.events() if event["operation"] or event["node"]]


def deploying(real: RealCluster) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "springtide.cli.main", "deploy", str(real.file)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@contextmanager
def second_daemon(real: RealCluster) -> Iterator[None]:
    """`tide deploy` starts one; should the test fail, it must not stay."""
    try:
        yield
    finally:
        lock = real.state / "daemon.lock"
        if lock.exists() and Path("/proc", lock.read_text().strip()).exists():
            os.kill(int(lock.read_text()), signal.SIGKILL)
