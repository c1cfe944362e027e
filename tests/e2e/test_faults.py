"""Everything that can die is killed under a real Slurm, and comes back by itself."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from springtide.cli.client import Refused
from springtide.compose import compose
from springtide.ports import Launch, Provider
from springtide.providers.containers import links
from springtide.spec import load
from tests.e2e.by_hand import AGAIN, instances, started, tide
from tests.e2e.gate import Gate
from tests.e2e.real import Json, RealCluster, cluster, until
from tests.e2e.saving import await_saved
from tests.leftovers import place

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

SPEC = """
cluster: faults
batch: {kind: slurm, port: 17030, node_port: 17031, parameters: {SlurmdTimeout: 20}}
provider: {kind: containers, subnet: 10.99.30.0/24, mounts: [SHARED]}
groups: {general: {nodes: "f-[1-9]", min: 1}}
timing: {idle: 3600s, start: 2m, stop: 10s, reconcile: 1s, grace: 2s}
"""
SERVICES = ("slurmctld", "munged")


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC) as deployed:
        yield deployed


# --- who is killed, and how -----------------------------------------------------------------


def service(real: RealCluster, name: str) -> int | None:
    """Its process, unless it is only about to be started."""
    with suppress(FileNotFoundError, IndexError):
        return int((real.state / "run" / f"{name}.pid").read_text().split()[0])
    return None


def first_process(real: RealCluster, node: str) -> int:
    """The container's PID 1, by its number here."""
    words = (real.state / "containers" / "instances" / node / "process").read_text().split()
    return int(words[1])


def slurmd(real: RealCluster, node: str) -> int:
    mark = f"slurmd\0-D\0-b\0-N\0{node}\0".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().startswith(mark) and _is_below(int(path.parent.name), real, node):
                return int(path.parent.name)
    raise AssertionError(f"{node} has no slurmd")


def _is_below(pid: int, real: RealCluster, node: str) -> bool:
    """Whether it is in the container of the node of this cluster."""
    ours = Path(f"/proc/{first_process(real, node)}/ns/pid").readlink()
    return Path(f"/proc/{pid}/ns/pid").readlink() == ours


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(partial(_is_dead, pid))


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def healthy(real: RealCluster, names: str) -> None:
    """The nodes serve, with instances that run, and nothing is at them."""

    def look() -> bool:
        rows = real.client.get("/nodes", names=names)["nodes"]
        return all(
            row["state"] == "ready"
            and [one["state"] for one in row["instances"]] == ["running"]
            and (row["batch"] or {}).get("state") in ("IDLE", "ALLOCATED", "MIXED")
            for row in rows
        )

    until(look)


def resume(real: RealCluster, names: str) -> None:
    tide(real, "resume", names)
    healthy(real, names)


# --- a node dies ----------------------------------------------------------------------------


@pytest.mark.parametrize("process", [slurmd, first_process], ids=["slurmd", "node"])
def test_a_node_that_dies_idle_is_given_up_and_one_that_is_always_up_made_anew(
    real: RealCluster, process: Callable[[RealCluster, str], int]
) -> None:
    resume(real, "f-2")
    generation = real.record("f-1")["f-1"]["generation"]
    kill(process(real, "f-2"))
    kill(process(real, "f-1"))
    until(lambda: real.states("f-2") == {"off"})
    until(lambda: real.record("f-1")["f-1"]["generation"] > generation)
    healthy(real, "f-1")
    until(lambda: "POWERED_DOWN" in real.node("f-2")["State"])
    assert "f-2" not in instances(real)
    real.finished(real.sbatch("hostname", "-w", "f-[1-2]", "-N2"))


@pytest.mark.accepts("C19")
def test_jobs_of_nodes_that_die_or_vanish_run_again(real: RealCluster) -> None:
    ids = {name: started(real, AGAIN, "-w", name) for name in ("f-3", "f-4", "f-5")}
    kill(slurmd(real, "f-3"))
    kill(first_process(real, "f-4"))
    with_provider(real, delete_behind_our_back)
    for name, id in ids.items():
        real.finished(id)
        assert real.output(id) == [name]
        assert real.job(id)["Restarts"] == "1"
    healthy(real, "f-[3-5]")


