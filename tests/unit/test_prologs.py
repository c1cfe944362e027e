"""Prologs are let go when their nodes are ready, or when waiting has become pointless."""

import asyncio
from pathlib import Path

import pytest

from springtide.daemon import Daemon
from springtide.providers.fake import Faults
from tests.sim.world import Life, World

pytestmark = pytest.mark.looptime


@pytest.fixture(autouse=True)
def state_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For clusters whose file names no state directory."""
    monkeypatch.setattr("springtide.spec.cluster.STATE", tmp_path / "states")


@pytest.fixture
async def world(tmp_path: Path) -> World:
    return World(tmp_path, nodes=3, faults=Faults(boot_s=20))


async def wait(daemon: Daemon, job: str, *names: str) -> tuple[str, float]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    why = await daemon.prologs.wait(job, names, 600)
    return why, loop.time() - began


async def test_a_prolog_is_let_go_when_its_last_node_registers(world: World) -> None:
    async with world.living(Life()) as daemon:
        job = world.batch.submit(2, 60)
        await asyncio.sleep(0.1)
        why, waited_s = await wait(daemon, job.id, *job.nodes)
        assert why == "ready"
        assert 20 < waited_s < 25


async def test_no_job_starts_before_its_node_is_looked_for_where_it_is(world: World) -> None:
    """Slurm takes for a node's address where its registration came from."""
    world.batch.gateway = "10.9.9.9"
    world.batch.timing.latency_s = 1.5
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 60)
        await asyncio.sleep(10)
        await wait(daemon, job.id, *job.nodes)
        (node,) = daemon.parts.record.of(job.nodes)
        assert world.batch.node(node.name).address == node.address


async def test_a_prolog_of_ready_nodes_does_not_wait(world: World) -> None:
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 600)
        await asyncio.sleep(40)
        assert (await wait(daemon, job.id, *job.nodes))[1] == 0


async def test_a_prolog_leaves_when_its_job_is_gone(world: World) -> None:
    async with world.living(Life()) as daemon:
        why, waited_s = await wait(daemon, "no such job", "c1")
        assert why == "the job no longer waits for nodes"
        assert waited_s < 2


async def test_a_prolog_leaves_when_a_node_fails(world: World) -> None:
    world.cloud.faults.stuck_boots = 1.0
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 60)
        await asyncio.sleep(0.1)
        why, _ = await wait(daemon, job.id, *job.nodes)
        assert why in (f"{job.nodes or 'c1'} failed", "c1 failed")


async def test_while_the_batch_system_is_silent_nobody_is_let_go(world: World) -> None:
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 60)
        await asyncio.sleep(0.1)
        world.batch.unavailable = True
        waiting = asyncio.create_task(wait(daemon, job.id, *job.nodes))
        await asyncio.sleep(15)
        assert not waiting.done()
        world.batch.unavailable = False
        assert (await waiting)[0] in ("ready", "registered")


async def test_many_prologs_cost_one_question(world: World) -> None:
    async with world.living(Life()) as daemon:
        job = world.batch.submit(3, 60)
        await asyncio.sleep(0.1)
        before = world.batch.calls["jobs"]
        await asyncio.gather(*(wait(daemon, job.id, *job.nodes) for _ in range(200)))
        assert world.batch.calls["jobs"] - before <= 25
