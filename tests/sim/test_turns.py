"""One node's trouble is not the others': who lets go of a node, and when, on virtual time."""

import asyncio
from pathlib import Path

import pytest

from springtide.daemon import Daemon
from springtide.model import Kind, NodeState, Operation, OperationState
from springtide.ports import InstanceState, Power, Rejected
from springtide.providers.fake import FakeCloud
from tests.sim.test_repair import ids, made, state, until, up
from tests.sim.world import Life, World

pytestmark = pytest.mark.looptime


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Ids of instances that the cloud refuses to delete."""
    delete, ids = FakeCloud.delete, set[str]()

    def refuse(self: FakeCloud, id: str) -> None:
        if id in ids:
            raise Rejected("locked by your admin")
        delete(self, id)

    monkeypatch.setattr(FakeCloud, "delete", refuse)
    return ids


def instance(world: World, node: str) -> str:
    (found,) = [one.id for one in world.cloud.alive() if one.node == node]
    return found


async def operations(daemon: Daemon, kind: Kind) -> list[Operation]:
    return [op for op in await daemon.parts.record.store.operations() if op.kind is kind]


async def events(daemon: Daemon, what: str) -> list[str | None]:
    found = await daemon.parts.record.store.events(limit=100_000)
    return [event.node for event in found if event.what == what]


# --- an instance that cannot be deleted ----------------------------------------------------------


@pytest.mark.accepts("C19")
async def test_an_instance_that_cannot_be_deleted_keeps_no_other_node(
    tmp_path: Path, locked: set[str]
) -> None:
    world = made(tmp_path, nodes=3)
    async with world.living(Life()) as daemon:
        await up(world, daemon, 3)
        locked.add(instance(world, "c1"))
        await world.batch.power_down(["c1", "c2", "c3"])
        await until(lambda: daemon.engine.claimed() == {"c1"}, 20)
        assert [state(daemon, name) for name in ("c2", "c3")] == [NodeState.OFF] * 2
        assert [world.batch._nodes[name].power for name in ("c2", "c3")] == [Power.DOWN] * 2
        job = world.batch.submit(2, 5)
        await until(lambda: job.state == "COMPLETED", 60)
        assert job.requeues == 0
        await asyncio.sleep(3600)
        assert state(daemon, "c1") is NodeState.DELETING
        assert await events(daemon, "instance stuck") == ["c1"]
        locked.clear()
        await until(lambda: state(daemon, "c1") is NodeState.OFF)
        await until(lambda: "c1" not in daemon.engine.claimed())
        assert world.batch.killed_jobs == {}


async def test_what_was_let_go_stays_so_when_the_daemon_comes_back(
    tmp_path: Path, locked: set[str]
) -> None:
    world = made(tmp_path, nodes=3)
    async with world.living(Life()) as daemon:
        await up(world, daemon, 3)
        locked.add(instance(world, "c1"))
        await world.batch.power_down(["c1", "c2", "c3"])
        await until(lambda: daemon.engine.claimed() == {"c1"}, 20)
        job = world.batch.submit(2, 500)
        await until(lambda: job.state == "RUNNING" and daemon.engine.claimed() == {"c1"})
    async with world.living(Life()) as daemon:
        assert daemon.engine.claimed() == {"c1"}
        await asyncio.sleep(60)
        assert state(daemon, "c1") is NodeState.DELETING
        locked.clear()
        await until(lambda: job.state == "COMPLETED")
        await daemon.engine.idle()
        assert (await operations(daemon, Kind.SUSPEND))[-1].state is OperationState.DONE
    assert (job.requeues, world.batch.killed_jobs) == (0, {})


async def test_a_repair_that_is_stuck_with_one_node_gives_the_others_back(
    tmp_path: Path, locked: set[str]
) -> None:
    world = made(tmp_path, nodes=2)
    async with world.living(Life()) as daemon:
        await up(world, daemon, 2)
        locked.add(instance(world, "c1"))
        for name in ("c1", "c2"):
            world.cloud.die(instance(world, name), InstanceState.BROKEN)
        await until(lambda: state(daemon, "c2") is NodeState.OFF)
        job = world.batch.submit(1, 5)
        await until(lambda: job.state == "COMPLETED", 60)
        assert state(daemon, "c1") is NodeState.DELETING


async def test_a_rebuild_goes_on_without_the_node_that_cannot_be_deleted(
    tmp_path: Path, locked: set[str]
) -> None:
    world = made(tmp_path, nodes=3)
    world.batch.on_reboot.append(lambda nodes: world._call("reboot", nodes, ()))
    async with world.living(Life()) as daemon:
        await up(world, daemon, 3)
        locked.add(instance(world, "c1"))
        general = daemon.spec.groups["general"].but(image="new")
        daemon.parts.spec = daemon.parts.wanted = daemon.spec.but(groups={"general": general})
        await daemon.people.rebuild(["c1", "c2", "c3"], "root", {"via": "direct", "batch": 0})
        await until(lambda: [one.image for one in world.cloud.alive()].count("new") == 2, 300)
        await until(lambda: daemon.engine.claimed() == {"c1"})
        (operation,) = await operations(daemon, Kind.REBUILD)
        assert "locked by your admin" in operation.fallen["c1"]
        locked.clear()
        await daemon.engine.idle()
        (operation,) = await operations(daemon, Kind.REBUILD)
        assert operation.state is OperationState.PARTLY


# --- nodes that fell out -------------------------------------------------------------------------


async def test_a_node_that_fell_out_serves_while_others_of_its_operation_still_start(
    tmp_path: Path,
) -> None:
    world = made(tmp_path, nodes=2)
    async with world.living(Life()) as daemon:
        world.cloud.faults.stuck_boots = 1.0
        world.batch.submit(2, 5)
        await until(lambda: len(ids(world)) == 2)
        world.cloud.die(instance(world, "c1"), InstanceState.BROKEN)
        await until(lambda: daemon.engine.claimed() == {"c2"}, 30)
        (first,) = await operations(daemon, Kind.RESUME)
        assert first.state is OperationState.RUNNING
        assert "c1" in first.fallen
        world.cloud.faults.stuck_boots = 0.0
        job = world.batch.submit(1, 5)
        await until(lambda: job.state == "COMPLETED", 60)
        assert state(daemon, "c2") is not NodeState.OFF, "its operation still waits for it"


async def test_a_restart_does_not_touch_what_fell_out_and_is_anothers_by_now(
    tmp_path: Path,
) -> None:
    world = made(tmp_path, nodes=2)
    world.cloud.faults.stuck_boots = 1.0
    async with world.living(Life()) as daemon:
        world.batch.submit(2, 5)
        await until(lambda: len(ids(world)) == 2)
        world.cloud.die(instance(world, "c1"), InstanceState.BROKEN)
        await until(lambda: daemon.engine.claimed() == {"c2"}, 30)
        job = world.batch.submit(1, 5)
        await until(lambda: state(daemon, "c1") is NodeState.JOINING)
        second = instance(world, "c1")
    async with world.living(Life()) as daemon:
        await asyncio.sleep(30)
        assert instance(world, "c1") == second
        assert state(daemon, "c1") is NodeState.JOINING
        assert job.requeues == 0
        first = (await operations(daemon, Kind.RESUME))[-1]
        assert first.fallen.keys() == {"c1"}


async def test_nodes_that_a_suspend_leaves_alone_are_free_at_once(
    tmp_path: Path, locked: set[str]
) -> None:
    world = made(tmp_path, nodes=2)
    async with world.living(Life()) as daemon:
        await up(world, daemon, 2)
        locked.add(instance(world, "c1"))
        await daemon.engine.submit(Kind.SUSPEND, ["c1", "c2"], asked_by="test")
        world.batch._dismiss(world.batch._nodes["c1"])
        await until(lambda: daemon.engine.claimed() == {"c1"}, 30)
        assert state(daemon, "c2") is NodeState.READY


# --- operations that never begin -----------------------------------------------------------------


def patient(world: World) -> World:
    """Its batch system never gives up waiting."""
    world.batch.timing.resume_timeout_s = 1e9
    return world


async def test_a_resume_that_waited_in_vain_gives_its_nodes_back(
    tmp_path: Path, locked: set[str]
) -> None:
    world = patient(made(tmp_path, nodes=1))
    async with world.living(Life()) as daemon:
        await up(world, daemon)
        locked.add(instance(world, "c1"))
        await world.batch.power_down(["c1"])
        await asyncio.sleep(60)
        job = world.batch.submit(1, 5)
        await until(lambda: job.requeues == 1, daemon.spec.timing.lock + 30)
        (told,) = [text for id, text in world.batch.told if id == job.id]
        assert "waited 600 s for c1 (operation" in told
        (resume,) = [op for op in await operations(daemon, Kind.RESUME) if "waited" in op.reason]
        assert (resume.state, resume.fallen) == (OperationState.FAILED, {})
        assert state(daemon) is NodeState.DELETING
        locked.clear()
        await until(lambda: job.state == "COMPLETED", 1800)


async def test_a_resume_that_waited_in_vain_leaves_what_another_brings_up(tmp_path: Path) -> None:
    world = patient(made(tmp_path, nodes=1))
    async with world.living(Life()) as daemon:
        world.cloud.faults.boot_s = 90
        daemon.parts.spec = daemon.spec.but(timing=daemon.spec.timing.but(lock=30.0))
        job = world.batch.submit(1, 5)
        await until(lambda: ids(world))
        (late,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="batch")
        ended = await daemon.engine.wait(late.id)
        assert ended is not None
        assert ended.state is OperationState.FAILED
        await until(lambda: job.state == "COMPLETED")
        assert job.requeues == 0


async def test_a_resume_that_is_cancelled_before_it_began_gives_its_nodes_back(
    tmp_path: Path, locked: set[str]
) -> None:
    world = patient(made(tmp_path, nodes=1))
    async with world.living(Life()) as daemon:
        await up(world, daemon)
        locked.add(instance(world, "c1"))
        await world.batch.power_down(["c1"])
        await asyncio.sleep(60)
        job = world.batch.submit(1, 5)
        await until(lambda: daemon.engine.at(Kind.RESUME))
        (waiting, *_) = await operations(daemon, Kind.RESUME)
        await daemon.engine.cancel(waiting.id, "root")
        assert job.requeues == 1