async def delete_behind_our_back(provider: Provider) -> None:
    mine = [one for one in await provider.list("faults") if one.node == "f-5"]
    assert await provider.delete(mine) == {}


# --- instances that should not be -------------------------------------------------------------


def with_provider(real: RealCluster, work: Callable[[Provider], Any]) -> Any:
    """As somebody else who may use the cloud account."""

    async def do() -> Any:
        daemon = compose(load(real.file))
        try:
            return await work(daemon.parts.home)
        finally:
            await daemon.parts.home.close()
            await daemon.parts.record.store.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, do()).result()


def plant(real: RealCluster, node: str, generation: int) -> None:
    launch = Launch("faults", node, generation, "general", "host", "default", user_data="sleep 900")
    made = with_provider(real, lambda provider: provider.create([launch]))
    assert made[node].generation == generation, made


@pytest.mark.accepts("C19")
def test_instances_that_nobody_asked_for_are_removed_after_the_grace(real: RealCluster) -> None:
    """One of a node that is off, of an unknown life of it, and one of nobody."""
    assert real.states("f-9") == {"off"}
    plant(real, "f-9", 77)
    plant(real, "stranger", 1)
    there = real.state / "containers" / "instances"
    until(lambda: not (there / "f-9").exists() and not (there / "stranger").exists())
    until(lambda: real.states("f-9") == {"off"})
    until(lambda: real.node("f-9")["State"] == "IDLE+CLOUD+POWERED_DOWN")
    real.finished(real.sbatch("hostname", "-w", "f-9"))


# --- the daemon dies ---------------------------------------------------------------------------


def test_a_daemon_killed_in_the_middle_of_a_resume_goes_on_with_it(real: RealCluster) -> None:
    id = real.sbatch("srun hostname", "-w", "f-[6-7]", "-N2")
    until(lambda: real.states("f-[6-7]") != {"off"}, pause_s=0.002)
    real.kill_daemon()
    real.start_daemon()
    real.finished(id)
    assert real.output(id) == ["f-6", "f-7"]
    created = [e for e in real.events(node="f-6") if e["what"] == "instance created"]
    assert len(created) == 1


def test_a_daemon_killed_in_the_middle_of_a_repair_goes_on_with_it(real: RealCluster) -> None:
    """slurmctld holds still meanwhile, so that there is a middle."""
    id = started(real, AGAIN, "-w", "f-8")
    control = service(real, "slurmctld")
    assert control
    before = [one["id"] for one in _repairs_of(real, "f-8")]
    kill(first_process(real, "f-8"))
    repair = until(lambda: _repairs_of(real, "f-8")[len(before) :], pause_s=0.005)[0]
    os.kill(control, signal.SIGSTOP)
    try:
        real.kill_daemon()
    finally:
        os.kill(control, signal.SIGCONT)
    real.start_daemon()
    real.ended(repair["id"])
    real.finished(id)
    assert real.output(id) == ["f-8"]
    healthy(real, "f-8")


def _repairs_of(real: RealCluster, node: str) -> list[Json]:
    """The first one first."""
    known = real.client.get("/operations")["operations"]
    found = [one for one in known if one["kind"] == "repair" and one["nodes"] == node]
    return sorted(found, key=lambda one: int(one["id"]))


# --- slurmctld dies ----------------------------------------------------------------------------


def test_a_slurmctld_that_dies_is_started_again_and_no_job_suffers(real: RealCluster) -> None:
    resume(real, "f-8")
    gate = Gate(real.shared / "slurmctld-is-back")
    running = started(real, f"{gate.wait}; hostname", "-w", "f-8", "--exclusive")
    waiting = real.sbatch("hostname", "-w", "f-8", "--exclusive")
    await_saved(real.slurm, real.state / "slurmctld", waiting, "f-8")
    control = service(real, "slurmctld")
    kill(control)
    until(lambda: service(real, "slurmctld") not in (None, control) and answers(real))
    gate.open()
    real.finished(running)
    real.finished(waiting)
    assert real.job(running)["Restarts"] == "0"
    told = [e["detail"] for e in real.events() if e["what"] == "batch system changed"]
    assert told[-1] == "slurmctld started"


