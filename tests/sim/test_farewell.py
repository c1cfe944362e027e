"""Nodes that somebody undrains while an operation takes them away: their jobs go on.

The daemon is the real one; cloud and batch system are made up, and so is time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from pathlib import Path

import pytest

from springtide.batch.polled import Polled
from springtide.daemon import Daemon
from springtide.model import Kind, NodeState, Operation, OperationState, Step
from springtide.people import Answer
from springtide.spec import parse
from springtide.steps import STEPS, Fallen, Work
from tests.sim.queue_world import QueueWorld, is_over, states, text, until
from tests.sim.test_service import apply, ended, spec, world_of
from tests.sim.test_service import running as images
from tests.sim.test_service import until as soon
from tests.sim.world import Life

pytestmark = pytest.mark.looptime

AGAIN = "it was drained, and has jobs again, so it stays in service"
Ask = Callable[[QueueWorld, Daemon], Awaitable[Answer]]


def meanwhile(daemon: Daemon, what: Callable[[], Awaitable[None]]) -> None:
    """Something happens after nodes were drained, and before any of them is deleted."""

    async def late(work: Work) -> Fallen:
        await what()
        return await STEPS[Step.DELETE_INSTANCES](work)

    daemon.engine._steps = {**STEPS, Step.DELETE_INSTANCES: late}


async def shrink(world: QueueWorld, daemon: Daemon) -> Answer:
    return await apply(world, daemon, parse(text(nodes=3, min=1, idle="1h"), "sim.yaml"))


async def stop(world: QueueWorld, daemon: Daemon) -> Answer:
    return await daemon.people.stop("root", {})


async def rebuild(world: QueueWorld, daemon: Daemon) -> Answer:
    return await daemon.people.rebuild(daemon.spec.managed, "root", {"force": True})


async def deployed(world: QueueWorld, daemon: Daemon) -> None:
    await ended(daemon, await daemon.people.deploy("root"))
    await until(lambda: len(world.up) == 3)


async def job_on_c3(world: QueueWorld) -> None:
    """Somebody undrains c3 with the batch system's own command, and a job starts there."""
    await world.queue.undrain(["c3"])
    job = world.queue.submit(duration_s=600, names=["c3"])
    await until(lambda: job.started_at is not None)


async def asked(daemon: Daemon, answer: Answer) -> Operation:
    (done,) = await ended(daemon, answer)
    assert done.state is OperationState.PARTLY, done
    assert list(done.fallen) == ["c3"], done.fallen
    return done


async def goes_on(world: QueueWorld, daemon: Daemon) -> None:
    """The job ends well, and its node takes others again."""
    (job,) = world.queue.open_jobs
    await until(lambda: is_over(job))
    assert job.requeues == 0
    assert world.queue.killed_jobs == {}
    assert states(daemon)["c3"] is NodeState.READY
    assert not world.queue.node("c3").drained
    again = world.queue.submit(duration_s=5, names=["c3"])
    await until(lambda: is_over(again), 60)


@pytest.mark.parametrize("ask", [shrink, rebuild])
async def test_a_node_that_got_a_job_after_it_was_drained_stays(tmp_path: Path, ask: Ask) -> None:
    world = QueueWorld(tmp_path, text(nodes=3, min=3, idle="1h"))
    async with world.living(Life()) as daemon:
        await deployed(world, daemon)
        meanwhile(daemon, lambda: job_on_c3(world))
        done = await asked(daemon, await ask(world, daemon))
        assert done.fallen == {"c3": AGAIN}
        assert "c3" in world.up
        await goes_on(world, daemon)


async def test_a_stop_leaves_the_batch_system_to_a_node_that_got_a_job(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=3, min=3, idle="1h"))
    async with world.living(Life()) as daemon:
        await deployed(world, daemon)
        meanwhile(daemon, lambda: job_on_c3(world))
        (done,) = await ended(daemon, await stop(world, daemon))
        assert done.state is OperationState.FAILED
        assert done.fallen["c3"] == AGAIN
        assert "c3 stayed, so the batch system runs on" in done.reason
        assert world.up == {"c3"}
        await goes_on(world, daemon)


