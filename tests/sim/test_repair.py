"""The world comes apart in every way there is, and the reconciler mends it, on virtual time."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from springtide import maintenance
from springtide.batch.fake import Timing
from springtide.configure.fake import FakeConfigurator
from springtide.daemon import Daemon
from springtide.model import Kind, NodeState
from springtide.ports import (
    ITSELF,
    Denied,
    Instance,
    InstanceState,
    Launch,
    Power,
    QuotaExceeded,
    Rejected,
)
from springtide.providers.fake import FakeCloud, FakeProvider, Faults
from springtide.store.sqlite import connect
from tests.sim.world import Life, World

pytestmark = pytest.mark.looptime

SPEC = """
cluster: sim
batch: {{kind: fake}}
provider: {{kind: fake}}
flavors: {{small: {{cpus: 1, memory: 1G, price: 2}}, large: {{cpus: 2, memory: 2G, price: 1}}}}
images: {{base: {{path: /}}, new: {{path: /}}}}
groups: {{general: {{nodes: "c[1-{nodes}]", min: {min}, image: base, {more}}}}}
timing: {{start: 120s, stop: 120s, reconcile: 10s, grace: 30s, gather: 20ms}}
{rest}
"""
GRACE_S = 30.0


def made(tmp_path: Path, nodes: int = 3, min: int = 0, more: str = "", rest: str = "") -> World:
    text = SPEC.format(nodes=nodes, min=min, more=more or "flavors: [small]", rest=rest)
    faults = Faults(before_s=0.1, after_s=0.1, boot_s=5, delete_s=3)
    timing = Timing(latency_s=0.01, join_s=1, idle_s=1e9, suspend_timeout_s=30)
    return World(tmp_path, faults=faults, timing=timing, text=text)


async def until(done: Callable[[], object], limit_s: float = 600) -> None:
    async with asyncio.timeout(limit_s):
        while not done():
            await asyncio.sleep(0.25)


def stray(world: World, node: str, generation: int = 7) -> Instance:
    """An instance that somebody made with our tag, and that never comes up."""
    faults = world.cloud.faults
    faults.stuck_boots, chance = 1.0, faults.stuck_boots
    one = world.cloud.start(Launch("sim", node, generation, "general", "base", "small"))
    faults.stuck_boots = chance
    return one


def ids(world: World) -> list[str]:
    return [one.id for one in world.cloud.alive()]


def state(daemon: Daemon, name: str = "c1") -> NodeState:
    return daemon.parts.record.nodes[name].state


async def up(world: World, daemon: Daemon, size: int = 1) -> None:
    """So many nodes in service, without a job any more."""
    job = world.batch.submit(size, 1)
    await until(lambda: job.state == "COMPLETED")
    await daemon.engine.idle()


async def completed(world: World, size: int = 1, limit_s: float = 1200) -> None:
    job = world.batch.submit(size, 5)
    await until(lambda: job.state == "COMPLETED", limit_s)


# --- nodes and instances -----------------------------------------------------------------------


@pytest.mark.accepts("C19")
async def test_an_orphan_is_deleted_after_its_grace(tmp_path: Path) -> None:
    world = made(tmp_path)
    async with world.living(Life()):
        began = asyncio.get_running_loop().time()
        stray(world, "c2")
        await until(lambda: not ids(world))
        assert asyncio.get_running_loop().time() - began >= GRACE_S


@pytest.mark.accepts("C19")
async def test_an_instance_of_a_name_that_nobody_knows_is_deleted(tmp_path: Path) -> None:
    world = made(tmp_path)
    async with world.living(Life()) as daemon:
        stray(world, "zz9")
        await until(lambda: not ids(world))
        events = await daemon.parts.record.store.events(node="zz9")
        assert [event.what for event in events][:1] == ["unneeded instance deleted"]


@pytest.mark.accepts("C19")
async def test_of_two_instances_the_one_that_serves_is_kept(tmp_path: Path) -> None:
    world = made(tmp_path)
    async with world.living(Life()) as daemon:
        await up(world, daemon)
        (right,) = ids(world)
        stray(world, "c1")
        await until(lambda: ids(world) == [right])
        await completed(world)
        assert state(daemon) is NodeState.READY


@pytest.mark.accepts("C19", "E30")
@pytest.mark.parametrize("leaves", [None, InstanceState.STOPPED, InstanceState.BROKEN])
async def test_a_node_whose_instance_died_serves_again(
    tmp_path: Path, leaves: InstanceState | None
) -> None:
    world = made(tmp_path)
    async with world.living(Life()) as daemon:
        await up(world, daemon)
        world.cloud.die(ids(world)[0], leaves)
        await until(lambda: state(daemon) is NodeState.OFF)
        assert world.batch.killed_jobs == {}
        await completed(world)
        assert world.cloud.duplicates() == []


@pytest.mark.accepts("C19")
async def test_a_job_whose_node_died_runs_again_and_its_owner_is_told(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    world.batch.timing.slurmd_timeout_s = 1e9
    async with world.living(Life()):
        job = world.batch.submit(1, 100)
        await until(lambda: job.state == "RUNNING")
        world.cloud.die(ids(world)[0], InstanceState.BROKEN)
        await until(lambda: job.requeues == 1, GRACE_S + 30)
        told = "c1 broke, so the job goes back to the queue: its instance died"
        assert world.batch.told == [(job.id, told)]
        await until(lambda: job.state == "COMPLETED")
    assert world.batch.killed_jobs == {}


@pytest.mark.accepts("C19")
async def test_a_node_that_is_down_without_an_instance_serves_again(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    async with world.living(Life()) as daemon:
        node = world.batch._nodes["c1"]
        node.power, node.down = Power.UP, True
        await until(lambda: node.power is Power.DOWN and not node.down)
        await daemon.engine.idle()
        await completed(world)


async def test_a_node_that_is_off_and_down_is_released(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    async with world.living(Life()):
        world.batch._nodes["c1"].down = True
        await until(lambda: not world.batch._nodes["c1"].down)
        await completed(world)


async def test_an_instance_goes_whose_node_was_powered_down_unheard(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    async with world.living(Life()) as daemon:
        await up(world, daemon)
        world.batch.on_suspend.clear()
        await world.batch.power_down(["c1"])
        await until(lambda: not ids(world))
        await daemon.engine.idle()
        assert state(daemon) is NodeState.OFF


async def test_a_node_comes_whose_request_was_lost(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    calls, world.batch.on_resume = world.batch.on_resume, []
    async with world.living(Life()):
        job = world.batch.submit(1, 5)
        await asyncio.sleep(1)
        world.batch.on_resume = calls
        await until(lambda: job.state == "COMPLETED", GRACE_S + 60)
        assert job.requeues == 0


async def test_a_node_that_serves_is_adopted_when_the_record_is_lost(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    async with world.living(Life()):
        job = world.batch.submit(1, 600)
        await until(lambda: job.state == "RUNNING")
        (instance,) = world.cloud.alive()
    for path in tmp_path.glob(f"{world.layout.record.name}*"):
        path.unlink()
    async with world.living(Life()) as daemon:
        await until(lambda: state(daemon) is NodeState.READY)
        node = daemon.parts.record.nodes["c1"]
        assert (node.instance, node.generation) == (instance.id, instance.generation)
        await until(lambda: job.state == "COMPLETED")
    assert (job.requeues, world.batch.killed_jobs) == (0, {})


async def test_a_node_that_slurm_drained_for_a_fault_gets_a_new_instance(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    async with world.living(Life()) as daemon:
        await up(world, daemon)
        (old,) = ids(world)
        await world.batch.drain(["c1"], "Low RealMemory", ITSELF)
        await until(lambda: state(daemon) is NodeState.OFF)
        await completed(world)
        assert old not in ids(world)


@pytest.mark.accepts("X9")
async def test_what_a_person_drained_or_put_down_is_left_alone(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=2)
    async with world.living(Life()) as daemon:
        await up(world, daemon, 2)
        await world.batch.drain(["c1", "c2"], "bad fan", "alice")
        world.batch._nodes["c2"].down = True
        before = ids(world)
        await asyncio.sleep(600)
        assert ids(world) == before
        assert [node.owner for node in world.batch._nodes.values()] == ["alice", "alice"]


async def test_a_drain_of_ours_that_nobody_ends_is_ended(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    async with world.living(Life()) as daemon:
        await up(world, daemon)
        await world.batch.drain(["c1"], "rebuild by root (operation 7)")
        await until(lambda: not world.batch._nodes["c1"].drained)


@pytest.mark.accepts("E30")
async def test_nodes_that_are_always_up_come_back_by_themselves(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=3, min=2)
    async with world.living(Life()) as daemon:
        await until(lambda: len(ids(world)) == 2)
        await daemon.engine.idle()
        world.cloud.die(ids(world)[0])
        await until(lambda: state(daemon, "c1") is NodeState.OFF)
        await until(lambda: state(daemon, "c1") is NodeState.READY)
        assert state(daemon, "c2") is NodeState.READY


# --- brakes ------------------------------------------------------------------------------------


@pytest.mark.accepts("C19", "N18")
async def test_a_list_that_fails_decides_nothing_and_the_loop_goes_on(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    async with world.living(Life()) as daemon:
        stray(world, "c1")
        world.cloud.faults.denied = True
        await asyncio.sleep(300)
        assert len(ids(world)) == 1
        assert world.cloud.calls["delete"] == 0
        events = await daemon.parts.record.store.events()
        told = [e.what for e in events if "provider" in e.what]
        assert told == ["provider of general away"]
        world.cloud.faults.denied = False
        await until(lambda: not ids(world))


async def test_a_batch_system_that_is_away_decides_nothing(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    async with world.living(Life()):
        stray(world, "c1")
        world.batch.unavailable = True
        await asyncio.sleep(300)
        assert len(ids(world)) == 1
        world.batch.unavailable = False
        await until(lambda: not ids(world))


async def test_a_list_that_shows_nothing_at_all_is_not_believed(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=10)
    world.batch.timing.slurmd_timeout_s = 1e9
    async with world.living(Life()) as daemon:
        job = world.batch.submit(10, 3600)
        await until(lambda: job.state == "RUNNING")
        world.cloud.faults.stale_s = 1e6
        await asyncio.sleep(300)
        assert job.requeues == 0
        assert len(ids(world)) == 10
        rules = {one.rule.name for one in daemon.reconciler.findings.values()}
        assert rules == {"unlisted"}


async def test_in_maintenance_nothing_is_repaired(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    async with world.living(Life()) as daemon:
        await maintenance.begin(daemon.parts.record, "root", "new switch")
        stray(world, "c1")
        await asyncio.sleep(300)
        assert len(ids(world)) == 1
        assert [one.rule.name for one in daemon.reconciler.findings.values()] == ["orphan"]
        await maintenance.end(daemon.parts.record, "root")
        await until(lambda: not ids(world))


# --- classes of errors -------------------------------------------------------------------------


def full(world: World, *flavors: str) -> None:
    world.cloud.capacity |= {("zone-1", flavor): 0 for flavor in flavors}


@pytest.mark.accepts("C12", "X4")
async def test_without_capacity_jobs_are_kept_off_and_tried_again_later(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=3)
    full(world, "small")
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 5)
        await until(lambda: job.requeues == 1)
        await until(lambda: all(node.drained for node in world.batch._nodes.values()), 60)
        creates = world.cloud.calls["create"]
        assert "no capacity for small" in world.batch._nodes["c2"].reason
        await asyncio.sleep(60)
        assert world.cloud.calls["create"] == creates
        world.cloud.capacity.clear()
        await until(lambda: job.state == "COMPLETED")
        await until(lambda: not any(node.drained for node in world.batch._nodes.values()))
        assert daemon.parts.holding.current == []


@pytest.mark.accepts("X4")
async def test_a_cool_down_grows_and_outlives_the_daemon(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    full(world, "small")
    job = world.batch.submit(1, 5)
    async with world.living(Life()) as daemon:
        await until(lambda: daemon.parts.holding.known)
        (first,) = daemon.parts.holding.known.values()
    async with world.living(Life()) as daemon:
        assert list(daemon.parts.holding.known.values()) == [first]
        await until(lambda: next(iter(daemon.parts.holding.known.values())).count == 3, 3600)
        (third,) = daemon.parts.holding.known.values()
        assert third.until - third.since > 3 * (first.until - first.since)
        world.cloud.capacity.clear()
        await until(lambda: job.state == "COMPLETED", 3600)


@pytest.mark.accepts("C12", "X4")
async def test_the_next_flavor_is_the_next_by_price_and_full_ones_are_passed_over(
    tmp_path: Path,
) -> None:
    world = made(tmp_path, nodes=3, more="flavors: [small, large], choose: price")
    full(world, "large")
    async with world.living(Life()) as daemon:
        await up(world, daemon)
        (first,) = world.cloud.alive()
        assert first.flavor == "small"
        creates = world.cloud.calls["create"]
        await up(world, daemon, 2)
        assert world.cloud.calls["create"] == creates + 1, "what was full is not asked again"


@pytest.mark.accepts("X4")
@pytest.mark.parametrize("error", [QuotaExceeded, Denied])
async def test_quota_and_credentials_stop_all_launches_until_a_probe_works(
    tmp_path: Path, error: type[QuotaExceeded | Denied]
) -> None:
    world = made(tmp_path, nodes=3)
    world.cloud.faults.refusals[error] = 1.0
    async with world.living(Life()):
        job = world.batch.submit(3, 5)
        await until(lambda: job.requeues == 1)
        await until(lambda: all(node.drained for node in world.batch._nodes.values()), 60)
        creates = world.cloud.calls["create"]
        await asyncio.sleep(200)
        assert world.cloud.calls["create"] == creates
        world.cloud.faults.refusals.clear()
        await until(lambda: job.state == "COMPLETED", 3600)


@pytest.mark.accepts("X4", "E30")
async def test_a_group_whose_nodes_do_not_boot_is_stopped_and_tried_with_one(
    tmp_path: Path,
) -> None:
    world = made(tmp_path, nodes=4)
    world.cloud.faults.stuck_boots = 1.0
    async with world.living(Life()) as daemon:
        job = world.batch.submit(4, 5)
        await until(lambda: "group:general" in daemon.parts.holding.known)
        await until(lambda: not ids(world))
        made_before = world.cloud._made
        await until(lambda: world.cloud._made > made_before, 3600)
        await asyncio.sleep(60)
        assert len(ids(world)) == 1, "a probe is one node"
        assert job.requeues == 1, "no job is bothered with it"
        world.cloud.faults.stuck_boots = 0.0
        await until(lambda: job.state == "COMPLETED", 3 * 3600)
        await until(lambda: daemon.parts.holding.current == [])


@pytest.mark.accepts("X4")
async def test_a_rejected_request_is_not_repeated_until_the_file_is_another(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=2, min=1)
    world.cloud.faults.refusals[Rejected] = 1.0
    async with world.living(Life()) as daemon:
        await until(lambda: world.cloud.calls["create"])
        await asyncio.sleep(6 * 3600)
        assert world.cloud.calls["create"] == 1
        assert list(daemon.parts.holding.held_back(daemon.spec)) == ["c1"]
        world.cloud.faults.refusals.clear()
        await daemon.parts.adopt(daemon.spec, lambda: None)
        await until(lambda: state(daemon) is NodeState.READY, 60)


# --- drift -------------------------------------------------------------------------------------


DRIFT = 'drift: {replace: true, at_once: "25%"}'


@pytest.mark.accepts("X7")
async def test_drifted_nodes_are_replaced_idle_ones_first_and_few_at_once(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=8, rest=DRIFT)
    async with world.living(Life()) as daemon:
        await up(world, daemon, 8)
        job = world.batch.submit(1, 2000)
        await until(lambda: job.state == "RUNNING")
        busy = job.nodes[0]
        most = 0

        def watch() -> bool:
            nonlocal most
            nodes = daemon.parts.record.nodes
            most = max(most, sum(node.state is not NodeState.READY for node in nodes.values()))
            return all(one.image == "new" for one in world.cloud.alive() if one.node != busy)

        general = daemon.spec.groups["general"].but(image="new")
        daemon.parts.spec = daemon.parts.wanted = daemon.spec.but(groups={"general": general})
        world.batch.on_reboot.append(lambda nodes: world._call("reboot", nodes, ()))
        await until(watch, 3600)
        assert most <= 2
        assert job.state == "RUNNING"
        assert job.requeues == 0
        await until(lambda: {one.image for one in world.cloud.alive()} == {"new"}, 7200)
        assert world.batch.killed_jobs == {}


async def test_drift_is_only_reported_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    async with world.living(Life()) as daemon:
        await up(world, daemon)
        general = replace(daemon.parts.record.nodes["c1"]).group
        changed = daemon.spec.groups[general].but(image="new")
        daemon.parts.spec = daemon.parts.wanted = daemon.spec.but(groups={general: changed})
        before = ids(world)
        await asyncio.sleep(600)
        assert ids(world) == before


@pytest.mark.accepts("X7")
async def test_nodes_with_another_configuration_are_updated_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = made(tmp_path, nodes=2, rest=DRIFT)
    async with world.living(Life()) as daemon:
        await up(world, daemon, 2)
        before = ids(world)
        monkeypatch.setattr(FakeConfigurator, "user_data", lambda self, node, site: "new mounts")
        await until(lambda: {world.cloud.user_data(id) for id in ids(world)} == {"new mounts"})
        await daemon.engine.idle()
        assert ids(world) == before
        kinds = [op.kind for op in await daemon.parts.record.store.operations()]
        assert kinds.count(Kind.UPDATE) == 2, "one at a time"


async def test_word_of_a_late_start_that_comes_late_itself_ends_no_job(tmp_path: Path) -> None:
    """It was in the spool, or the batch system did not answer, while the node came after all."""
    world = made(tmp_path, nodes=1)
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 3000)
        await until(lambda: job.state == "RUNNING")
        await daemon.engine.idle()
        world._call("resume-fail", ["c1"], ())
        await asyncio.sleep(120)
        assert (job.state, job.requeues, world.batch.killed_jobs) == ("RUNNING", 0, {})
        events = await daemon.parts.record.store.events()
        assert "resume failed" not in [event.what for event in events]


async def test_a_node_that_registers_while_the_batch_system_is_away_is_not_given_back(
    tmp_path: Path,
) -> None:
    world = made(tmp_path, nodes=1)
    async with world.living(Life()) as daemon:
        world.batch.unavailable = True
        world._call("resume-fail", ["c1"], ())
        await asyncio.sleep(30)
        world.batch.unavailable = False
        job = world.batch.submit(1, 3000)
        await until(lambda: job.state == "RUNNING")
        await daemon.engine.idle()
        await asyncio.sleep(120)
        assert (job.state, job.requeues, world.batch.killed_jobs) == ("RUNNING", 0, {})


# --- what a hard look found -----------------------------------------------------------------------


async def test_one_node_that_never_boots_does_not_stop_its_group(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=2)

    def die(one: Instance) -> None:
        if one.node == "c1":
            world.cloud.die(one.id)

    world.cloud.on_running.append(die)
    async with world.living(Life()) as daemon:
        for _ in range(3):
            await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="root")
            await daemon.engine.idle()
        holding = daemon.parts.holding
        assert list(holding.held_groups(daemon.spec)) == []
        assert list(holding.held_back(daemon.spec)) == ["c1"]
        await until(lambda: world.batch._nodes["c1"].drained)
        await completed(world)


async def test_nodes_that_are_found_unfit_over_and_over_are_not_made_for_ever(
    tmp_path: Path,
) -> None:
    world = made(tmp_path, nodes=2, min=2)
    async with world.living(Life()):
        for _ in range(6 * 60):
            for node in world.batch._nodes.values():
                if node.registered and not node.drained:
                    await world.batch.drain([node.name], "Low RealMemory", ITSELF)
            await asyncio.sleep(60)
        assert world.cloud._made < 30


async def test_a_place_with_too_little_room_is_tried_ever_more_seldom(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=3)
    world.cloud.capacity["zone-1", "small"] = 1
    async with world.living(Life()):
        job = world.batch.submit(3, 5)
        await asyncio.sleep(6 * 3600)
        assert world.cloud._made < 15
        assert job.requeues < 15
        world.cloud.capacity.clear()
        await until(lambda: job.state == "COMPLETED", 2 * 3600)


async def test_drift_stops_when_a_replacement_does_not_come_back(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=8, rest=DRIFT)
    async with world.living(Life()) as daemon:
        await up(world, daemon, 8)
        world.batch.on_reboot.append(lambda nodes: world._call("reboot", nodes, ()))
        world.cloud.faults.stuck_boots = 1.0
        general = daemon.spec.groups["general"].but(image="new")
        daemon.parts.spec = daemon.parts.wanted = daemon.spec.but(groups={"general": general})
        await asyncio.sleep(3600)
        left = [one for one in world.cloud.alive() if one.image == "base"]
        assert len(left) == 6


@pytest.mark.parametrize("behind", [NodeState.JOINING, NodeState.DELETING, NodeState.FAILED])
async def test_a_record_that_is_behind_the_world_costs_no_job(
    tmp_path: Path, behind: NodeState
) -> None:
    world = made(tmp_path, nodes=1)
    async with world.living(Life()):
        job = world.batch.submit(1, 600)
        await until(lambda: job.state == "RUNNING")
    with closing(connect(world.layout.record)) as db:
        db.execute("UPDATE nodes SET state = ?", (behind,))
        db.execute("UPDATE operations SET ended_at = 1, state = 'done'")
        db.execute("DELETE FROM leases")
    async with world.living(Life()) as daemon:
        await until(lambda: job.state == "COMPLETED", 1200)
        assert daemon.parts.record.nodes["c1"].state is NodeState.READY
    assert (job.requeues, world.batch.killed_jobs) == (0, {})


async def test_two_providers_that_show_the_same_instances_make_no_twins(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    async with world.living(Life()) as daemon:
        other = FakeProvider(world.cloud)
        daemon.parts.providers = {"general": daemon.parts.home, "same": other}
        job = world.batch.submit(1, 600)
        await until(lambda: job.state == "COMPLETED", 1200)
        assert world.cloud._made == 1


async def test_an_instance_at_another_provider_than_its_groups_is_deleted_there(
    tmp_path: Path,
) -> None:
    world = made(tmp_path, nodes=1)
    async with world.living(Life()) as daemon:
        elsewhere = FakeCloud(Faults(delete_s=3))
        elsewhere.start(Launch("sim", "c1", 7, "general", "base", "small"))
        other = FakeProvider(elsewhere)
        daemon.parts.providers = {"general": daemon.parts.home, "other": other}
        await until(lambda: not elsewhere.alive())
        operations = await daemon.parts.record.store.operations()
        assert [op.kind for op in operations] == []


async def test_a_hole_in_a_list_costs_no_job(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=3)
    async with world.living(Life()):
        job = world.batch.submit(3, 600)
        await until(lambda: job.state == "RUNNING")
        world.cloud.faults.stale_s = 1e6
        await asyncio.sleep(300)
        world.cloud.faults.stale_s = 0.0
        await until(lambda: job.state == "COMPLETED")
        assert job.requeues == 0


async def test_in_maintenance_drains_of_holds_end(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    full(world, "small")
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 5)
        await until(lambda: job.requeues == 1)
        await maintenance.begin(daemon.parts.record, "root", "new switch")
        await asyncio.sleep(100)
        world.cloud.capacity.clear()
        await until(lambda: job.state == "COMPLETED", 2 * 3600)


async def test_nodes_started_after_a_hold_are_not_left_drained(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=2, min=1)
    world.cloud.faults.refusals[Rejected] = 1.0
    async with world.living(Life()) as daemon:
        await until(lambda: world.batch._nodes["c1"].drained)
        world.cloud.faults.refusals.clear()
        await daemon.parts.adopt(daemon.spec, lambda: None)
        await daemon.engine.submit(Kind.ENLARGE, ["c1"], asked_by="root")
        await until(lambda: state(daemon) is NodeState.READY)
        assert not world.batch._nodes["c1"].drained


async def test_a_deploy_over_a_lost_record_costs_no_job(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=2, min=2)
    async with world.living(Life()) as daemon:
        await until(lambda: state(daemon, "c2") is NodeState.READY)
        job = world.batch.submit(1, 600)
        await until(lambda: job.state == "RUNNING")
        before = ids(world)
    for path in tmp_path.glob(f"{world.layout.record.name}*"):
        path.unlink()
    async with world.living(Life()) as daemon:
        await daemon.people.deploy("root")
        await daemon.engine.idle()
        assert ids(world) == before
        await until(lambda: job.state == "COMPLETED", 1200)
    assert (job.requeues, world.batch.killed_jobs) == (0, {})


async def test_a_person_may_start_what_is_held(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=1)
    full(world, "small")
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 5)
        await until(lambda: world.batch._nodes["c1"].drained)
        world.cloud.capacity.clear()
        answer = await daemon.people.resume(["c1"], "root")
        assert [one.nodes for one in answer.operations] == [("c1",)]
        await until(lambda: job.state == "COMPLETED", 60)
        assert daemon.parts.holding.current == []
