"""Rebuild jobs: a node that has one takes no other job before it is rebuilt, whoever dies."""

import asyncio
from pathlib import Path

import pytest

from springtide.batch.fake import FakeJob
from springtide.daemon import Daemon
from springtide.model import Kind
from tests.sim.test_service import TEXT, TIMING, apply, deployed, drained, running, spec, until
from tests.sim.world import Life, World

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
