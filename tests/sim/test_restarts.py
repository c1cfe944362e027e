"""A daemon that ends amid operations, and one that goes on with them, on virtual time."""

import asyncio
from pathlib import Path

import pytest

from springtide.model import Kind, NodeState, OperationState
from springtide.providers.fake import Faults
from tests.sim.test_engine import states
from tests.sim.test_repair import made, state, until, up
from tests.sim.test_turns import instance, locked
from tests.sim.world import Life, World

__all__ = ["locked"]
pytestmark = pytest.mark.looptime


async def test_a_daemon_stops_though_what_was_cancelled_cannot_be_cleaned_up(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, nodes=1, faults=Faults(boot_s=60, delete_s=3))
    async with world.living(Life()) as daemon:
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        await until(lambda: states(world)["c1"] is NodeState.JOINING)
        world.cloud.faults.refused_deletes = 1.0
        cancelling = asyncio.create_task(daemon.engine.cancel(operation.id, "alice"))
        await until(lambda: states(world)["c1"] is NodeState.DELETING)
        async with asyncio.timeout(60):
            await daemon.engine.stop()
        cancelling.cancel()
    world.cloud.faults.refused_deletes = 0.0
    async with world.living(Life()) as daemon:
        ended = await daemon.engine.wait(operation.id)
        assert ended is not None
        assert ended.state is OperationState.CANCELLED
        assert world.cloud.alive() == []


async def test_what_has_begun_goes_on_before_what_waits_for_it_after_a_restart(
    tmp_path: Path, locked: set[str]
) -> None:
    """The part of an operation that goes ahead as one of its own is younger than those behind."""
    world = made(tmp_path, nodes=2)
    async with world.living(Life()) as daemon:
        await up(world, daemon, 2)
        locked.add(instance(world, "c1"))
        world.cloud.faults.boot_s = 60
        world.batch.on_suspend.clear()
        await daemon.people.kill(["c1", "c2"], "root")
        await daemon.engine.submit(Kind.RESUME, ["c1", "c2"], asked_by="root")
        (behind,) = (await daemon.people.kill(["c2"], "root")).operations
        await until(lambda: state(daemon, "c2") is NodeState.JOINING)
    async with world.living(Life()) as daemon:
        ended = await daemon.engine.wait(behind.id)
        assert ended is not None
        assert (ended.state, ended.reason) == (OperationState.DONE, "")
        assert state(daemon, "c2") is NodeState.OFF