def answers(real: RealCluster) -> bool:
    return real.try_slurm("scontrol", "ping").returncode == 0


# --- the disk is full --------------------------------------------------------------------------

SMALL = (
    SPEC.replace("faults", "small")
    .replace("17031", "17033")
    .replace("17030", "17032")
    .replace("10.99.30.0", "10.99.32.0")
)


@contextmanager
def on_small_disk(text: str) -> Iterator[RealCluster]:
    """A cluster all of whose state is on a disk that can be filled."""
    with place() as root:
        state = root / "s"
        state.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tide-test", state], check=True)
        real = RealCluster(root, text)
        try:
            real.start_daemon()
            assert real.deploy()["state"] == "done"
            yield real
        finally:
            real.sweep()
            # What slurmctld called may be the last to use it.
            until(lambda: subprocess.run(["umount", state], check=False).returncode == 0)
        real.see_it_gone()


def test_a_full_disk_stops_nothing_for_good() -> None:
    with on_small_disk(SMALL) as real:
        waiting = real.sbatch("hostname", "-w", "f-2", "--hold")
        reserve(real.state / "log" / "slurmctld.log")
        with filled(real.state):
            with pytest.raises(Refused, match="disk is full"):
                real.deploy()
            real.slurm("scontrol", "release", waiting)
            kill(first_process(real, "f-1"))
            until(lambda: real.job(waiting)["JobState"] == "CONFIGURING")
            until(partial(_was_called, real))
            assert real.states("f-2") == {"off"}, "nothing is done that cannot be recorded"
        real.finished(waiting)
        healthy(real, "f-[1-2]")


def reserve(log: Path) -> None:
    """Room on the disk for what the test is going to read."""
    offset, length = str(log.stat().st_size), str(1 << 18)
    command = ["fallocate", "--keep-size", "--offset", offset, "--length", length, str(log)]
    subprocess.run(command, check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """No room, nor what others set free meanwhile."""
    filler, over = disk / "filler", Event()

    def fill() -> None:
        with filler.open("wb", buffering=0) as file:
            while not over.wait(0.01):
                with suppress(OSError):
                    while True:
                        file.write(bytes(4096))

    with ThreadPoolExecutor(1) as pool:
        filling = pool.submit(fill)
        try:
            until(lambda: shutil.disk_usage(disk).free == 0)
            yield
        finally:
            over.set()
            filling.result()
            filler.unlink()


def _was_called(real: RealCluster) -> bool:
    """Whether Slurm asked for the node, in vain: the request could not be kept anywhere."""
    log = (real.state / "log" / "slurmctld.log").read_text()
    return re.search(r"power_save: program exit status|resumeprog.* exit status 1", log) is not None


# --- the machine goes down ---------------------------------------------------------------------


@pytest.mark.accepts("C20")
def test_after_a_restart_of_the_machine_only_the_daemon_has_to_be_started(
    real: RealCluster,
) -> None:
    resume(real, "f-5")
    running = started(real, AGAIN, "-w", "f-5")
    waiting = real.sbatch("hostname", "-w", "f-5", "--exclusive")
    held = real.sbatch("hostname", "-w", "f-6", "--hold")
    await_saved(real.slurm, real.state / "slurmctld", held, "f-5")
    switch_off(real)
    assert real.left_behind() == []
    real.start_daemon()
    until(partial(answers, real))
    healthy(real, "f-1")
    real.finished(running)
    real.finished(waiting)
    assert real.job(held)["JobState"] == "PENDING"
    real.slurm("scontrol", "release", held)
    real.finished(held)
    healthy(real, "f-1")


def switch_off(real: RealCluster) -> None:
    """All its processes at once, then its network; files stay as they are."""
    real.note_links()
    os.utime(real.root)  # it has no process for a moment, and is no leftover all the same
    doomed = [service(real, name) for name in SERVICES]
    doomed += [first_process(real, node) for node in instances(real)]
    real.kill_daemon()
    for pid in doomed:
        kill(pid)
    links.remove(links.bridge_name("faults"))
    until(lambda: not real.left_behind())
