"""SIGKILL at every await point of a resume and of a suspend: nothing lost, nothing twice."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from springtide.model import NodeState
from tests.sim.world import Life, World

pytestmark = pytest.mark.looptime


async def _until(done: Callable[[], bool], limit_s: float) -> None:
    async with asyncio.timeout(limit_s):
        while not done():
            await asyncio.sleep(0.25)


async def _cycle(world: World, dies_at: int | None) -> int:
    """A job of three nodes from zero, and back to zero; answers the await points passed."""
    life = Life(dies_at)
    job = world.batch.submit(3, 10)

    def over() -> bool:
        return job.state == "COMPLETED" and not world.cloud.alive() and not world.spool

    async with world.living(life):
        await _until(lambda: over() or life.over.is_set(), 900)
        if not life.over.is_set():
            await asyncio.sleep(5)
    if life.over.is_set():
        await asyncio.sleep(2)
        async with world.living(Life()) as daemon:
            await _until(over, 900)
            await daemon.engine.idle()
    return life.passed


async def _assert_clean(world: World) -> None:
    assert world.cloud.duplicates() == []
    assert world.cloud.alive() == []
    assert world.batch.killed_jobs == {}
    async with world.living(Life()) as daemon:
        await daemon.engine.idle()
        store = daemon.parts.record.store
        assert {node.state for node in (await store.nodes()).values()} == {NodeState.OFF}
        assert await store.operations(unfinished=True) == []
        assert await store.waiting() == []


async def test_a_job_comes_and_goes_without_a_kill(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert await _cycle(world, None) > 100
    await _assert_clean(world)
    assert world.cloud.calls["create"] == 1, "three nodes are made with one call"


@pytest.mark.accepts("X1")
@pytest.mark.timeout(300)
async def test_a_kill_at_any_await_point_loses_nothing_and_makes_nothing_twice(
    tmp_path: Path,
) -> None:
    points = await _cycle(World(tmp_path / "whole"), None)
    for dies_at in range(1, points + 1):
        world = World(tmp_path / f"killed-{dies_at}")
        print("killed at await point", dies_at, "of", points)
        await _cycle(world, dies_at)
        await _assert_clean(world)
