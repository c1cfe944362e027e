"""Operations against a cloud that misbehaves, on virtual time."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from springtide.batch.fake import Timing
from springtide.engine import Engine, Refused
from springtide.model import Kind, NodeState, Operation, OperationState, Request, Step
from springtide.ports import InstanceState, NoCapacity, Rejected, Unavailable
from springtide.providers.fake import Faults
from springtide.spec import parse
from springtide.steps import STEPS, Fallen, Work
from springtide.store import SqliteStore
from tests.sim.world import SPEC, Life, World

pytestmark = pytest.mark.looptime


async def until(done: Callable[[], bool], limit_s: float = 600) -> None:
    async with asyncio.timeout(limit_s):
        while not done():
            await asyncio.sleep(0.25)


def states(world: World) -> dict[str, NodeState]:
    assert world.daemon is not None
    return {name: node.state for name, node in world.daemon.parts.record.nodes.items()}


async def test_a_node_that_the_cloud_refuses_is_given_back_and_the_others_come_up(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.cloud.faults.refused_nodes["c2"] = Rejected("bad image")
    async with world.living(Life()) as daemon:
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1", "c2", "c3"], asked_by="test")
        await world.batch.power_up(["c1", "c2", "c3"])
        ended = await daemon.engine.wait(operation.id)
        assert ended is not None
        assert ended.state is OperationState.PARTLY
        assert ended.fallen == {"c2": "the provider refused the request: bad image"}
        assert states(world) == {
            "c1": NodeState.READY,
            "c2": NodeState.OFF,
            "c3": NodeState.READY,
        }
        events = await daemon.parts.record.store.events(node="c2")
        assert "node given back" in [event.what for event in events]


async def test_a_job_moves_on_when_its_node_cannot_start(tmp_path: Path) -> None:
    world = World(tmp_path, nodes=2)
    world.cloud.faults.refused_nodes["c1"] = Rejected("no such image")
    async with world.living(Life()):
        job = world.batch.submit(1, 10)
        await until(lambda: job.requeues == 1)
        assert world.batch.told == [
            (
                job.id,
                "c1 could not start, so the job waits again: "
                "the provider refused the request: no such image",
            )
        ]
        await until(lambda: job.state == "COMPLETED")
        assert job.nodes == ("c2",)
    assert world.batch.killed_jobs == {}


async def test_a_full_zone_is_passed_over_for_the_next(tmp_path: Path) -> None:
    text = (
        "cluster: sim\nbatch: {kind: fake}\nprovider: {kind: fake}\n"
        "flavors: {small: {cpus: 1, memory: 1G}, large: {cpus: 2, memory: 2G}}\n"
        'groups: {general: {nodes: "c[1-3]", flavors: [small, large], zones: [a, b]}}\n'
    )
    world = World(tmp_path, text=text)
    world.cloud.capacity.update({("a", "small"): 1, ("b", "small"): 0, ("a", "large"): 1})
    async with world.living(Life()) as daemon:
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1", "c2", "c3"], asked_by="x")
        await world.batch.power_up(["c1", "c2", "c3"])
        ended = await daemon.engine.wait(operation.id)
        assert ended is not None
        assert ended.state is OperationState.DONE
        nodes = daemon.parts.record.nodes.values()
        assert sorted((node.zone, node.flavor) for node in nodes) == [
            ("a", "large"),
            ("a", "small"),
            ("b", "large"),
        ]


async def test_no_capacity_anywhere_gives_the_nodes_back_with_the_reason(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.cloud.faults.refusals[NoCapacity] = 1.0
    async with world.living(Life()) as daemon:
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        ended = await daemon.engine.wait(operation.id)
        assert ended is not None
        assert ended.state is OperationState.FAILED
        assert "the provider is full" in ended.fallen["c1"]
        assert states(world)["c1"] is NodeState.OFF


async def test_throttling_and_lost_replies_delay_but_make_nothing_twice(tmp_path: Path) -> None:
    faults = Faults(before_s=0.1, after_s=0.1, boot_s=5, delete_s=3, throttle_every=3)
    faults.lost_replies = 0.3
    world = World(tmp_path, nodes=5, faults=faults)
    async with world.living(Life()) as daemon:
        job = world.batch.submit(5, 10)
        await until(lambda: job.state == "COMPLETED")
        await until(lambda: not world.cloud.alive())
        await daemon.engine.idle()
    assert world.cloud.duplicates() == []
    assert world.batch.killed_jobs == {}


async def test_a_stale_list_neither_leaks_nor_doubles(tmp_path: Path) -> None:
    faults = Faults(before_s=0.1, after_s=0.1, boot_s=5, delete_s=3, stale_s=8)
    world = World(tmp_path, faults=faults)
    async with world.living(Life()) as daemon:
        job = world.batch.submit(3, 10)
        await until(lambda: job.state == "COMPLETED" and not world.cloud.alive())
        await daemon.engine.idle()
        assert set(states(world).values()) == {NodeState.OFF}
    assert world.cloud.duplicates() == []


async def test_an_instance_that_dies_while_it_boots_is_noticed_long_before_the_timeout(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, faults=Faults(boot_s=60))
    async with world.living(Life()) as daemon:
        loop = asyncio.get_running_loop()
        began = loop.time()
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        await until(lambda: states(world)["c1"] is NodeState.JOINING)
        world.cloud.die(world.cloud.alive()[0].id, InstanceState.BROKEN)
        ended = await daemon.engine.wait(operation.id)
        assert ended is not None
        assert "died while it booted" in ended.fallen["c1"]
        assert loop.time() - began < 30


async def test_a_node_that_never_registers_is_given_back_in_time(tmp_path: Path) -> None:
    world = World(tmp_path, faults=Faults(stuck_boots=1.0))
    async with world.living(Life()) as daemon:
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        ended = await daemon.engine.wait(operation.id)
        assert ended is not None
        assert "did not register within 120 s" in ended.fallen["c1"]
        assert world.cloud.alive() == []


async def test_addresses_that_come_late_are_asked_for(tmp_path: Path) -> None:
    world = World(tmp_path, faults=Faults(address_s=4, boot_s=6))
    async with world.living(Life()):
        job = world.batch.submit(3, 10)
        await until(lambda: job.state == "COMPLETED")
    assert job.requeues == 0


@pytest.mark.accepts("E7")
async def test_a_resume_and_a_suspend_of_one_node_both_finish_in_their_order(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    async with world.living(Life()) as daemon:
        await world.batch.power_up(["c1"])
        (up,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        (down,) = await daemon.engine.submit(Kind.SUSPEND, ["c1"], asked_by="x")
        first = await daemon.engine.wait(up.id)
        await world.batch.power_down(["c1"])
        second = await daemon.engine.wait(down.id)
        assert first is not None
        assert second is not None
        assert first.state is OperationState.DONE
        assert first.ended_at is not None
        assert second.started_at is not None
        assert first.ended_at <= second.started_at


async def test_a_busy_node_does_not_hold_up_free_ones(tmp_path: Path) -> None:
    world = World(tmp_path, faults=Faults(boot_s=60))
    async with world.living(Life()) as daemon:
        await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        parted = await daemon.engine.submit(Kind.SUSPEND, ["c1", "c2", "c3"], asked_by="x")
        assert [operation.nodes for operation in parted] == [("c1",), ("c2", "c3")]


@pytest.mark.accepts("E7")
async def test_waiting_past_the_lock_timeout_says_who_holds_the_node(tmp_path: Path) -> None:
    world = World(tmp_path, faults=Faults(boot_s=100), lock="30s")
    async with world.living(Life()) as daemon:
        (first,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        (second,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        ended = await daemon.engine.wait(second.id)
        assert ended is not None
        assert ended.state is OperationState.FAILED
        assert f"waited 30 s for c1 (operation {first.id})" in ended.reason
        assert "timing.lock" in ended.reason


async def test_a_cancelled_resume_gives_its_nodes_back_and_leaves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, faults=Faults(boot_s=60, delete_s=3))
    async with world.living(Life()) as daemon:
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1", "c2"], asked_by="x")
        await until(lambda: states(world)["c1"] is NodeState.JOINING)
        await daemon.engine.cancel(operation.id, "alice")
        ended = await daemon.engine.wait(operation.id)
        assert ended is not None
        assert ended.state is OperationState.CANCELLED
        assert ended.reason == "cancelled by alice"
        assert world.cloud.alive() == []
        assert set(states(world).values()) == {NodeState.OFF}
        with pytest.raises(Refused, match="is not running"):
            await daemon.engine.cancel(operation.id, "alice")


async def test_a_suspend_that_was_overtaken_leaves_a_node_in_use_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 60)
        await until(lambda: job.state == "RUNNING")
        name = job.nodes[0]
        late = Request("late", "suspend", (name,), 0.0)
        await daemon.receive(late)
        await until(lambda: job.state == "COMPLETED")
    assert world.batch.killed_jobs == {}


async def test_a_ready_node_that_is_asked_for_afresh_is_made_again(tmp_path: Path) -> None:
    world = World(tmp_path, nodes=1)
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 5)
        await until(lambda: job.state == "COMPLETED")
        first = daemon.parts.record.nodes["c1"].generation
        world.batch.on_suspend.clear()
        await until(lambda: world.batch.calls["nodes"] > 0)
        await asyncio.sleep(60)
        again = world.batch.submit(1, 5)
        await until(lambda: again.state == "COMPLETED")
        assert daemon.parts.record.nodes["c1"].generation == first + 1
    assert world.cloud.duplicates() == []


async def test_a_burst_of_calls_becomes_one_operation(tmp_path: Path) -> None:
    world = World(tmp_path, nodes=20)
    async with world.living(Life()) as daemon:
        for n in range(1, 21):
            await daemon.receive(Request(f"r{n}", "resume", (f"c{n}",), 0.0, (str(n),)))
        await daemon.receive(Request("r1", "resume", ("c1",), 0.0))
        await until(lambda: world.cloud.calls["create"] > 0)
        operations = await daemon.parts.record.store.operations()
        assert [len(operation.nodes) for operation in operations] == [20]
        assert operations[0].reason.startswith("resume by the batch system, for jobs 1,2,3,")


async def test_while_the_batch_system_is_away_operations_wait_for_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.living(Life()) as daemon:
        job = world.batch.submit(3, 10)
        await asyncio.sleep(0.1)
        world.batch.unavailable = True
        await asyncio.sleep(30)
        with pytest.raises(Unavailable):
            await daemon.people.resume(["c1"], "alice")
        world.batch.unavailable = False
        await until(lambda: job.state == "COMPLETED")
    assert job.requeues == 0


async def test_by_hand_nodes_go_through_the_batch_system(tmp_path: Path) -> None:
    world = World(tmp_path, timing=Timing(idle_s=9999))
    async with world.living(Life()) as daemon:
        answer = await daemon.people.resume(["c1", "c2"], "alice")
        assert answer.asked == ("c1", "c2")
        assert answer.operations == ()
        await until(lambda: states(world)["c1"] is NodeState.READY)
        assert (await daemon.people.resume(["c1"], "alice")).settled == ("c1",)
        job = world.batch.submit(2, 30)
        await until(lambda: job.state == "RUNNING")
        await daemon.people.suspend(["c1", "c2", "c3"], "alice")
        await until(lambda: set(states(world).values()) == {NodeState.OFF})
        assert job.state == "COMPLETED"
    assert world.batch.killed_jobs == {}


async def test_a_node_that_left_the_cluster_file_is_not_made_but_still_removed(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, nodes=3)
    async with world.living(Life()) as daemon:
        job = world.batch.submit(3, 5)
        await until(lambda: job.state == "RUNNING")
        await daemon.parts.record.store.open([Operation(0, Kind.RESUME, ("c3",))])
    world.spec = parse(SPEC.format(nodes=2, lock="10m"), "sim.yaml")
    async with world.living(Life()) as daemon:
        await daemon.engine.idle()
        last = (await daemon.parts.record.store.operations(limit=1))[0]
        assert last.fallen == {"c3": "it is no longer in the cluster file"}
        await until(lambda: job.state == "COMPLETED")
        (gone,) = await daemon.engine.submit(Kind.DESTROY, ["c3"], asked_by="x")
        await daemon.engine.wait(gone.id)
        assert "c3" not in {instance.node for instance in world.cloud.alive()}


async def test_an_accepted_request_outlasts_a_record_that_cannot_be_written(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    async with world.living(Life()) as daemon:
        store = daemon.parts.record.store
        assert isinstance(store, SqliteStore)
        job = world.batch.submit(1, 5)
        async with asyncio.timeout(1):
            while not store._db.execute("SELECT 1 FROM requests").fetchall():
                await asyncio.sleep(0)
        store._db.execute("PRAGMA query_only = ON")
        await asyncio.sleep(20)
        assert job.state == "CONFIGURING"
        store._db.execute("PRAGMA query_only = OFF")
        await until(lambda: job.state == "COMPLETED")


@pytest.mark.accepts("C9")
async def test_twenty_nodes_take_no_longer_than_one_and_a_half_times_one(tmp_path: Path) -> None:
    async def time_for(nodes: int) -> float:
        world = World(tmp_path / str(nodes), nodes=nodes)
        loop = asyncio.get_running_loop()
        async with world.living(Life()):
            began = loop.time()
            job = world.batch.submit(nodes, 5)
            await until(lambda: job.state == "RUNNING")
            return loop.time() - began

    assert await time_for(20) <= 1.5 * await time_for(1)


@pytest.mark.accepts("C17")
async def test_a_defect_ends_the_operation_and_is_written_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(work: Work) -> Fallen:
        raise ZeroDivisionError("a planted defect")

    world = World(tmp_path)
    async with world.living(Life()) as daemon:
        engine = Engine(daemon.parts, steps={**STEPS, Step.REFRESH_INVENTORY: broken})
        (operation,) = await engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        ended = await engine.wait(operation.id)
        assert ended is not None
        assert ended.state is OperationState.FAILED
        assert "a planted defect" in ended.reason
        assert world.cloud.alive() == []
        failed = [e for e in await daemon.parts.record.store.events() if e.what == "node failed"]
        assert [event.node for event in failed] == ["c1"]
    assert "ZeroDivisionError" in capsys.readouterr().out
