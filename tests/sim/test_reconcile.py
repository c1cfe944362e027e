"""What random weeks found, each made small: nothing here may come back."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from springtide.batch.fake import Timing
from springtide.batch.fake_records import FakeNode
from springtide.model import Cause, Hold, Kind, NodeState
from springtide.ports import Launch, Power
from tests.sim.test_engine import states, until
from tests.sim.world import Life, World

pytestmark = [pytest.mark.looptime, pytest.mark.usefixtures("few_looks_into_the_spool")]


TEXT = """
cluster: sim
batch: {{kind: fake}}
provider: {{kind: fake}}
groups: {{general: {{nodes: "c[1-3]", min: {min}}}}}
timing: {{start: 120s, stop: 60s, lock: 10m, gather: 20ms, reconcile: {reconcile}, grace: 60s}}
"""


def world_of(
    path: Path, min: int = 0, reconcile: str = "60s", idle_s: float = 300, timeout_s: float = 9999
) -> World:
    return World(
        path,
        text=TEXT.format(min=min, reconcile=reconcile),
        timing=Timing(latency_s=0.01, join_s=1, idle_s=idle_s, resume_timeout_s=timeout_s),
    )


async def passed(world: World, done: Callable[[], bool], limit_s: float = 3000) -> None:
    await until(done, limit_s)
    assert world.batch.killed_jobs == {}


@pytest.mark.accepts("C19")
async def test_an_old_list_does_not_end_a_job_on_a_node_that_is_asked_for_again(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 100)
        await until(lambda: NodeState.READY in states(world).values())
        world.cloud.faults.stale_s = 50
        (late,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="batch")
        await daemon.engine.wait(late.id)
        await passed(world, lambda: job.state == "COMPLETED")
        assert job.requeues == 0


@pytest.mark.accepts("C19")
async def test_nodes_of_a_held_group_are_not_asked_for_again_and_again(tmp_path: Path) -> None:
    world = world_of(tmp_path, reconcile="10m")
    world.cloud.quota = 0
    async with world.living(Life()) as daemon:
        job = world.batch.submit(2, 10)
        await asyncio.sleep(1500)
        assert len(await daemon.parts.record.store.operations()) < 20
        world.cloud.quota = None
        await passed(world, lambda: job.state == "COMPLETED", 9000)
        await passed(world, lambda: not any(n.drained for n in nodes(world)), 3000)


def nodes(world: World) -> list[FakeNode]:
    return [world.batch.node(name) for name in world.spec.managed]


@pytest.mark.accepts("C19")
async def test_a_node_that_registered_while_nobody_could_ask_keeps_its_job(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()):
        job = world.batch.submit(1, 2000)
        await until(lambda: NodeState.JOINING in states(world).values())
        world.batch.unavailable = True
        await asyncio.sleep(900)
        assert job.state == "RUNNING"
        world.batch.unavailable = False
        await passed(world, lambda: states(world)["c1"] is NodeState.READY)
        await passed(world, lambda: job.state == "COMPLETED")
        assert job.requeues == 0
        await passed(world, lambda: not world.cloud.alive())


@pytest.mark.accepts("C19")
async def test_a_node_that_serves_again_before_it_could_be_deleted_keeps_its_job(
    tmp_path: Path,
) -> None:
    """Somebody's stray with the node's name has brought it back to service."""
    world = world_of(tmp_path)
    async with world.living(Life()):
        first = world.batch.submit(1, 10)
        await until(lambda: first.state == "COMPLETED")
        world.cloud.faults.ignored_deletes = 1.0
        await until(lambda: states(world)["c1"] is NodeState.DELETING)
        await until(lambda: world.batch.node("c1").power is Power.DOWN)
        world.cloud.start(Launch("sim", "c1", 7, "general", "host", "default"))
        await until(lambda: world.batch.node("c1").registered)
        job = world.batch.submit(1, 2000)
        await until(lambda: job.state == "RUNNING")
        world.cloud.faults.ignored_deletes = 0.0
        await passed(world, lambda: job.state == "COMPLETED")
        assert job.requeues == 0
        await passed(world, lambda: not world.cloud.alive())


@pytest.mark.accepts("X1")
async def test_nodes_that_came_and_went_while_the_daemon_was_dead_did_not_fail(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path, idle_s=30)
    life = Life()
    job = world.batch.submit(3, 10)
    async with world.living(life):
        await until(lambda: set(states(world).values()) == {NodeState.JOINING})
        life.over.set()
    await asyncio.sleep(300)
    assert job.state == "COMPLETED"
    async with world.living(Life()) as daemon:
        await passed(world, lambda: not world.cloud.alive(), 300)
        await daemon.engine.idle()
        assert await daemon.parts.record.store.holds() == {}


async def test_a_node_that_is_held_back_and_down_comes_back_when_nothing_holds_it(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path, timeout_s=60)
    async with world.living(Life()) as daemon:
        world.is_lost = lambda request: True
        await world.batch.power_up(["c1"])
        await until(lambda: world.batch.node("c1").down)
        await world.batch.drain(["c1"], "held")
        world.is_lost = lambda request: False
        job = world.batch.submit(3, 10)
        await passed(world, lambda: job.state == "COMPLETED")
        await daemon.engine.idle()


async def test_a_hold_that_was_over_long_ago_is_forgotten(tmp_path: Path) -> None:
    world = world_of(tmp_path, reconcile="1h")
    async with world.living(Life()) as daemon:
        now = asyncio.get_running_loop().time()
        old = Hold("place:a/small/@fake", Cause.CAPACITY, "full", 1, now, now + 120)
        daemon.parts.holding.known[old.key] = old
        await daemon.parts.record.store.hold(old)
        await asyncio.sleep(80_000)
        assert set(await daemon.parts.record.store.holds()) == {old.key}
        await asyncio.sleep(20_000)
        assert await daemon.parts.record.store.holds() == {}


async def test_a_group_is_open_again_when_its_probe_served_well_between_two_passes(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path, reconcile="10m", idle_s=100)
    world.cloud.faults.stuck_boots = 1.0
    async with world.living(Life()) as daemon:
        job = world.batch.submit(3, 10)
        await until(lambda: bool(daemon.parts.holding.held_groups(world.spec)), 9000)
        world.cloud.faults.stuck_boots = 0.0
        await passed(world, lambda: job.state == "COMPLETED", 9000)


@pytest.mark.accepts("X9")
async def test_a_person_s_drain_outlasts_a_suspend_whose_deletion_takes_long(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path, idle_s=9999)
    async with world.living(Life()) as daemon:
        await world.batch.power_up(["c1"])
        await until(lambda: states(world)["c1"] is NodeState.READY)
        await daemon.people.drain(["c1"], "fan", "alice")
        world.cloud.faults.ignored_deletes = 1.0
        await daemon.people.suspend(["c1"], "bob")
        await until(lambda: world.batch.node("c1").power is Power.DOWN)
        job = world.batch.submit(2, 10)
        await passed(world, lambda: job.state == "COMPLETED")
        assert (world.batch.node("c1").drained, world.batch.node("c1").owner) == (True, "alice")


@pytest.mark.accepts("X9")
async def test_a_held_group_does_not_take_over_a_person_s_drain(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.cloud.quota = 0
    async with world.living(Life()) as daemon:
        await daemon.people.drain(["c1"], "fan", "alice")
        await world.batch.power_up(["c1"])
        await asyncio.sleep(600)
        world.cloud.quota = None
        await asyncio.sleep(9000)
        assert (world.batch.node("c1").drained, world.batch.node("c1").owner) == (True, "alice")


async def test_a_node_in_its_next_life_has_not_the_troubles_of_the_last(tmp_path: Path) -> None:
    """It was repaired and is back, but an old list shows it without an instance."""
    world = world_of(tmp_path, reconcile="30s", timeout_s=600)
    async with world.living(Life()) as daemon:
        await world.batch.power_up(["c1"])
        await until(lambda: states(world)["c1"] is NodeState.READY)
        await asyncio.sleep(100)
        world.cloud.faults.stale_s = 45
        world.cloud.die(world.cloud.alive()[0].id)
        job = world.batch.submit(1, 400)
        await until(lambda: job.state == "RUNNING" and states(world)["c1"] is NodeState.READY)
        await passed(world, lambda: job.state == "COMPLETED")
        assert job.requeues <= 1
        await daemon.engine.idle()