@pytest.mark.parametrize("ask", [shrink, stop])
async def test_no_instance_goes_before_the_batch_system_has_forgotten_its_node_for_good(
    tmp_path: Path, ask: Ask
) -> None:
    """The job comes between the last look and the command to leave."""
    world = QueueWorld(tmp_path, text(nodes=3, min=3, idle="1h"))
    async with world.living(Life()) as daemon:
        await deployed(world, daemon)
        batch = daemon.parts.batch
        assert isinstance(batch, Polled)
        power_down = batch.power_down

        async def late(nodes: Iterable[str]) -> None:
            await job_on_c3(world)
            await power_down(nodes)

        batch.power_down = late  # type: ignore[method-assign]
        (done,) = await ended(daemon, await ask(world, daemon))
        assert done.fallen["c3"].startswith("the batch system keeps it: it has jobs: ")
        assert "c3" in world.up
        await goes_on(world, daemon)


async def test_a_stop_at_once_waits_for_no_job(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=3, min=3, idle="1h"))
    async with world.living(Life()) as daemon:
        await deployed(world, daemon)
        meanwhile(daemon, lambda: job_on_c3(world))
        (done,) = await ended(daemon, await daemon.people.stop("root", {"now": True}))
        assert done.state is OperationState.DONE, done
        assert not world.up


@pytest.mark.parametrize("kind", [Kind.SHRINK, Kind.REBUILD])
async def test_slurm_s_nodes_are_looked_at_once_more_too(tmp_path: Path, kind: Kind) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        batch = world.batch

        async def undrained() -> None:
            await batch.undrain(["c3"], None)
            batch.submit(1 if kind is Kind.SHRINK else 3, 600)
            await soon(lambda: batch.node("c3").job is not None)

        meanwhile(daemon, undrained)
        if kind is Kind.SHRINK:
            await batch.drain(["c1"], "busy elsewhere", "alice")
            answer = await apply(world, daemon, spec(min=1))
        else:
            options = {"via": "direct", "force": True, "batch": 1}
            answer = await daemon.people.rebuild(["c3"], "root", options)
        (done,) = await ended(daemon, answer)
        assert done.fallen == {"c3": AGAIN}
        assert "c3" in images(world)
        await soon(lambda: not batch.open_jobs)
        assert batch.killed_jobs == {}
        assert daemon.parts.record.nodes["c3"].state is NodeState.READY
        assert not batch.node("c3").drained


async def test_one_node_that_is_used_again_ends_no_rebuild_of_others(tmp_path: Path) -> None:
    """A round of which none comes back is the last; but this one was never away."""
    world = QueueWorld(tmp_path, text(nodes=3, min=3, idle="1h"))
    async with world.living(Life()) as daemon:
        await deployed(world, daemon)
        first = True

        async def once() -> None:
            nonlocal first
            if first:
                first = False
                await job_on_c3(world)

        meanwhile(daemon, once)
        options = {"via": "direct", "force": True, "batch": 1}
        answer = await daemon.people.rebuild(["c3", "c2", "c1"], "root", options)
        done = await asked(daemon, answer)
        assert done.fallen == {"c3": AGAIN}
        await goes_on(world, daemon)


@pytest.mark.parametrize("ask", [shrink, stop])
async def test_a_daemon_that_dies_between_drain_and_deletion_looks_again(
    tmp_path: Path, ask: Ask
) -> None:
    world = QueueWorld(tmp_path, text(nodes=3, min=3, idle="1h"))
    async with world.living(Life()) as daemon:
        await deployed(world, daemon)
        held = asyncio.Event()

        async def hangs(work: Work) -> Fallen:
            held.set()
            await asyncio.sleep(inf)
            return {}

        daemon.engine._steps = {**STEPS, Step.DELETE_INSTANCES: hangs}
        await ask(world, daemon)
        await held.wait()
    await job_on_c3(world)
    async with world.living(Life()) as daemon:
        await until(lambda: world.up == {"c1", "c3"} if ask is shrink else world.up == {"c3"})
        await daemon.engine.idle()
        assert world.queue.killed_jobs == {}
        await goes_on(world, daemon)
