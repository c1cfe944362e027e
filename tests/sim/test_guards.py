"""What an operation must not do, whatever happens around it."""

import asyncio
from pathlib import Path

import pytest

from springtide.batch.fake import Timing
from springtide.engine import Refused
from springtide.model import Kind, NodeState, OperationState, Request
from springtide.ports import Job, Rejected
from springtide.providers.fake import Faults
from springtide.spec import parse
from tests.sim.test_engine import states, until
from tests.sim.world import SPEC, Life, World

pytestmark = pytest.mark.looptime


async def test_a_resume_that_waits_too_long_leaves_a_running_job_alone(tmp_path: Path) -> None:
    world = World(tmp_path, nodes=2, lock="30s")
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 300)
        await until(lambda: job.state == "RUNNING")
        await daemon.engine.idle()
        world.cloud.faults.stuck_boots = 1.0
        (stuck,) = await daemon.engine.submit(Kind.RESUME, ["c1", "c2"], asked_by="x")
        await asyncio.sleep(1)
        (late,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        ended = await daemon.engine.wait(late.id)
        assert ended is not None
        assert f"operation {stuck.id}" in ended.reason
        assert job.state == "RUNNING"
    assert world.batch.killed_jobs == {}


async def test_cancelling_a_resume_that_waits_touches_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, nodes=1)
    async with world.living(Life()) as daemon:
        (first,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        (second,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        await until(lambda: states(world)["c1"] is NodeState.JOINING)
        await daemon.engine.cancel(second.id, "alice")
        done = await daemon.engine.wait(first.id)
        assert done is not None
        assert done.state is OperationState.DONE
        assert states(world)["c1"] is NodeState.READY


async def test_a_suspend_that_has_begun_cannot_be_cancelled(tmp_path: Path) -> None:
    world = World(tmp_path, faults=Faults(boot_s=1, delete_s=60))
    async with world.living(Life()) as daemon:
        (up,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        await daemon.engine.wait(up.id)
        await world.batch.power_down(["c1"])
        await until(lambda: states(world)["c1"] is NodeState.DELETING)
        with pytest.raises(Refused, match="begun to delete"):
            await daemon.engine.cancel(up.id + 1, "alice")


@pytest.mark.parametrize("trouble", ["slurmctld away", "delete refused"])
async def test_a_suspend_outlasts_every_limit(tmp_path: Path, trouble: str) -> None:
    world = World(tmp_path, lock="30s")
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 5)
        await until(lambda: job.state == "COMPLETED")
        world.batch.unavailable = trouble == "slurmctld away"
        world.cloud.faults.refused_deletes = float(trouble == "delete refused")
        await asyncio.sleep(600)
        assert world.cloud.alive()
        world.batch.unavailable, world.cloud.faults.refused_deletes = False, 0.0
        await until(lambda: not world.cloud.alive())
        await daemon.engine.idle()
        assert set(states(world).values()) == {NodeState.OFF}
        said = [event.what for event in await daemon.parts.record.store.events()]
        assert ("instance stuck" in said) == (trouble == "delete refused")


async def test_a_suspend_waits_behind_a_slow_resume_however_long(tmp_path: Path) -> None:
    world = World(tmp_path, nodes=2, lock="10s", faults=Faults(boot_s=100))
    async with world.living(Life()) as daemon:
        (up,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        (down,) = await daemon.engine.submit(Kind.SUSPEND, ["c1"], asked_by="x")
        await asyncio.sleep(20)
        said = await daemon.parts.record.store.events(operation=down.id)
        assert [event.what for event in said] == ["operation waits"]
        await daemon.engine.wait(up.id)
        await world.batch.power_down(["c1"])
        await daemon.engine.idle()
        assert world.cloud.alive() == []


async def test_nothing_runs_after_a_destroy(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.living(Life()) as daemon:
        (gone,) = await daemon.engine.submit(Kind.DESTROY, ["c1", "c2", "c3"], asked_by="x")
        (late,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        await daemon.engine.wait(gone.id)
        ended = await daemon.engine.wait(late.id)
        assert ended is not None
        assert ended.reason == "the cluster is destroyed"
        with pytest.raises(Refused, match="destroyed"):
            await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        assert world.cloud.alive() == []
        assert daemon.destroyed.is_set()


async def test_many_refused_nodes_are_given_back_with_one_call(tmp_path: Path) -> None:
    world = World(tmp_path, nodes=30)
    for n in range(1, 31):
        world.cloud.faults.refused_nodes[f"c{n}"] = Rejected(f"c{n}: no such image")
    async with world.living(Life()) as daemon:
        await world.batch.power_up([f"c{n}" for n in range(1, 31)])
        await until(lambda: world.batch.calls["give_back"] > 0)
        await daemon.engine.idle()
    assert world.batch.calls["give_back"] == 1


async def test_names_that_nobody_knows_do_not_hold_up_the_others(tmp_path: Path) -> None:
    world = World(tmp_path, nodes=2)
    async with world.living(Life()) as daemon:
        await world.batch.power_up(["c1"])
        await daemon.receive(Request("x", "resume", ("c1", "c99"), 0.0))
        await until(lambda: states(world)["c1"] is NodeState.READY)
        said = await daemon.parts.record.store.events()
        assert [e.detail for e in said if e.what == "unknown nodes passed over"] == ["c99"]


async def test_a_deploy_is_refused_while_nodes_that_left_the_file_are_up(tmp_path: Path) -> None:
    world = World(tmp_path, nodes=3, timing=Timing(idle_s=9999))
    async with world.living(Life()) as daemon:
        (up,) = await daemon.engine.submit(Kind.RESUME, ["c3"], asked_by="x")
        await daemon.engine.wait(up.id)
    world.spec = parse(SPEC.format(nodes=2, lock="10m"), "sim.yaml")
    async with world.living(Life()) as daemon:
        with pytest.raises(Refused, match="c3 left the cluster file while no daemon ran"):
            await daemon.people.deploy("alice")


async def test_a_ready_node_whose_instance_died_is_made_again_when_asked_for(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, nodes=1, timing=Timing(idle_s=9999, slurmd_timeout_s=10))
    async with world.living(Life()) as daemon:
        (up,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        await daemon.engine.wait(up.id)
        world.cloud.die(world.cloud.alive()[0].id)
        await asyncio.sleep(30)
        answer = await daemon.people.resume(["c1"], "alice")
        assert answer.settled == ()
        await daemon.engine.idle()
        assert states(world)["c1"] is NodeState.READY
        assert daemon.parts.record.nodes["c1"].generation == 2
        assert len(world.cloud.alive()) == 1


async def test_a_node_that_slurm_powers_down_while_it_boots_is_let_go_at_once(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, faults=Faults(boot_s=60))
    async with world.living(Life()) as daemon:
        await world.batch.power_up(["c1"])
        await until(lambda: states(world)["c1"] is NodeState.JOINING)
        began = asyncio.get_running_loop().time()
        await daemon.people.suspend(["c1"], "alice")
        await until(lambda: states(world)["c1"] is NodeState.OFF)
        assert asyncio.get_running_loop().time() - began < 45
        await until(lambda: not world.cloud.alive())


async def test_a_strange_list_of_nodes_in_the_queue_does_not_stop_a_rescue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)

    async def jobs() -> list[Job]:
        return [Job("7", "CONFIGURING", nodes="c[1-")]

    monkeypatch.setattr(world.batch, "jobs", jobs)
    world.cloud.faults.refused_nodes["c1"] = Rejected("bad image")
    async with world.living(Life()) as daemon:
        await world.batch.power_up(["c1"])
        await until(lambda: world.batch.calls["give_back"] == 1)
        await daemon.engine.idle()
        assert states(world)["c1"] is NodeState.OFF


async def test_lists_are_shared_by_all_operations_that_wait(tmp_path: Path) -> None:
    world = World(tmp_path, nodes=40, faults=Faults(boot_s=30))
    async with world.living(Life()) as daemon:
        for n in range(1, 41):
            await daemon.engine.submit(Kind.RESUME, [f"c{n}"], asked_by="x")
        await asyncio.sleep(20)
        assert world.cloud.calls["list"] <= 12
