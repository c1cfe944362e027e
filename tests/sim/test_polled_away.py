"""A batch system that is read and does not answer: what people ask for is not half done."""

import asyncio
from pathlib import Path

import pytest

from springtide.model import Kind, NodeState, OperationState, Step
from springtide.ports import Unavailable
from springtide.spec import parse
from springtide.spool import BadRequest
from springtide.steps import STEPS, Fallen, Work
from tests.sim.queue_world import QueueWorld, is_over, states, text, until
from tests.sim.test_service import apply, ended
from tests.sim.world import Life, World

pytestmark = pytest.mark.looptime

AWAY = "the batch system does not answer; nothing was changed; "


async def test_a_destroy_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=3))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        job = world.queue.submit()
        await until(lambda: bool(job.nodes))
        world.queue.unavailable = True
        with pytest.raises(Unavailable) as told:
            await daemon.people.destroy("root")
        assert str(told.value).startswith(f"{AWAY}start it, and run `tide destroy` again; ")
        assert "`tide destroy --leave-batch`" in str(told.value)
        assert world.up == {"c1"}
        assert states(daemon)["c1"] is NodeState.READY
        plan = await daemon.people.planner.plan(Kind.DESTROY, (), {})
        assert any("until it answers, destroy is refused" in note for note in plan.notes)
        world.queue.unavailable = False
        (done,) = await ended(daemon, await daemon.people.destroy("root"))
        assert done.state is OperationState.DONE, done
        assert "c1" not in (await world.queue.read()).nodes


async def test_a_destroy_that_leaves_the_batch_system_does_not_need_it(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=3, min=1))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        world.queue.unavailable = True
        (done,) = await ended(daemon, await daemon.people.destroy("root", {"leave_batch": True}))
        assert done.state is OperationState.DONE, done
        assert not world.up
        events = await daemon.parts.record.store.events(operation=done.id)
        assert "batch system left as it is" in [event.what for event in events]
        world.queue.unavailable = False
        assert "c1" in (await world.queue.read()).nodes


async def test_what_a_destroy_could_not_end_is_not_said_of_nodes_that_are_gone(
    tmp_path: Path,
) -> None:
    world = QueueWorld(tmp_path, text(nodes=3, min=1))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        answer = await daemon.people.destroy("root")
        world.queue.unavailable = True
        (done,) = await ended(daemon, answer)
        assert done.state is OperationState.FAILED
        assert done.step is Step.STOP_BATCH
        assert done.fallen == {}
        assert not world.up
        assert done.reason.startswith("the instances of c[1-3] are gone, but the batch system")
        assert "when it answers, run `tide destroy` again" in done.reason


@pytest.mark.parametrize("stopped", [True, False])
async def test_a_batch_system_that_knows_no_node_is_not_needed(
    tmp_path: Path, stopped: bool
) -> None:
    world = QueueWorld(tmp_path, text(nodes=3))
    async with world.living(Life()) as daemon:
        if stopped:
            await ended(daemon, await daemon.people.deploy("root"))
            await ended(daemon, await daemon.people.stop("root", {}))
        else:
            daemon.parts.site = None
        world.queue.unavailable = True
        (done,) = await ended(daemon, await daemon.people.destroy("root"))
        assert done.state is OperationState.DONE, done


async def test_nothing_is_changed_by_people_meanwhile(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=3, min=1))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        world.queue.unavailable = True
        people = daemon.people
        for asked in (
            people.suspend(["c1"], "root"),
            people.resume(["c2"], "root"),
            people.drain(["c1"], "bad disk", "root"),
            people.undrain(["c1"], "root"),
            people.stop("root", {}),
        ):
            with pytest.raises(Unavailable) as told:
                await asked
            assert str(told.value).startswith(f"{AWAY}try again when it does: ")


