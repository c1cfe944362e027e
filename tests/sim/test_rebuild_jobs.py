"""Rebuild jobs: a node that has one takes no other job before it is rebuilt, whoever dies."""

import asyncio
from pathlib import Path

import pytest

from springtide.batch.fake import FakeJob
from springtide.daemon import Daemon
from springtide.model import Kind, NodeState
from springtide.ports import Rejected
from springtide.prologs import STARTS
from tests.sim.test_service import TEXT, TIMING, apply, deployed, drained, running, spec, until
from tests.sim.world import Life, World, first

pytestmark = pytest.mark.looptime

NODES = {"c1", "c2", "c3", "c4"}


def world_of(path: Path) -> World:
    return World(path, timing=TIMING, text=TEXT.format(min=4, image="one", drain="1d"))


async def begun(world: World, daemon: Daemon) -> FakeJob:
    """A rebuild job on all nodes, which the file wants another image for."""
    await deployed(daemon)
    await apply(world, daemon, spec(min=4, image="two"))
    job = world.batch.submit(4, 60)
    await until(lambda: job.state == "RUNNING")
    return job


async def test_no_job_comes_between_a_rebuild_job_and_its_rebuild(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        rebuild = await begun(world, daemon)
        images: list[set[str | None]] = []
        world.batch.on_job.append(
            lambda job, what: images.append({*running(world).values()}) if job is user else None
        )
        user = world.batch.submit(4, 10)
        await daemon.rebuild_for_job(rebuild.id, rebuild.nodes)
        assert await drained(world) == NODES
        await until(lambda: user.state == "COMPLETED")
        assert images == [{"two"}, {"two"}]
        assert rebuild.requeues == user.requeues == 0


async def test_jobs_that_begin_together_have_their_nodes_rebuilt_by_one_operation(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        rebuild = await begun(world, daemon)
        await asyncio.gather(*(daemon.rebuild_for_job(rebuild.id, [name]) for name in NODES))
        await until(lambda: {*running(world).values()} == {"two"} and not daemon.engine.claimed())
        done = await daemon.parts.record.store.operations()
        assert [{*one.nodes} for one in done if one.kind is Kind.REBUILD] == [NODES]
        assert await drained(world) == set()


async def test_a_daemon_that_dies_after_it_was_asked_rebuilds_when_it_is_back(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        rebuild = await begun(world, daemon)
        await daemon.rebuild_for_job(rebuild.id, rebuild.nodes)
    async with world.living(Life()) as daemon:
        await until(lambda: {*running(world).values()} == {"two"} and not daemon.engine.claimed())
        assert await drained(world) == set()
        assert rebuild.state == "COMPLETED"


async def test_a_node_that_is_off_needs_no_rebuild(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        await daemon.people.suspend(["c4"], "root")
        await until(lambda: "c4" not in running(world))
        await daemon.rebuild_for_job("7", ["c4"])
        assert await drained(world) == set()
        assert daemon.engine.at(Kind.REBUILD) == frozenset()


@pytest.mark.parametrize("state", [NodeState.REQUESTED, NodeState.JOINING])
async def test_a_node_on_its_way_up_with_the_image_of_before_is_rebuilt_when_it_is_there(
    tmp_path: Path, state: NodeState
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        await daemon.people.suspend(["c4"], "root")
        await until(lambda: "c4" not in running(world))
        world.cloud.faults.before_s = 5
        await daemon.people.resume(["c4"], "root")
        await until(lambda: daemon.parts.record.nodes["c4"].state is state)
        await apply(world, daemon, spec(min=4, image="two"))
        jobs = await daemon.people.rebuild_by_jobs(["c4"], None, {})
        assert {*jobs} == {"c4"}
        await until(lambda: running(world).get("c4") == "two" and not daemon.engine.claimed())
        assert await drained(world) == set()
        assert world.batch.open_jobs == []


async def test_rebuild_jobs_that_end_one_by_one_have_their_nodes_rebuilt_in_one_round(
    tmp_path: Path,
) -> None:
    """One that cannot be made again keeps no other from its rebuild."""
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        await apply(world, daemon, spec(min=4, image="two"))
        world.cloud.faults.refused_nodes["c1"] = Rejected("no such disk")
        jobs = [world.batch.submit(1, 60 + part / 2) for part in range(4)]
        await until(lambda: {job.state for job in jobs} == {"RUNNING"})
        asked = (daemon.rebuild_for_job(job.id, job.nodes) for job in jobs)
        assert {*await asyncio.gather(*asked)} <= STARTS
        others = dict.fromkeys(NODES - {"c1"}, "two")
        await until(lambda: running(world) == others and not daemon.engine.claimed())
        done = await daemon.parts.record.store.operations()
        (rebuild,) = [one for one in done if one.kind is Kind.REBUILD]
        assert {*rebuild.nodes} == NODES
        assert {*rebuild.fallen} == {"c1"}


async def test_a_job_that_gets_its_node_before_the_last_rebuild_has_ended_is_not_forgotten(
    tmp_path: Path,
) -> None:
    """The file wants another image by then; Slurm learns of the instance while the job begins."""
    world = world_of(tmp_path)
    told = asyncio.Event()

    async def slow(instances: object) -> None:
        told.set()
        await asyncio.sleep(30)

    async with world.living(Life()) as daemon:
        await deployed(daemon)
        world.batch.set_instances = slow  # type: ignore[method-assign]
        await apply(world, daemon, spec(min=4, image="two"))
        await daemon.people.rebuild(["c1"], "root", {})
        await until(lambda: running(world).get("c1") == "two" and told.is_set())
        await apply(world, daemon, spec(min=4, image="one"))
        assert daemon.engine.at(Kind.REBUILD) == {"c1"}
        await daemon.people.rebuild_by_jobs(["c1"], None, {})
        await until(lambda: running(world).get("c1") == "one" and not daemon.engine.claimed())
        assert await drained(world) == set()


@pytest.mark.parametrize("dies_at", range(0, 200, 8))
async def test_a_daemon_that_dies_while_rebuild_jobs_begin_leaves_no_node_as_it_was(
    tmp_path: Path, dies_at: int
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        await apply(world, daemon, spec(min=4, image="two"))
    async with world.living(Life()) as daemon:
        life = world.life
        assert life is not None
        await daemon.people.rebuild_by_jobs(NODES, None, {})
        life.dies_at = life.passed + dies_at
        await first(life.over.wait(), until(lambda: not world.batch.open_jobs))
    async with world.living(Life()) as daemon:
        await until(lambda: {*running(world).values()} == {"two"} and not daemon.engine.claimed())
        assert await drained(world) == set()
        assert world.batch.killed_jobs == {}
