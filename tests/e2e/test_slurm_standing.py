"""A Slurm of our own that lost its processes: it is told which, at once, and starts them again."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from springtide.batch import slurm_service
from springtide.batch.slurm import Slurm
from springtide.batch.slurm_attached import AttachedSlurm
from springtide.configure.slurm_node import ensure_munge_key
from springtide.layout import Layout
from springtide.ports import Site, Unavailable
from springtide.spec import Cluster
from tests.e2e.real import until
from tests.e2e.slurm_lab import note_calls
from tests.leftovers import place
from tests.ports import free_ports

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

HERE = Site("127.0.0.1")
SERVICES = ("munged", "mariadbd", "slurmdbd", "slurmctld")


@dataclass
class Stand:
    """A cluster with all control processes there are, and no node that anybody starts."""

    home: Path
    ports: tuple[int, ...]

    @property
    def layout(self) -> Layout:
        return Layout(self.home / "s")

    def slurm(self, *, accounting: bool = True) -> Slurm:
        """As a daemon that was just started has it: nothing is known but by files."""
        port, node_port, dbd_port = self.ports
        batch = {"port": port, "node_port": node_port}
        more = {"accounting": {"port": dbd_port}} if accounting else {}
        base = {"cluster": "stand", "state": str(self.layout.state)}
        groups = {"general": {"nodes": "s[1-2]"}}
        return Slurm(Cluster.model_validate({**base, "batch": {**batch, **more}, "groups": groups}))

    def pid(self, service: str) -> int:
        return int((self.layout.run / f"{service}.pid").read_text().split()[0])

    def submit(self) -> str:
        """A job that only waits."""
        command = ["sbatch", "--parsable", "--hold", "-o", "/dev/null", "--wrap=true"]
        environment = {**os.environ, "SLURM_CONF": str(self.layout.conf / "slurm.conf")}
        return subprocess.check_output(command, env=environment, cwd="/", text=True).strip()

    def kill(self, *services: str) -> None:
        """As the machine does when it goes down: without a word, and gone."""
        for service in services:
            stat = slurm_service.read(f"/proc/{self.pid(service)}/stat")
            process = slurm_service.parse_stat(stat)
            assert process is not None
            os.kill(process.pid, signal.SIGKILL)
            until(partial(_is_dead, process))


def _is_dead(process: slurm_service.Process) -> bool:
    return not process.alive


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    with place() as home:
        stand = Stand(home, free_ports(3))
        ensure_munge_key(stand.layout.munge_key)
        note_calls(stand.layout.programs, stand.home)
        try:
            yield stand
        finally:
            await stand.slurm().stop()


@pytest.mark.accepts("C20")
async def test_whatever_process_dies_is_named_and_started_again(stand: Stand) -> None:
    slurm = stand.slurm()
    assert await slurm.standing() == "", "nothing was ever started"
    await slurm.reload(HERE)
    for service in SERVICES:
        assert await slurm.standing() == ""
        stand.kill(service)
        assert await slurm.standing() == f"{service} does not run"
        assert f"{service} started" in await slurm.reload(HERE)
    assert await slurm.standing() == ""
    assert (await slurm.nodes()).keys() == {"s1", "s2"}
    await slurm.stop()
    assert await slurm.standing() == "", "it is not to run"


@pytest.mark.accepts("C20")
async def test_all_are_started_again_whatever_a_switched_off_machine_left(stand: Stand) -> None:
    slurm = stand.slurm()
    await slurm.reload(HERE)
    stand.kill(*reversed(SERVICES))
    layout, bystander = stand.layout, await asyncio.create_subprocess_exec("sleep", "600")
    try:
        # Not while it becomes another program.
        until(Path(f"/proc/{bystander.pid}/cmdline").read_bytes)
        # After a boot ids mean others, and sockets that nobody listens at are still there.
        named = Path(f"/proc/{bystander.pid}/stat").read_text()
        for service in SERVICES:
            (layout.run / f"{service}.pid").write_text(named)
            (layout.run / f"{service}.pid.new").write_text("half of a line")
        assert layout.munge_socket.is_socket()
        assert layout.database_socket.is_socket()
        said = await stand.slurm().standing()
        assert said == "munged, mariadbd, slurmdbd and slurmctld do not run"
        changed = await stand.slurm().reload(HERE)
        assert changed == "munged started, mariadbd started, slurmdbd started, slurmctld started"
        assert await slurm.standing() == ""
        assert bystander.returncode is None
    finally:
        bystander.kill()
        await bystander.wait()


async def test_a_slurmctld_killed_soon_after_its_first_start_keeps_its_queue(stand: Stand) -> None:
    """26.05 does not start without files that it saves minutes later."""
    slurm = stand.slurm()
    await slurm.reload(HERE)
    job = stand.submit()
    until(lambda: (stand.layout.state / "slurmctld" / "job_state").exists())
    stand.kill("slurmctld")
    assert "slurmctld started" in await stand.slurm().reload(HERE)
    assert [job.id for job in await stand.slurm().jobs()] == [job]


async def test_what_is_wanted_but_was_never_applied_is_not_missed(stand: Stand) -> None:
    await stand.slurm(accounting=False).reload(HERE)
    assert await stand.slurm().standing() == ""


async def test_a_command_to_a_dead_slurmctld_fails_at_once_and_says_what_to_do(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not run at all, for it would try for many seconds."""
    slurm = stand.slurm(accounting=False)
    await slurm.reload(HERE)
    stand.kill("slurmctld")
    asks = (slurm.nodes(), slurm.jobs(), slurm.drain(["s1"], "disk"), slurm.tell("1", "hello"))
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(stand.home))
        patch.setattr(slurm_service, "PATH", str(stand.home))
        for ask in asks:
            with pytest.raises(Unavailable, match="slurmctld does not run; run `tide deploy`, or"):
                await ask
    assert await slurm.version()
    stand.kill("munged")
    with pytest.raises(Unavailable, match="munged and slurmctld do not run"):
        await slurm.nodes()


async def test_a_slurm_of_others_is_not_missed(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=theirs\n")
    (tmp_path / "s" / "run").mkdir(parents=True)
    (tmp_path / "s" / "run" / "slurm.conf").write_text("ClusterName=of a former life\n")
    base = {"cluster": "stand", "state": str(tmp_path / "s"), "batch": {"attach": str(conf)}}
    groups = {"general": {"nodes": "s[1-2]"}}
    theirs = AttachedSlurm(Cluster.model_validate({**base, "groups": groups}))
    assert await theirs.standing() == ""
