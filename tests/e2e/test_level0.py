"""Level 0: a provider that makes nothing, in front of a real slurmctld.

An instance of the fake cloud "boots" by starting a plain slurmd on a loopback address, so all of
Slurm and all of Springtide are real but the machines.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from random import Random

import pytest
import uvicorn

from springtide.api.app import create_app
from springtide.api.peers import PeerProtocol
from springtide.api.server import listen
from springtide.compose import compose
from springtide.daemon import Daemon
from springtide.guard import Guard
from springtide.model import Kind, NodeState
from springtide.ports import Instance, Launch
from springtide.providers.fake import FakeCloud, FakeProvider, Faults
from springtide.spec import parse
from springtide.steps import Parts
from tests.e2e.gate import Gate
from tests.leftovers import place

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

SPEC = """
cluster: level0
state: STATE
batch:
  kind: slurm
  port: 16897
  node_port: 16898
  parameters: {CommunicationParameters: NoInAddrAny}
provider: {kind: none}
groups: {general: {nodes: "z-[01-24]", provider: {kind: containers}}}
timing: {idle: 3s, start: 120s, stop: 30s}
"""
SPACES = ("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
"""A machine takes its jobs with it when it goes."""
BOOT = """\
mount -t tmpfs none /run
printf '%s %s\\n127.0.0.1 localhost\\n' "$2" "$1" >/run/hosts
hostname "$1"
mount --bind /run/hosts /etc/hosts
mkdir -p /run/spool
mount --bind /run/spool /var/spool
exec slurmd -D -b -N "$1" -f "$3"
"""


class Level0:
    """A daemon with its API, a fake cloud, and slurmds that stand for machines."""

    def __init__(self, state: Path) -> None:
        real = compose(parse(SPEC.replace("STATE", str(state)), "level0.yaml"))
        self.cloud = FakeCloud(Faults(boot_s=1.0, delete_s=0.2))
        provider = Guard(FakeProvider(self.cloud), Random())
        parts = Parts(
            spec=real.spec,
            record=real.parts.record,
            providers={"general": provider},
            home=provider,
            batch=real.parts.batch,
            configurator=real.parts.configurator,
        )
        self.daemon = Daemon(parts, real.layout)
        self.machines: dict[str, subprocess.Popen[bytes]] = {}
        self.cloud.on_running.append(self._power_on)
        self.cloud.on_stopped.append(self._power_off)

    def _power_on(self, instance: Instance) -> None:
        conf = self.daemon.layout.conf / "slurm.conf"
        assert instance.address is not None
        arguments = ("sh", instance.node, instance.address, str(conf))
        self.machines[instance.node] = subprocess.Popen(
            [*SPACES, "sh", "-ec", BOOT, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _power_off(self, instance: Instance) -> None:
        machine = self.machines.pop(instance.node, None)
        if machine is not None:
            with suppress(ProcessLookupError):
                os.killpg(machine.pid, signal.SIGKILL)
            machine.wait()

    async def slurm(self, *command: str) -> str:
        conf = str(self.daemon.layout.conf / "slurm.conf")
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, "SLURM_CONF": conf}, stdout=subprocess.PIPE
        )
        said, _ = await process.communicate()
        assert process.returncode == 0
        return said.decode().strip()

    async def submit(self, node: str) -> Gate:
        """A job that tells where it runs, and goes on until the gate is open."""
        gate = Gate(self._place / "gate")
        script, out = f"hostname; {gate.wait}", str(self._place / "out")
        await self.slurm("sbatch", "-w", node, "-o", out, "--wrap", script)
        return gate

    def has_run(self, node: str) -> Callable[[], bool]:
        out = self._place / "out"
        return lambda: out.exists() and out.read_text() == f"{node}\n"

    @property
    def _place(self) -> Path:
        return self.daemon.layout.state.parent

    def states(self, names: list[str]) -> set[NodeState]:
        return {node.state for node in self.daemon.parts.record.of(names)}


async def until(done: Callable[[], bool], limit_s: float = 120.0) -> None:
    async with asyncio.timeout(limit_s):
        while not done():
            await asyncio.sleep(0.05)


@pytest.fixture
async def level0() -> AsyncIterator[Level0]:
    with place() as root:
        world = Level0(_made(root / "s"))
        daemon = world.daemon
        config = uvicorn.Config(
            create_app(daemon), http=PeerProtocol, ws="none", lifespan="off", log_config=None
        )
        server = uvicorn.Server(config)
        try:
            async with daemon.running():
                serving = asyncio.create_task(server.serve(sockets=[listen(daemon.layout.socket)]))
                (operation,) = await daemon.engine.submit(Kind.DEPLOY, (), asked_by="test")
                ended = await daemon.engine.wait(operation.id)
                assert ended is not None
                assert ended.state == "done", ended
                yield world
                server.should_exit = True
                await serving
        finally:
            await daemon.parts.batch.stop()
            for instance in world.cloud.alive():
                world._power_off(instance)
            await daemon.parts.record.store.close()


def _made(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.accepts("B1")
async def test_a_node_is_released_by_a_simulated_boot(level0: Level0) -> None:
    level0.cloud.faults.boot_s = 10.0
    gate = await level0.submit("z-07")
    await until(lambda: len(level0.cloud.alive()) == 1)
    assert level0.states(["z-07"]) <= {NodeState.REQUESTED, NodeState.BOOTING, NodeState.JOINING}
    await until(level0.has_run("z-07"))
    await until(lambda: level0.states(["z-07"]) == {NodeState.READY})
    gate.open()
    await until(lambda: level0.states(["z-07"]) == {NodeState.OFF})
    assert level0.cloud.alive() == []


@pytest.mark.accepts("C9")
async def test_twenty_nodes_start_at_once_and_not_one_after_the_other(level0: Level0) -> None:
    """Each boots for a second; that they do so together shows in the order of the events."""
    await level0.slurm("sbatch", "-N20", "-o", "/dev/null", "--wrap", "srun true")
    names = [f"z-{n:02}" for n in range(1, 21)]
    await until(lambda: level0.states(names) == {NodeState.READY})
    assert level0.cloud.calls["create"] == 1
    events = await level0.daemon.parts.record.store.events()
    created = [event.at for event in events if event.what == "instance created"]
    registered = [event.at for event in events if event.what == "node registered"]
    assert len(created) == len(registered) == 20
    assert max(created) < min(registered)


def _launch(node: str, generation: int) -> Launch:
    return Launch("level0", node, generation, "general", "host", "default")


@pytest.mark.accepts("C10")
async def test_a_namesake_that_still_terminates_is_waited_for(level0: Level0) -> None:
    level0.cloud.faults.delete_s = 8.0
    old = level0.cloud.start(_launch("z-05", 7))
    level0.cloud.delete(old.id)
    gate = await level0.submit("z-05")
    await until(level0.has_run("z-05"))
    (instance,) = level0.cloud.alive()
    gate.open()
    assert instance.id != old.id
    assert level0.cloud.duplicates() == []


@pytest.mark.accepts("C10")
async def test_an_instance_that_exists_already_is_adopted(level0: Level0) -> None:
    """As after a lost reply: the cloud has it, the record does not. It boots after Slurm asked, in
    a later second: that is all that Slurm can tell."""
    level0.cloud.faults.boot_s = inf
    made = level0.cloud.start(_launch("z-06", 1))
    await level0.slurm("scontrol", "update", "nodename=z-06", "state=power_up")
    await level0.submit("z-06")
    await until(lambda: level0.states(["z-06"]) == {NodeState.JOINING})
    asked = int(time.time())
    await until(lambda: int(time.time()) > asked)
    level0.cloud.boot()
    await until(lambda: level0.states(["z-06"]) == {NodeState.READY})
    assert level0.daemon.parts.record.nodes["z-06"].instance == made.id
    assert level0.cloud.calls["create"] == 1
    assert [instance.id for instance in level0.cloud.alive()] == [made.id]
