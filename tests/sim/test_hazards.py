"""What goes wrong between operations, calls of Slurm, and people: nobody starves, none is lost."""

import asyncio
from pathlib import Path

import pytest

from springtide.batch.fake import Timing
from springtide.engine import Refused
from springtide.model import Kind, OperationState
from springtide.ports import NoCapacity
from springtide.spec import parse
from springtide.spec.fingerprint import fingerprint
from tests.sim.test_service import (
    TEXT,
    TIMING,
    apply,
    deployed,
    drained,
    ended,
    running,
    spec,
    states,
    until,
    world_of,
)
from tests.sim.world import Life, World

pytestmark = pytest.mark.looptime


def idle_after(seconds: float) -> Timing:
    return Timing(latency_s=0.01, join_s=1, idle_s=seconds, suspend_timeout_s=30)


def world_with(path: Path, nodes: str, min: int, timing: Timing = TIMING) -> World:
    text = TEXT.format(min=min, image="one", drain="1d").replace("c[1-4]", nodes)
    return World(path, timing=timing, text=text)


async def test_nodes_that_a_rebuild_is_done_with_serve_while_it_waits_for_others(
    tmp_path: Path,
) -> None:
    world = world_with(tmp_path, "c[1-2]", 2, idle_after(30))
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        long = world.batch.submit(1, 20_000)
        await until(lambda: long.state == "RUNNING")
        await daemon.people.rebuild(("c1", "c2"), "root", {"via": "direct", "force": True})
        await asyncio.sleep(300)
        job, began = world.batch.submit(1, 10), asyncio.get_running_loop().time()
        await until(lambda: job.state == "COMPLETED", 30_000)
        assert asyncio.get_running_loop().time() - began < 300


async def test_a_node_that_slurm_suspends_amid_its_rebuild_is_merely_off(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        timing=idle_after(15),
        text=TEXT.format(min=3, image="one", drain="1d"),
    )
    world.cloud.faults.boot_s = 20
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        options = {"via": "direct", "force": True}
        await ended(daemon, await daemon.people.rebuild(("c1",), "root", options))
        await daemon.engine.idle()
        await asyncio.sleep(500)
        seen = (await world.batch.nodes())["c1"]
        assert (seen.state, seen.drained) == ("IDLE", False)
        job = world.batch.submit(4, 10)
        await until(lambda: job.state == "COMPLETED")


@pytest.mark.parametrize("via", ["direct", "reboot"])
async def test_a_rebuild_waits_out_a_deletion_that_is_refused_for_a_while(
    tmp_path: Path, via: str
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        await apply(world, daemon, spec(image="two"))
        world.cloud.faults.refused_deletes = 1.0
        answer = await daemon.people.rebuild(("c1",), "root", {"via": via})
        await asyncio.sleep(150)
        world.cloud.faults.refused_deletes = 0.0
        (done,) = await ended(daemon, answer)
        assert (done.state, running(world)["c1"]) == (OperationState.DONE, "two")


async def test_a_cancel_outlives_the_daemon(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    names, options = ("c1", "c2", "c3"), {"via": "direct", "force": True, "batch": 1}
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        (opened,) = (await daemon.people.rebuild(names, "root", options)).operations
        await until(lambda: {"requested", "booting"} & set(states(daemon).values()) != set())
        await daemon.engine.cancel(opened.id, "alice")
    async with world.living(Life()) as daemon:
        done = await daemon.engine.wait(opened.id)
        assert done is not None
        assert done.state is OperationState.CANCELLED
        assert await drained(world) == set()
        assert set(running(world)) == set(names)


async def test_a_shrink_that_is_taken_back_takes_nothing(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        job = world.batch.submit(3, 5000)
        await until(lambda: job.state == "RUNNING")
        await apply(world, daemon, spec(min=2))
        await asyncio.sleep(5)
        await apply(world, daemon, spec(min=3))
        await daemon.engine.idle()
        assert states(daemon)["c3"] == "ready"
        assert await drained(world) == set()


async def test_of_two_files_made_from_one_the_second_is_refused(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        base = fingerprint(daemon.parts.wanted)
        await daemon.people.apply(spec(min=2), "root", lambda: None, base)
        with pytest.raises(Refused, match="somebody applied another file meanwhile"):
            await daemon.people.apply(spec(min=4), "alice", lambda: None, base)


async def test_a_name_leaves_only_when_no_job_waits_for_it(tmp_path: Path) -> None:
    """The job has been given a node that is off, which nobody but Slurm knows yet."""
    world = world_of(tmp_path)
    less = parse(TEXT.format(min=3, image="one", drain="1d").replace("c[1-4]", "c[1-3]"), "x")
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        applied: list[asyncio.Task[object]] = []
        loop = asyncio.get_running_loop()
        world.batch.on_resume.append(
            lambda nodes, jobs: applied.append(loop.create_task(apply(world, daemon, less)))
        )
        job = world.batch.submit(4, 10)
        await until(lambda: bool(applied))
        await applied[0]
        kinds = [one.kind for one in await daemon.parts.record.store.operations(unfinished=True)]
        assert Kind.SHRINK in kinds
        await daemon.engine.idle()
        assert daemon.spec.managed == ("c1", "c2", "c3")
        assert job.state in ("PENDING", "COMPLETED")
        assert world.batch.killed_jobs == {}


async def test_a_late_call_for_a_reboot_leaves_a_node_in_service_alone(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.batch.on_reboot.append(lambda nodes: world._call("reboot", nodes, ()))
    async with world.living(Life()) as daemon:
        await deployed(daemon)
    await world.batch.reboot(["c1"], "kernel")
    await asyncio.sleep(2000)
    world.batch.boot_seen("c1")
    await asyncio.sleep(5)
    await world.batch.undrain(["c1"], None)
    job = world.batch.submit(3, 1000)
    await until(lambda: job.state == "RUNNING")
    async with world.living(Life()) as daemon:
        await asyncio.sleep(5)
        await daemon.engine.idle()
        await until(lambda: job.state == "COMPLETED", 2000)
        assert (world.batch.killed_jobs, job.requeues) == ({}, 0)


async def test_an_undrain_is_not_undone_by_what_was_remembered(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        await world.batch.drain(["c4"], "disk", "alice")
        world.cloud.faults.refused_nodes["c4"] = NoCapacity("bad")
        await ended(daemon, await apply(world, daemon, spec(min=4)))
        del world.cloud.faults.refused_nodes["c4"]
        await daemon.people.undrain(["c4"], "alice")
        job = world.batch.submit(4, 10)
        await until(lambda: job.state == "COMPLETED")
        assert await drained(world) == set()
