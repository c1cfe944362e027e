"""Nodes in service that must go, or start afresh: resize, rebuild, update, stop; on virtual time.

And the daemon killed at any point of it: no job is lost, and the world becomes what was asked.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from springtide.batch.fake import FakeJob, Timing
from springtide.daemon import Daemon
from springtide.model import Kind, NodeState, Operation, OperationState
from springtide.people import Answer
from springtide.ports import Site, Unavailable
from springtide.spec import Cluster, parse
from tests.sim.world import LIFE, Life, World

pytestmark = pytest.mark.looptime

TEXT = """
cluster: sim
batch: {{kind: fake}}
provider: {{kind: fake}}
images: {{one: {{path: /one}}, two: {{path: /two}}, bad: {{path: /bad}}}}
groups: {{general: {{nodes: "c[1-4]", min: {min}, image: {image}}}}}
timing: {{start: 60s, stop: 60s, drain: {drain}, lock: 10m, gather: 20ms}}
"""
TIMING = Timing(latency_s=0.01, join_s=1, idle_s=99_999, suspend_timeout_s=30)


def spec(min: int = 3, image: str = "one", drain: str = "1d") -> Cluster:
    return parse(TEXT.format(min=min, image=image, drain=drain), "sim.yaml")


def world_of(path: Path, **options: object) -> World:
    return World(path, timing=TIMING, text=TEXT.format(min=3, image="one", drain="1d", **options))


async def until(done: Callable[[], bool], limit_s: float = 900) -> None:
    async with asyncio.timeout(limit_s):
        while not done():
            await asyncio.sleep(0.25)


async def deployed(daemon: Daemon) -> None:
    await ended(daemon, await daemon.people.deploy("root"))


async def ended(daemon: Daemon, answer: Answer) -> list[Operation]:
    found = [await daemon.engine.wait(one.id) for one in answer.operations]
    return [one for one in found if one is not None]


async def apply(world: World, daemon: Daemon, wanted: Cluster) -> Answer:
    def store() -> None:
        world.spec = wanted

    return await daemon.people.apply(wanted, "root", store)


def states(daemon: Daemon) -> dict[str, str]:
    return {name: node.state.value for name, node in daemon.parts.record.nodes.items()}


def running(world: World) -> dict[str, str | None]:
    """The image that each node runs."""
    return {one.node: one.image for one in world.cloud.alive()}


async def drained(world: World) -> set[str]:
    return {name for name, node in (await world.batch.nodes()).items() if node.drained}


async def test_a_file_that_is_put_back_after_one_that_broke_the_batch_system_is_written_again(
    tmp_path: Path,
) -> None:
    """It equals the last one that was applied well, but that is not what the batch system has."""
    world = world_of(tmp_path)
    good, bad = spec(), spec(drain="2d")
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        reload = world.batch.reload

        async def dies(site: Site) -> str:
            raise Unavailable("slurmctld died at its start")

        world.batch.reload = dies  # type: ignore[method-assign]
        (broken,) = await ended(daemon, await apply(world, daemon, bad))
        assert (broken.kind, broken.state) == (Kind.UPDATE, OperationState.FAILED)
        world.batch.reload = reload  # type: ignore[method-assign]
        (mended,) = await ended(daemon, await apply(world, daemon, good))
        assert (mended.kind, mended.state) == (Kind.UPDATE, OperationState.DONE)
        assert await ended(daemon, await apply(world, daemon, good)) == []


async def test_enlarging_starts_the_nodes_that_are_missing(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        (done,) = await ended(daemon, await apply(world, daemon, spec(min=4)))
        assert (done.kind, done.nodes) == (Kind.ENLARGE, ("c4",))
        assert set(states(daemon).values()) == {"ready"}
        assert (await apply(world, daemon, spec(min=4))).operations == ()


async def test_what_an_enlargement_has_yet_to_begin_goes_again_if_nobody_wants_it(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        more = await apply(world, daemon, spec(min=4))
        assert states(daemon)["c4"] == "off"
        fewer = await apply(world, daemon, spec(min=3))
        assert [(one.kind, one.nodes) for one in fewer.operations] == [(Kind.SHRINK, ("c4",))]
        await ended(daemon, more)
        await ended(daemon, fewer)
        assert states(daemon)["c4"] == "off"
        assert set(running(world)) == {"c1", "c2", "c3"}


async def test_shrinking_waits_for_jobs_and_takes_the_highest_numbered(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        jobs = [world.batch.submit(1, 100) for _ in range(3)]
        await until(lambda: all(job.state == "RUNNING" for job in jobs))
        (done,) = await ended(daemon, await apply(world, daemon, spec(min=1)))
        assert (done.kind, done.nodes) == (Kind.SHRINK, ("c2", "c3"))
        assert {job.state for job in jobs} == {"COMPLETED"}
        assert world.batch.killed_jobs == {}
        assert states(daemon) == {"c1": "ready", "c2": "off", "c3": "off", "c4": "off"}
        assert await drained(world) == set()
        job = world.batch.submit(3, 10)
        await until(lambda: job.state == "COMPLETED")


async def test_nothing_goes_when_one_job_does_not_end_in_time(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        job = world.batch.submit(3, 500)
        await until(lambda: job.state == "RUNNING")
        _, done = await ended(daemon, await apply(world, daemon, spec(min=0, drain="30s")))
        assert done.state is OperationState.FAILED
        assert "did not end within 30 s" in done.fallen["c1"]
        assert set(running(world)) == {"c1", "c2", "c3"}
        assert await drained(world) == set()
        await until(lambda: job.state == "COMPLETED")
        assert job.requeues == 0


async def test_a_shrink_that_is_cancelled_gives_its_nodes_back(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        job = world.batch.submit(3, 1000)
        await until(lambda: job.state == "RUNNING")
        answer = await apply(world, daemon, spec(min=1))
        await until(lambda: states(daemon)["c3"] == "draining")
        await daemon.engine.cancel(answer.operations[0].id, "alice")
        assert await drained(world) == set()
        assert states(daemon) == {"c1": "ready", "c2": "ready", "c3": "ready", "c4": "off"}
        (again,) = (await apply(world, daemon, spec(min=1))).operations
        assert again.kind is Kind.SHRINK


@pytest.mark.parametrize("via", ["direct", "reboot"])
async def test_a_rebuild_goes_batch_by_batch_and_waits_for_jobs(tmp_path: Path, via: str) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        job = world.batch.submit(1, 200)
        await until(lambda: job.state == "RUNNING")
        await apply(world, daemon, spec(image="two"))
        assert set(running(world).values()) == {"one"}
        names = daemon.spec.managed
        answer = await daemon.people.rebuild(names, "root", {"batch": 1, "via": via})
        assert answer.settled == ("c4",)
        await until(lambda: len(set(running(world).values())) == 2)
        late = world.batch.submit(1, 1)
        (done,) = await ended(daemon, answer)
        assert done.state is OperationState.DONE, done
        assert set(running(world).values()) == {"two"}
        assert job.state == "COMPLETED"
        assert job.requeues == 0
        assert await drained(world) == set()
        await until(lambda: late.state == "COMPLETED")
        assert {daemon.parts.record.nodes[n].rebuilds for n in ("c1", "c2", "c3")} == {1}
        again = await daemon.people.rebuild(names, "root", {"via": via})
        assert again.operations == ()


async def test_nodes_that_are_free_are_rebuilt_however_short_the_time_for_jobs(
    tmp_path: Path,
) -> None:
    """To ask the batch system alone took longer."""
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        job = world.batch.submit(1, 2000)
        await until(lambda: job.state == "RUNNING")
        await apply(world, daemon, spec(image="two"))
        answer = await daemon.people.rebuild(daemon.spec.managed, "root", {"limit": 0.001})
        (done,) = await ended(daemon, answer)
        assert done.state is OperationState.PARTLY, done
        assert sorted(done.fallen) == list(job.nodes)
        assert "its jobs did not end within" in done.fallen[job.nodes[0]]
        assert Counter(running(world).values()) == {"one": 1, "two": 2}
        assert await drained(world) == set()


async def test_a_batch_that_does_not_come_back_is_the_last(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        await apply(world, daemon, spec(image="bad"))
        world.cloud.faults.stuck_boots = 1.0
        answer = await daemon.people.rebuild(daemon.spec.managed, "root", {"batch": 1})
        (done,) = await ended(daemon, answer)
        assert done.state is OperationState.FAILED
        assert "no further one was begun" in done.reason
        assert running(world) == {"c2": "one", "c3": "one"}
        assert await drained(world) - {"c1"} == set()
        assert (await world.batch.nodes())["c1"].state == "DOWN"


async def test_an_update_starts_nodes_afresh_and_keeps_their_instances(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        before = {one.node: one.id for one in world.cloud.alive()}
        answer = await daemon.people.update(daemon.spec.managed, "root", {})
        (done,) = await ended(daemon, answer)
        assert done.state is OperationState.DONE, done
        assert {one.node: one.id for one in world.cloud.alive()} == before
        told = await daemon.parts.record.store.events(operation=done.id)
        assert len([e for e in told if e.what == "instance rebooted"]) == 3


async def test_a_stopped_cluster_keeps_its_queue_and_starts_again(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        job = world.batch.submit(1, 50)
        await until(lambda: job.state == "RUNNING")
        (done,) = await ended(daemon, await daemon.people.stop("root", {}))
        assert done.state is OperationState.DONE, done
        assert job.state == "COMPLETED"
        assert world.cloud.alive() == []
        assert daemon.parts.stopped
        await deployed(daemon)
        assert set(running(world)) == {"c1", "c2", "c3"}
        assert not daemon.parts.stopped


async def test_what_jobs_wait_for_is_started_as_soon_as_the_batch_system_opens(
    tmp_path: Path,
) -> None:
    """It asks for nodes at once, while whoever opened it has not heard yet that it is open."""
    slow = replace(TIMING, latency_s=2.0)
    world = World(tmp_path, timing=slow, text=TEXT.format(min=0, image="one", drain="1d"))
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        await ended(daemon, await daemon.people.stop("root", {}))
        job = world.batch.submit(1, 50)
        await deployed(daemon)
        await until(lambda: job.state == "COMPLETED", 120)
        operations = await daemon.parts.record.store.operations()
        assert {one.state for one in operations} == {OperationState.DONE}


@pytest.mark.parametrize("limit_s", [30, 0])
async def test_a_stop_whose_jobs_do_not_end_leaves_the_batch_system_running(
    tmp_path: Path, limit_s: float
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        job = world.batch.submit(1, 500)
        await until(lambda: job.state == "RUNNING")
        (done,) = await ended(daemon, await daemon.people.stop("root", {"limit": limit_s}))
        assert done.state is OperationState.FAILED
        assert world.batch.site is not None
        assert not daemon.parts.stopped
        assert set(running(world)) == {"c1", "c2", "c3"}
        assert await drained(world) == set()
        other = world.batch.submit(1, 1)
        await until(lambda: other.state == "COMPLETED" and job.state == "COMPLETED")


@pytest.mark.accepts("X9")
async def test_no_operation_undoes_an_admins_drain(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        await world.batch.drain(["c2"], "bad disk", "alice")
        await apply(world, daemon, spec(image="two"))
        for options in ({"via": "reboot"}, {"via": "direct", "force": True}):
            answer = await daemon.people.rebuild(daemon.spec.managed, "root", options)
            (done,) = await ended(daemon, answer)
            assert done.state is OperationState.DONE, done
            seen = (await world.batch.nodes())["c2"]
            assert (seen.drained, seen.owner) == (True, "alice")
        assert await drained(world) == {"c2"}
        assert set(running(world).values()) == {"two"}


# --- killed at any point ---------------------------------------------------------------------


async def _shrink_and_grow(world: World, daemon: Daemon) -> Callable[[], bool]:
    await apply(world, daemon, spec(min=1))
    return lambda: set(running(world)) == {"c1"}


async def _rebuild(world: World, daemon: Daemon) -> Callable[[], bool]:
    await apply(world, daemon, spec(image="two"))
    options = {"batch": 2, "via": "reboot"}
    await daemon.people.rebuild(daemon.spec.managed, "root", options)
    return lambda: running(world) == dict.fromkeys(("c1", "c2", "c3"), "two")


async def _update(world: World, daemon: Daemon) -> Callable[[], bool]:
    await daemon.people.update(daemon.spec.managed, "root", {"batch": 2})
    return lambda: set(running(world)) == {"c1", "c2", "c3"}


Scenario = Callable[[World, Daemon], Coroutine[Any, Any, Callable[[], bool]]]


async def _killed(world: World, scenario: Scenario, dies_at: int | None) -> int:
    """The scenario beside a job, with the daemon killed; asked for once more if need be."""
    life = Life()
    async with world.living(life) as daemon:
        await deployed(daemon)
        job = world.batch.submit(1, 20)
        await until(lambda: job.state == "RUNNING")
        life.dies_at = None if dies_at is None else life.passed + dies_at
        began = life.passed
        token = LIFE.set(life)
        task = asyncio.get_running_loop().create_task(scenario(world, daemon))
        LIFE.reset(token)
        await until(lambda: task.done() or life.over.is_set())
        await until(lambda: not daemon.engine._runs or life.over.is_set())
        passed = life.passed - began
    async with world.living(Life()) as daemon:
        await daemon.engine.idle()
        right = await scenario(world, daemon)
        await daemon.engine.idle()
        await _assert_right(world, daemon, right, job)
    return passed


async def _assert_right(
    world: World, daemon: Daemon, right: Callable[[], bool], job: FakeJob
) -> None:
    await until(lambda: job.state == "COMPLETED")
    assert right(), running(world)
    assert world.batch.killed_jobs == {}
    assert job.requeues == 0
    assert world.cloud.duplicates() == []
    assert await drained(world) == set()
    alive = {one.node for one in world.cloud.alive()}
    nodes = daemon.parts.record.nodes
    assert alive == {name for name, node in nodes.items() if node.state is NodeState.READY}
    assert await daemon.parts.record.store.operations(unfinished=True) == []


@pytest.mark.accepts("X1")
@pytest.mark.parametrize("scenario", [_shrink_and_grow, _rebuild, _update])
async def test_a_kill_at_any_point_loses_no_job_and_ends_as_asked(
    tmp_path: Path, scenario: Scenario
) -> None:
    points = await _killed(world_of(tmp_path / "whole"), scenario, None)
    assert points > 50
    for dies_at in range(1, points + 1, 7):
        print("killed at await point", dies_at, "of", points)
        await _killed(world_of(tmp_path / f"killed-{dies_at}"), scenario, dies_at)