async def test_the_cluster_s_own_batch_system_is_not_left(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.living(Life()) as daemon:
        with pytest.raises(BadRequest, match="leave --leave-batch away"):
            await daemon.people.destroy("root", {"leave_batch": True})


@pytest.mark.parametrize("away_s", [5.0, 90.0])
async def test_a_shrink_is_done_though_the_server_is_away_at_any_moment_of_it(
    tmp_path: Path, away_s: float
) -> None:
    """From before nodes are drained until they are gone, every half second."""
    for moment in range(24):
        world = QueueWorld(tmp_path / str(moment), text(nodes=3, min=3, idle="1h"))
        async with world.living(Life()) as daemon:
            await ended(daemon, await daemon.people.deploy("root"))
            jobs = [world.queue.submit(duration_s=300), world.queue.submit(duration_s=3)]
            await until(lambda jobs=jobs: all(job.nodes for job in jobs))  # type: ignore[misc]
            answer = await apply(world, daemon, parse(text(nodes=3, min=1, idle="1h"), "sim.yaml"))
            await asyncio.sleep(0.5 * moment)
            world.queue.unavailable = True
            await asyncio.sleep(away_s)
            world.queue.unavailable = False
            (done,) = await ended(daemon, answer)
            assert done.state is OperationState.DONE, (moment, done)
            assert world.up == {"c1"}
            await until(lambda jobs=jobs: is_over(*jobs))  # type: ignore[misc]
            assert world.queue.killed_jobs == {}
            off = [name for name, state in states(daemon).items() if state is NodeState.OFF]
            assert off == ["c2", "c3"]


async def test_what_a_server_that_answers_refuses_is_not_insisted_on(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=3, min=3, idle="1h"))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        began = asyncio.get_running_loop().time()

        async def refused(work: Work) -> Fallen:
            world.queue.forbidden = True
            return await STEPS[Step.WRITE_BATCH_CONFIG](work)

        daemon.engine._steps = {**STEPS, Step.WRITE_BATCH_CONFIG: refused}
        answer = await apply(world, daemon, parse(text(nodes=3, min=1, idle="1h"), "sim.yaml"))
        (done,) = await ended(daemon, answer)
        assert done.state is OperationState.FAILED
        assert "we have no rights; when that is mended, run `tide deploy" in done.reason
        assert asyncio.get_running_loop().time() - began < 30


async def test_who_starts_nodes_waits_for_nobody_who_waits_for_the_server(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=3, min=3, idle="1h"))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))

        async def away(work: Work) -> Fallen:
            world.queue.unavailable = True
            return await STEPS[Step.WRITE_BATCH_CONFIG](work)

        daemon.engine._steps = {**STEPS, Step.WRITE_BATCH_CONFIG: away}
        answer = await apply(world, daemon, parse(text(nodes=3, min=1, idle="1h"), "sim.yaml"))
        await until(lambda: world.queue.unavailable)
        await asyncio.sleep(20)
        async with asyncio.timeout(1), daemon.parts.writing:
            world.queue.unavailable = False
        (done,) = await ended(daemon, answer)
        assert done.state is OperationState.DONE


@pytest.mark.parametrize("kind", [Kind.SUSPEND, Kind.RESUME])
async def test_a_destroy_waits_for_nobody_who_waits_for_a_batch_system_that_is_gone(
    tmp_path: Path, kind: Kind
) -> None:
    """A suspend, or a start that failed, asks about its nodes until it hears of them."""
    world = QueueWorld(tmp_path, text(nodes=3))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        job = world.queue.submit(duration_s=5)
        await until(lambda: bool(daemon.engine.at(Kind.RESUME)))
        if kind is Kind.RESUME:
            world.cloud.faults.stuck_boots = 1.0
            await until(lambda: NodeState.JOINING in states(daemon).values())
        else:
            await until(lambda: is_over(job) and bool(daemon.engine.at(kind)))
        world.queue.unavailable = True
        await asyncio.sleep(3600)
        assert world.up
        answer = await daemon.people.destroy("root", {"leave_batch": True})
        (done,) = await ended(daemon, answer)
        assert done.state is OperationState.DONE, done.reason
        assert not world.up
