"""Whole clusters with a batch system that is read: made, stopped, started, rebuilt."""

from pathlib import Path

import pytest

from springtide.model import Kind, NodeState, OperationState
from springtide.plans import JobFate
from springtide.ports import Chunk
from springtide.spool import BadRequest
from tests.sim.queue_world import QueueWorld, is_over, states, text, until
from tests.sim.test_service import ended
from tests.sim.world import Life

pytestmark = pytest.mark.looptime

OPTIONS = """
cluster: sim
batch: {kind: torque, polling: {every: 5s}}
provider: {kind: fake}
images: {base: {path: /base}, gpu: {path: /gpu}}
flavors: {small: {cpus: 1, memory: 4G}, large: {cpus: 8, memory: 32G}}
groups:
  plain: {nodes: "c[1-2]", flavors: [small], image: base}
  big: {nodes: "g1", flavors: [large], image: gpu, zones: [b]}
partitions: {cloud: {groups: [plain]}, big: {groups: [big]}}
timing: {idle: 60s, start: 120s, stop: 120s, gather: 20ms}
"""


@pytest.mark.accepts("N6")
async def test_each_queue_gets_nodes_of_its_flavor_image_and_options(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, OPTIONS)
    world.cloud.zones = ("a", "b")
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        small = world.queue.submit(Chunk(), queues=("cloud",))
        large = world.queue.submit(Chunk(cores=8), queues=("big",))
        await until(lambda: len(world.up) == 2)
        made = {one.node: one for one in world.cloud.alive()}
        assert set(made) == {"c1", "g1"}
        assert (made["c1"].flavor, made["c1"].image) == ("small", "base")
        assert (made["g1"].flavor, made["g1"].image) == ("large", "gpu")
        assert made["g1"].zone == "b"
        await until(lambda: bool(small.nodes) and bool(large.nodes))
        for job in (small, large):
            world.queue.finish(job.id)
        await until(lambda: not world.up)


@pytest.mark.accepts("N21")
async def test_a_whole_cluster_stops_and_starts_and_its_queue_stays(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=3, min=1))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        job = world.queue.submit(duration_s=100.0)
        await until(lambda: bool(job.nodes))
        (done,) = await ended(daemon, await daemon.people.stop("root", {}))
        assert done.state is OperationState.DONE, done
        assert is_over(job)
        assert world.queue.killed_jobs == {}
        assert not world.up
        assert daemon.parts.stopped
        assert set(states(daemon).values()) == {NodeState.OFF}
        assert set((await world.queue.read()).nodes) == {"c1", "c2", "c3", "old1"}
        waits = world.queue.submit(duration_s=10.0)
        (done,) = await ended(daemon, await daemon.people.deploy("root"))
        assert done.state is OperationState.DONE, done
        assert world.up == {"c1"}
        again = [world.queue.submit(duration_s=10.0) for _ in range(3)]
        await until(lambda: is_over(waits, *again))


async def test_a_cluster_with_jobs_is_destroyed_and_they_wait_again(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=3))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        job = world.queue.submit()
        await until(lambda: bool(job.nodes))
        (done,) = await ended(daemon, await daemon.people.destroy("root"))
        assert done.state is OperationState.DONE, done
        assert not world.up
        assert set((await world.queue.read()).nodes) == {"old1"}
        assert job.nodes == ()


@pytest.mark.accepts("N21")
async def test_a_plan_tells_of_jobs_that_are_ours_to_touch_and_of_no_others(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=2, min=1))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        mine = world.queue.submit(duration_s=5000.0)
        theirs = world.queue.submit(Chunk(cores=8), queues=("premises",), duration_s=5000.0)
        await until(lambda: bool(mine.nodes) and bool(theirs.nodes))
        world.queue.submit(Chunk(cores=8), queues=("premises",))
        waits = world.queue.submit(Chunk(cores=8))

        async def fates(kind: Kind) -> dict[str, JobFate]:
            plan = await daemon.people.planner.plan(kind, daemon.spec.managed, {})
            return {job.id: fate for job, fate in plan.jobs}

        assert await fates(Kind.STOP) == {mine.id: JobFate.AWAITED, waits.id: JobFate.KEPT}
        assert await fates(Kind.DESTROY) == {mine.id: JobFate.REQUEUED, waits.id: JobFate.KEPT}
        assert await fates(Kind.SUSPEND) == {mine.id: JobFate.AWAITED}
        (done,) = await ended(daemon, await daemon.people.destroy("root"))
        assert done.state is OperationState.DONE, done
        assert mine.nodes == ()
        assert theirs.nodes == ("old1",)


@pytest.mark.accepts("N21")
async def test_nothing_starts_while_it_is_stopped(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path)
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        await ended(daemon, await daemon.people.stop("root", {}))
        job = world.queue.submit(duration_s=10.0)
        with pytest.raises(TimeoutError):
            await until(lambda: bool(world.up), 300)
        await ended(daemon, await daemon.people.deploy("root"))
        await until(lambda: is_over(job))


async def test_nodes_are_rebuilt_without_the_batch_systems_reboots(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, OPTIONS.replace('"c[1-2]"', '"c[1-2]", min: 2'))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        before = {one.node: (one.image, one.generation) for one in world.cloud.alive()}
        assert before == {"c1": ("base", 1), "c2": ("base", 1)}
        answer = await daemon.people.rebuild(["c1", "c2"], "root", {"image": "gpu"})
        (done,) = await ended(daemon, answer)
        assert done.state is OperationState.DONE, done
        after = {one.node: (one.image, one.generation) for one in world.cloud.alive()}
        assert after == {"c1": ("gpu", 2), "c2": ("gpu", 2)}
        assert {states(daemon)[name] for name in after} == {NodeState.READY}
        job = world.queue.submit(duration_s=10.0)
        await until(lambda: is_over(job))


async def test_reboots_that_it_does_not_have_are_refused(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=1, min=1))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        with pytest.raises(BadRequest, match="reboots no nodes: leave --via reboot away"):
            await daemon.people.rebuild(["c1"], "root", {"via": "reboot", "force": True})
