"""SIGKILL at every await point of a resume and of a suspend: nothing lost, nothing twice."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path

import pytest

from springtide.daemon import Daemon
from springtide.engine import Refused
from springtide.model import Kind, Node, NodeState, OperationState
from springtide.ports import Rejected
from tests.sim.world import LIFE, Life, World

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


async def _restarted(world: World, life: Life, over: Callable[[], bool]) -> None:
    """Go on after a kill, until the world is at rest."""
    if life.over.is_set():
        await asyncio.sleep(2)
        async with world.living(Life()) as daemon:
            await daemon.engine.idle()
            await _until(over, 900)


async def _deploy_in_vain(world: World, dies_at: int | None) -> int:
    """A deploy whose nodes never boot: they fall out, and are removed."""
    world.cloud.faults.stuck_boots = 1.0
    life = Life(dies_at)
    async with world.living(life) as daemon:
        task = asyncio.create_task(daemon.engine.submit(Kind.DEPLOY, ["c1", "c2"], asked_by="x"))
        await _until(lambda: task.done() or life.over.is_set(), 10)
        await _until(lambda: not daemon.engine._runs or life.over.is_set(), 900)
    await _restarted(world, life, lambda: not world.cloud.alive())
    return life.passed


async def _give_back(world: World, dies_at: int | None) -> int:
    """A job whose nodes are refused at first, so that its resume is rescued."""
    world.cloud.faults.refused_nodes["c1"] = Rejected("bad image")
    job = world.batch.submit(2, 5)
    life = Life(dies_at)

    def over() -> bool:
        return job.state == "COMPLETED" and not world.cloud.alive() and not world.spool

    async with world.living(life):
        await _until(lambda: job.requeues > 0 or life.over.is_set(), 900)
        world.cloud.faults.refused_nodes.clear()
        await _until(lambda: over() or life.over.is_set(), 900)
    world.cloud.faults.refused_nodes.clear()
    await _restarted(world, life, over)
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
@pytest.mark.parametrize("scenario", [_deploy_in_vain, _give_back])
async def test_a_kill_while_fallen_nodes_are_rescued_leaves_nothing_behind(
    tmp_path: Path, scenario: Callable[[World, int | None], Awaitable[int]]
) -> None:
    points = await scenario(World(tmp_path / "whole"), None)
    for dies_at in range(1, points + 1, 3):
        print("killed at await point", dies_at, "of", points)
        world = World(tmp_path / f"killed-{dies_at}")
        await scenario(world, dies_at)
        await _assert_clean(world)


async def _cancelled(world: World, moment: int) -> bool:
    """A resume that is cancelled at some await point; False if it was over by then."""
    life = Life()
    cancels: list[asyncio.Task[None]] = []
    async with world.living(life) as daemon:
        life.fate = lambda: cancels.append(asyncio.create_task(daemon.engine.cancel(1, "alice")))
        life.dies_at = life.passed + moment
        token = LIFE.set(life)
        await daemon.engine.submit(Kind.RESUME, ["c1", "c2"], asked_by="x")
        LIFE.reset(token)
        await daemon.engine.idle()
        for cancel in cancels:
            with suppress(Refused):
                await cancel
        nodes = daemon.parts.record.nodes
        assert nodes == await daemon.parts.record.store.nodes(), "memory parted from disk"
        alive = {instance.node for instance in world.cloud.alive()}
        assert alive == {name for name, node in nodes.items() if node.state is NodeState.READY}
        (operation,) = await daemon.parts.record.store.operations()
        assert operation.state in (OperationState.DONE, OperationState.CANCELLED)
        return bool(cancels)


async def test_a_cancel_at_any_await_point_leaves_nothing_behind(tmp_path: Path) -> None:
    moment = 1
    while await _cancelled(World(tmp_path / f"cancelled-{moment}"), moment):
        moment += 1
    assert moment > 50


async def _started(world: World, moment: int) -> bool:
    """A start of a stopped cluster that is cancelled at some await point, before a Slurm that is
    not ours; False if it was over by then."""
    world.batch.existing = True
    life = Life()
    cancels: list[asyncio.Task[None]] = []
    async with world.living(life) as daemon:
        await daemon.engine.wait((await daemon.people.deploy("root")).operations[0].id)
        (stop,) = (await daemon.people.stop("root", {})).operations
        await daemon.engine.wait(stop.id)
        assert world.batch.closed
        assert daemon.parts.stopped
        cancel = daemon.engine.cancel
        life.fate = lambda: cancels.append(asyncio.create_task(cancel(stop.id + 1, "alice")))
        life.dies_at = life.passed + moment
        token = LIFE.set(life)
        await daemon.engine.submit(Kind.DEPLOY, ["c1"], asked_by="x")
        LIFE.reset(token)
        await daemon.engine.idle()
        life.dies_at = None
        for cancelled in cancels:
            with suppress(Refused):
                await cancelled
        await _until(lambda: world.batch.closed == daemon.parts.stopped, 60)
        return bool(cancels)


async def test_a_start_that_is_cancelled_at_any_await_point_leaves_no_queue_closed(
    tmp_path: Path,
) -> None:
    moment = 1
    while await _started(World(tmp_path / f"started-{moment}"), moment):
        moment += 1
    assert moment > 50


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_start_that_waits_behind_a_stop_and_gives_up_opens_no_queue(
    tmp_path: Path, is_cancelled: bool
) -> None:
    world = World(tmp_path)
    world.batch.existing = True
    async with world.living(Life()) as daemon:
        await daemon.engine.wait((await daemon.people.deploy("root")).operations[0].id)
        world.batch.submit(1, daemon.spec.timing.lock + 300)
        await _until(lambda: any(n.state is NodeState.READY for n in _nodes(daemon)), 300)
        (stop,) = (await daemon.people.stop("root", {})).operations
        await _until(lambda: world.batch.closed, 60)
        (start,) = (await daemon.people.deploy("root")).operations
        if is_cancelled:
            await daemon.engine.cancel(start.id, "alice")
        ended = await daemon.engine.wait(start.id)
        assert ended is not None
        assert ended.state is (OperationState.CANCELLED if is_cancelled else OperationState.FAILED)
        late = world.batch.submit(1, 5)
        await daemon.engine.wait(stop.id)
        await asyncio.sleep(300)
        assert (world.batch.closed, daemon.parts.stopped) == (True, True)
        assert (late.state, world.cloud.alive()) == ("PENDING", [])


async def test_queues_that_are_closed_while_a_start_runs_stay_closed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.batch.existing = True
    world.cloud.faults.boot_s = 60
    async with world.living(Life()) as daemon:
        await daemon.engine.wait((await daemon.people.deploy("root")).operations[0].id)
        await daemon.engine.wait((await daemon.people.stop("root", {})).operations[0].id)
        (start,) = await daemon.engine.submit(Kind.DEPLOY, ["c1"], asked_by="x")
        await _until(lambda: world.batch.opening, 200)
        await world.batch.close()
        await daemon.engine.wait(start.id)
        await asyncio.sleep(300)
        assert world.batch.closed


def _nodes(daemon: Daemon) -> Collection[Node]:
    return daemon.parts.record.nodes.values()


@pytest.mark.accepts("X1")
async def test_a_kill_at_any_await_point_loses_nothing_and_makes_nothing_twice(
    tmp_path: Path,
) -> None:
    points = await _cycle(World(tmp_path / "whole"), None)
    for dies_at in range(1, points + 1):
        world = World(tmp_path / f"killed-{dies_at}")
        print("killed at await point", dies_at, "of", points)
        await _cycle(world, dies_at)
        await _assert_clean(world)
