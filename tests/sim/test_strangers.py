"""Instances that nobody needs and that cannot be deleted, on virtual time."""

import asyncio
from pathlib import Path

import pytest

from springtide.model import NodeState
from tests.sim.test_repair import ids, made, state, stray, until, up
from tests.sim.test_turns import events, instance, locked
from tests.sim.world import Life

__all__ = ["locked"]
pytestmark = pytest.mark.looptime


async def test_instances_that_cannot_be_deleted_keep_no_other_from_it(
    tmp_path: Path, locked: set[str]
) -> None:
    world = made(tmp_path)
    async with world.living(Life()):
        locked.update(stray(world, f"zz{number}").id for number in range(1, 4))
        stray(world, "zz9")
        await until(lambda: set(ids(world)) == locked)


async def test_instances_that_cannot_be_deleted_keep_no_node_from_its_repair(
    tmp_path: Path, locked: set[str]
) -> None:
    world = made(tmp_path)
    async with world.living(Life()) as daemon:
        await up(world, daemon)
        locked.update(stray(world, f"zz{number}").id for number in range(1, 4))
        await asyncio.sleep(600)
        world.batch.on_suspend.clear()
        await world.batch.power_down(["c1"])
        await until(lambda: state(daemon) is NodeState.OFF)


async def test_an_instance_is_said_to_be_deleted_once_it_can_be(
    tmp_path: Path, locked: set[str]
) -> None:
    world = made(tmp_path)
    async with world.living(Life()) as daemon:
        locked.add(stray(world, "zz9").id)
        await asyncio.sleep(600)
        assert await events(daemon, "unneeded instance deleted") == []
        found = await daemon.parts.record.store.events(limit=1000)
        (told,) = [event for event in found if event.what == "unneeded instance not deleted"]
        assert told.detail == f"zz9 ({instance(world, 'zz9')}): locked by your admin"
        locked.clear()
        await until(lambda: not ids(world))
        assert await events(daemon, "unneeded instance deleted") == ["zz9"]
        assert await events(daemon, "unneeded instance not deleted no more") == [None]
