"""Nodes that a batch system which is read cannot take: refused before anything is made."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from springtide.batch.polled import Polled
from springtide.daemon import Daemon
from springtide.model import NOT_TAKEN, Kind, NodeState, OperationState
from springtide.ports import Member, Unavailable
from springtide.providers.fake import Faults
from springtide.spec import Cluster, parse
from springtide.steps import Parts
from tests.sim.queue_world import QueueWorld, states, text, until
from tests.sim.test_service import apply, ended
from tests.sim.world import Life

pytestmark = pytest.mark.looptime

MISSING = "slurm.conf has no c3; add lines `NodeName=…` for them"


def limit(world: QueueWorld) -> None:
    """The batch system knows c1 and c2 alone, as one whose configuration others write."""
    prepare, join = world.queue.prepare, world.queue.join

    async def require(members: Iterable[Member]) -> None:
        if any(member.name == "c3" for member in members):
            raise Unavailable(MISSING)

    async def prepared(members: Iterable[Member]) -> str:
        await require(members := list(members))
        return await prepare(members)

    async def joined(members: Iterable[Member]) -> None:
        await require(members := list(members))
        await join(members)

    world.queue.require = require  # type: ignore[method-assign]
    world.queue.prepare = prepared  # type: ignore[method-assign]
    world.queue.join = joined  # type: ignore[method-assign]


def follow_the_file(world: QueueWorld, daemon: Daemon) -> None:
    """Another cluster file means other members, as in a daemon that was composed."""
    parts = daemon.parts
    before = parts.batch
    assert isinstance(before, Polled)

    def remade(spec: Cluster) -> Parts:
        known = {**before.members, "c3": Member("c3", "", 1, 4096, (), ("cloud",))}
        members = {name: known[name] for name in spec.managed}
        polled = Polled(before.queue, members, before._book, before._now)
        groups = dict.fromkeys(spec.groups, parts.home)
        return Parts(spec, parts.record, groups, parts.home, polled, parts.configurator)

    parts.remade = remade


async def test_a_node_that_it_does_not_have_is_refused_before_anything_is_made(
    tmp_path: Path,
) -> None:
    world = QueueWorld(tmp_path, text(nodes=2, min=1))
    async with world.living(Life()) as daemon:
        limit(world)
        follow_the_file(world, daemon)
        await ended(daemon, await daemon.people.deploy("root"))
        before, made = daemon.parts.wanted, world.cloud.calls["create"]
        with pytest.raises(Unavailable, match=r"has no c3; add lines .* nothing was changed"):
            await daemon.people.foresee(parse(text(nodes=3, min=3), "sim.yaml"))
        with pytest.raises(Unavailable, match=r"has no c3; add lines .* nothing was changed"):
            await apply(world, daemon, parse(text(nodes=3, min=3), "sim.yaml"))
        assert daemon.parts.wanted == world.spec == before
        assert set(states(daemon)) == {"c1", "c2"}
        assert world.cloud.calls["create"] == made
        (done,) = await ended(
            daemon, await apply(world, daemon, parse(text(nodes=2, min=2), "sim.yaml"))
        )
        assert done.state is OperationState.DONE, done


async def test_a_deploy_of_nodes_that_it_does_not_have_makes_none(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=3, min=3))
    limit(world)
    async with world.living(Life()) as daemon:
        with pytest.raises(Unavailable, match="has no c3"):
            await daemon.people.deploy("root")
        assert world.cloud.calls["create"] == 0


async def test_one_node_that_cannot_join_does_not_hold_up_the_others(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=3))
    await world.prepared()
    limit(world)
    async with world.living(Life()) as daemon:
        (begun,) = await daemon.engine.submit(Kind.RESUME, ["c1", "c2", "c3"], asked_by="test")
        await until(lambda: list(states(daemon).values())[:2] == [NodeState.READY] * 2, 60)
        done = await daemon.engine.wait(begun.id)
        assert done is not None
        assert done.state is OperationState.PARTLY
        assert done.fallen == {"c3": f"its address could not be told: {MISSING}"}
        await until(lambda: world.up == {"c1", "c2"}, 60)
        told = [e for e in await daemon.parts.record.store.events() if e.what == NOT_TAKEN]
        assert [(event.node, event.detail) for event in told] == [("c3", MISSING)]


@pytest.mark.parametrize("kind", [Kind.RESUME, Kind.ENLARGE])
async def test_each_of_several_nodes_that_cannot_join_falls_out_alone(
    tmp_path: Path, kind: Kind
) -> None:
    world = QueueWorld(tmp_path, text(nodes=9))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        join, bad = world.queue.join, {"c1", "c2", "c4", "c5", "c8"}

        async def picky(members: Iterable[Member]) -> None:
            members = list(members)
            if refused := [one.name for one in members if one.name in bad]:
                raise Unavailable(f"unable to resolve {', '.join(refused)}")
            await join(members)

        world.queue.join = picky  # type: ignore[method-assign]
        (begun,) = await daemon.engine.submit(kind, [*states(daemon)], asked_by="test")
        done = await daemon.engine.wait(begun.id)
        assert done is not None
        assert done.state is OperationState.PARTLY
        told = "its address could not be told: unable to resolve"
        assert done.fallen == {name: f"{told} {name}" for name in sorted(bad)}
        ready = {name for name, state in states(daemon).items() if state is NodeState.READY}
        assert ready == world.up == {"c3", "c6", "c7", "c9"}


async def test_a_node_that_is_taken_a_moment_later_than_others_comes_with_them(
    tmp_path: Path,
) -> None:
    world = QueueWorld(tmp_path, text(nodes=3))
    await world.prepared()
    join = world.queue.join
    limit(world)
    async with world.living(Life()) as daemon:
        (begun,) = await daemon.engine.submit(Kind.RESUME, ["c1", "c2", "c3"], asked_by="test")
        await until(lambda: world.queue.node("c2").expected, 60)
        world.queue.join = join  # type: ignore[method-assign]
        done = await daemon.engine.wait(begun.id)
        assert done is not None
        assert done.state is OperationState.DONE, done


@pytest.mark.parametrize("kind", [Kind.RESUME, Kind.ENLARGE])
async def test_what_a_server_was_never_told_of_does_not_cost_while_it_is_away(
    tmp_path: Path, kind: Kind
) -> None:
    faults = Faults(before_s=2, after_s=2, boot_s=5, delete_s=3)
    world = QueueWorld(tmp_path, text(nodes=2), faults)
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        (begun,) = await daemon.engine.submit(kind, ["c1", "c2"], asked_by="test")
        await until(lambda: states(daemon)["c1"] is NodeState.REQUESTED, 60)
        world.queue.unavailable = True
        await until(lambda: world.up == {"c1", "c2"}, 60)
        await until(lambda: [*states(daemon).values()] == [NodeState.OFF] * 2, 300)
        assert not world.up
        world.queue.unavailable = False
        done = await daemon.engine.wait(begun.id)
        assert done is not None
        assert done.state is OperationState.FAILED
        assert "not to answer" in done.fallen["c1"]


async def test_what_a_server_was_told_of_stays_until_it_can_be_asked(tmp_path: Path) -> None:
    """It may have given a job to it, before it went away or since."""
    world = QueueWorld(tmp_path, text(nodes=2))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        join = world.queue.join

        async def interrupted(members: Iterable[Member]) -> None:
            await join(members)
            world.queue.unavailable = True
            raise Unavailable("the connection was lost")

        world.queue.join = interrupted  # type: ignore[method-assign]
        (begun,) = await daemon.engine.submit(Kind.ENLARGE, ["c1"], asked_by="test")
        await until(lambda: world.queue.unavailable, 60)
        await asyncio.sleep(1800)
        assert world.up == {"c1"}
        world.queue.unavailable, world.queue.join = False, join  # type: ignore[method-assign]
        await daemon.engine.wait(begun.id)
        await until(lambda: states(daemon)["c1"] in (NodeState.OFF, NodeState.READY), 600)


async def test_a_destroy_does_not_wait_for_a_start_that_does_not_end(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=3))
    await world.prepared()
    limit(world)
    async with world.living(Life()) as daemon:
        (start,) = await daemon.engine.submit(Kind.RESUME, ["c3"], asked_by="test")
        await until(lambda: "c3" in world.up, 60)
        begun = asyncio.get_running_loop().time()
        (done,) = await ended(daemon, await daemon.people.destroy("root"))
        assert done.state is OperationState.DONE, done
        assert asyncio.get_running_loop().time() - begun < 30
        cancelled = await daemon.engine.wait(start.id)
        assert cancelled is not None
        assert cancelled.state is OperationState.CANCELLED
        assert "root, who destroys the cluster" in cancelled.reason
        assert not world.up


async def test_what_waits_for_a_start_says_so_and_how_to_end_it(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=3))
    await world.prepared()
    limit(world)
    async with world.living(Life()) as daemon:
        (start,) = await daemon.engine.submit(Kind.RESUME, ["c3"], asked_by="test")
        await until(lambda: "c3" in world.up, 60)
        (stop,) = await daemon.engine.submit(Kind.SUSPEND, ["c3"], asked_by="test")
        assert daemon.engine.waits_for(stop.id) == (
            f"operation {start.id} (resume c3); `tide operations {start.id} --cancel` ends it"
        )
        assert daemon.engine.waits_for(start.id) == ""
        await daemon.engine.cancel(start.id, "root")
        done = await daemon.engine.wait(stop.id)
        assert done is not None
        assert done.state is OperationState.DONE, done
        assert daemon.engine.waits_for(stop.id) == ""


async def test_nothing_is_changed_while_the_batch_system_is_away(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, text(nodes=3))
    async with world.living(Life()) as daemon:
        await ended(daemon, await daemon.people.deploy("root"))
        world.queue.unavailable = True
        away = r"does not answer; nothing was changed; try again when it does: .* not to answer"
        larger = parse(text(nodes=3, min=1), "sim.yaml")
        with pytest.raises(Unavailable, match=away):
            await apply(world, daemon, larger)
        with pytest.raises(Unavailable, match=away):
            await daemon.people.foresee(larger)
        changes, plans = await daemon.people.foresee(daemon.parts.wanted)
        assert not changes.lines, "what is so already needs no answer"
        assert not plans
        with pytest.raises(Unavailable, match=away):
            await daemon.people.deploy("root")
        assert not daemon.parts.wanted.always_up
        assert world.cloud.calls["create"] == 0
        world.queue.unavailable = False
        (done,) = await ended(daemon, await apply(world, daemon, larger))
        assert done.state is OperationState.DONE, done
        assert world.up == {"c1"}
