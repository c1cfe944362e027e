"""Builds on a fake cloud, in virtual time: kept from repair, and cut off without remains."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.batch.fake import Timing
from springtide.configure.anonymise import done
from springtide.configure.building import BUILT
from springtide.daemon import Daemon
from springtide.engine import Refused
from springtide.model import MadeImage, Making, NodeState
from springtide.ports import CloudImage, Instance, InstanceState, StoreError
from tests.sim.test_engine import states, until
from tests.sim.world import LIFE, Life, World, first

pytestmark = [pytest.mark.looptime, pytest.mark.usefixtures("few_looks_into_the_spool")]

TEXT = """
cluster: sim
batch: {kind: fake}
provider: {kind: fake}
images:
  base: {id: base-1}
  soft: {build: {base: base}}
flavors: {small: {cpus: 1, memory: 1G}, large: {cpus: 2, memory: 2G}}
groups: {general: {nodes: "c[1-3]", image: soft, flavors: [small, large]}}
timing: {start: 120s, stop: 60s, lock: 10m, gather: 20ms, reconcile: 60s, grace: 60s}
"""
UNMADE = """
cluster: sim
batch: {kind: fake}
provider: {kind: terraform, module: /srv/module, resource: aws_instance.node}
flavors: {small: {cpus: 1, memory: 1G}}
groups: {general: {nodes: "c[1-3]", flavors: [small]}}
timing: {start: 120s, stop: 60s, lock: 10m, gather: 20ms, reconcile: 60s, grace: 60s}
"""
BUILDER = "tide-build-soft-1-x86-64"


def world_of(path: Path) -> World:
    return World(path, text=TEXT, timing=Timing(latency_s=0.01, join_s=1, idle_s=3600))


def alive(world: World) -> list[str]:
    return [one.node for one in world.cloud.alive()]


async def test_a_builder_is_left_alone_for_as_long_as_it_works(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await daemon.builds.build("soft", "ann")
        await asyncio.sleep(3600)
        assert alive(world) == [BUILDER]
        world.cloud.said[BUILDER] = f"{BUILT}\n"
        await until(lambda: daemon.builds.made[0].state is Making.READY, 100)
        await until(lambda: not alive(world), 100)
        job = world.batch.submit(1, 10)
        await until(lambda: job.state == "COMPLETED", 300)
        assert {node.image for node in daemon.parts.record.nodes.values()} == {None, "soft@1"}


async def test_a_build_goes_where_there_is_room(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.cloud.capacity = {("zone-1", "small"): 0}
    async with world.living(Life()) as daemon:
        (image,) = await daemon.builds.build("soft", "ann")
        world.cloud.said[BUILDER] = f"{BUILT}\n"
        await until(lambda: daemon.builds.made[0].state is Making.READY, 100)
        assert image.made_from == "base"
        assert daemon.parts.wanted_image("general") == "soft@1"


async def test_a_build_that_finds_no_room_says_so(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.cloud.capacity = {("zone-1", "small"): 0, ("zone-1", "large"): 0}
    async with world.living(Life()) as daemon:
        await daemon.builds.build("soft", "ann")
        await until(lambda: daemon.builds.made[0].state is Making.FAILED, 4000)
        assert daemon.builds.made[0].detail
        assert alive(world) == []


def failing_writes(monkeypatch: pytest.MonkeyPatch, daemon: Daemon, name: str) -> None:
    async def full(*_: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(daemon.parts.record.store, name, full)


async def test_a_record_that_fills_while_an_image_is_asked_for_leaves_none_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await in_service(world, daemon)
        with monkeypatch.context() as broken:
            failing_writes(broken, daemon, "append")
            with pytest.raises(StoreError):
                await daemon.builds.build("soft", "ann")
            with pytest.raises(StoreError):
                await daemon.builds.snapshot("c1", "taken", "ann")
            await asyncio.sleep(1)
        ended = {one.name: (one.state, one.detail) for one in daemon.builds.made[1:]}
        assert ended == dict.fromkeys(["soft@2", "taken@1"], (Making.FAILED, "disk full"))
        (image,) = await daemon.builds.build("soft", "ann")
        assert image.name == "soft@3"


async def test_the_end_of_a_build_is_kept_as_soon_as_the_record_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await daemon.builds.build("soft", "ann")
        with monkeypatch.context() as broken:
            failing_writes(broken, daemon, "keep_image")
            world.cloud.said[BUILDER] = f"{BUILT}\n"
            await until(lambda: bool(world.cloud.snapshots) and not alive(world), 100)
            await asyncio.sleep(60)
            assert daemon.builds.made[0].state is Making.BUILDING
        await until(lambda: daemon.builds.made[0].state is Making.READY, 30)


async def building(world: World, life: Life) -> None:
    """A build, until it or the daemon is at its end."""
    async with world.living(life) as daemon:
        token = LIFE.set(life)
        asked = asyncio.get_running_loop().create_task(daemon.builds.build("soft", "ann"))
        LIFE.reset(token)
        await first(life.over.wait(), _ended(daemon))
        asked.cancel()


async def _ended(daemon: Daemon) -> None:
    while not any(one.state is Making.READY for one in daemon.builds.made):
        await asyncio.sleep(1)


async def recovered(world: World) -> None:
    """What the next daemon makes of it: whole images are offered, and nothing else is there."""
    async with world.living(Life()) as daemon:
        made = daemon.builds
        await until(lambda: all(one.state is not Making.BUILDING for one in made.made), 600)
        await until(lambda: not alive(world), 600)
        ready = {one.id for one in made.made if one.state is Making.READY}
        assert set(world.cloud.snapshots) == ready


@pytest.mark.accepts("C21")
async def test_a_daemon_killed_at_any_point_of_a_build_leaves_no_builder_and_no_half_image(
    tmp_path: Path,
) -> None:
    whole = world_of(tmp_path / "whole")
    whole.cloud.said[BUILDER] = f"{BUILT}\n"
    life = Life()
    await building(whole, life)
    assert life.passed > 10
    for dies_at in range(1, life.passed):
        world = world_of(tmp_path / str(dies_at))
        world.in_memory = True
        world.cloud.said[BUILDER] = f"{BUILT}\n"
        await building(world, Life(dies_at))
        await recovered(world)


async def made_one(world: World, daemon: Daemon) -> None:
    await daemon.builds.build("soft", "ann")
    world.cloud.said[BUILDER] = f"{BUILT}\n"
    await until(lambda: daemon.builds.made[0].state is Making.READY, 100)


async def in_service(world: World, daemon: Daemon) -> None:
    """An image, and c1 that runs it."""
    await made_one(world, daemon)
    await daemon.people.resume(["c1"], "ann")
    await until(lambda: states(world)["c1"] is NodeState.READY, 300)


OFF_S = 40.0


def obeys(world: World, says_s: float = 0.0) -> None:
    """From now on c1 forgets who it was if a reboot gives it the script, and switches itself off.

    It says so after all that it had said before.
    """

    def say(label: str) -> None:
        world.cloud.said["c1"] = f"{world.cloud.said.get('c1', '')}{done(label)}\n"

    def runs(instance: Instance) -> None:
        label = re.search(r"^label=(\S+)$", world.cloud.user_data(instance.id), re.MULTILINE)
        if instance.node == "c1" and label:
            loop = asyncio.get_running_loop()
            loop.call_later(says_s, say, label[1])
            loop.call_later(OFF_S, world.cloud.die, instance.id, InstanceState.STOPPED)

    world.cloud.on_running.append(runs)


async def events(daemon: Daemon) -> list[str]:
    return [one.what for one in await daemon.parts.record.store.events()]


async def test_numbers_go_on_past_what_an_earlier_cluster_left_or_was_deleted(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path)
    world.cloud.snapshots["old"] = CloudImage("old", "soft-4-x86-64", "sim")
    async with world.living(Life()) as daemon:
        ((image, _),) = await daemon.builds.plan_build("soft")
        assert image.name == "soft@5"
        del world.cloud.snapshots["old"]
        await made_one(world, daemon)
        done = await daemon.builds.clean("soft@1", None, "ann")
        assert [one.name for one in done.gone] == ["soft@1"]
        ((image, _),) = await daemon.builds.plan_build("soft")
        assert image.name == "soft@2"


async def test_a_node_is_left_in_service_where_no_images_are_made(tmp_path: Path) -> None:
    world = World(tmp_path, text=UNMADE, timing=Timing(latency_s=0.01, join_s=1, idle_s=3600))
    async with world.living(Life()) as daemon:
        await daemon.people.resume(["c1"], "ann")
        await until(lambda: states(world)["c1"] is NodeState.READY, 300)
        with pytest.raises(Refused, match="terraform makes none"):
            await daemon.builds.snapshot("c1", "mine", "ann")


async def test_one_image_of_a_node_at_a_time(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await in_service(world, daemon)
        await daemon.builds.snapshot("c1", "first", "ann")
        with pytest.raises(Refused, match="first@1 is being made of c1"):
            await daemon.builds.snapshot("c1", "second", "ann")


async def test_a_build_that_breaks_unexpectedly_is_failed_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        monkeypatch.setattr("springtide.workshop.render_build", None)
        await daemon.builds.build("soft", "ann")
        await until(lambda: daemon.builds.made[0].state is Making.FAILED, 100)
        assert "unexpected" in daemon.builds.made[0].detail
        assert "NoneType" in daemon.builds.made[0].detail


async def test_an_image_that_is_being_deleted_is_given_to_nobody(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await made_one(world, daemon)
        world.cloud.faults.before_s = 60
        going = asyncio.create_task(daemon.builds.clean("soft@1", None, "ann"))
        await asyncio.sleep(30)
        assert world.cloud.snapshots
        assert daemon.parts.wanted_image("general") == "soft"
        await going
        assert not world.cloud.snapshots


async def test_what_was_made_last_goes_first_whatever_its_family(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        for family, made_at in (("lower", 1.0), ("above", 2.0)):
            one = MadeImage(family, 1, "x86_64", "general", "fake", "c1", created_at=made_at)
            kept = replace(one, state=Making.READY)
            await daemon.parts.gallery.keep(daemon.parts.record.store, kept)
        done = await daemon.builds.clean(None, 0, "ann")
        assert [one.name for one in done.gone] == ["above@1", "lower@1"]


async def test_an_image_that_its_provider_keeps_can_be_used_again(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await made_one(world, daemon)
        world.cloud.faults.denied = True
        done = await daemon.builds.clean("soft@1", None, "ann")
        world.cloud.faults.denied = False
        assert "revoked" in done.kept["soft@1"]
        assert daemon.parts.wanted_image("general") == "soft@1"


async def test_an_image_that_a_list_does_not_have_yet_is_not_gone(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.cloud.faults.stale_s, world.cloud.faults.image_s = 20, 300
    async with world.living(Life()) as daemon:
        await daemon.builds.build("soft", "ann")
        world.cloud.said[BUILDER] = f"{BUILT}\n"
        await until(lambda: daemon.builds.made[0].state is not Making.BUILDING, 1000)
        assert (daemon.builds.made[0].state, daemon.builds.made[0].detail) == (Making.READY, "")


async def test_an_image_that_somebody_deletes_before_it_is_ready_is_told(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.cloud.faults.image_s = 3600
    async with world.living(Life()) as daemon:
        await daemon.builds.build("soft", "ann")
        world.cloud.said[BUILDER] = f"{BUILT}\n"
        await until(lambda: bool(world.cloud.snapshots), 100)
        world.cloud.snapshots.clear()
        await until(lambda: daemon.builds.made[0].state is Making.FAILED, 300)
        assert daemon.builds.made[0].detail == "its image is gone before it was ready"


async def test_an_image_that_its_cloud_could_not_make_is_not_waited_for(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.cloud.faults.image_s, world.cloud.faults.failed_images = 60, True
    async with world.living(Life()) as daemon:
        await daemon.builds.build("soft", "ann")
        world.cloud.said[BUILDER] = f"{BUILT}\n"
        await until(lambda: daemon.builds.made[0].state is Making.FAILED, 600)
        assert "the cloud could not make the image" in daemon.builds.made[0].detail
        assert not world.cloud.snapshots


async def test_a_daemon_that_stops_does_not_wait_for_a_builder_to_be_gone(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.cloud.faults.delete_s = 500
    async with world.living(Life()) as daemon:
        await daemon.builds.build("soft", "ann")
        await until(lambda: alive(world) == [BUILDER], 100)
        await asyncio.wait_for(daemon.builds.stop(), 100)
        assert [one.state for one in world.cloud.alive()] == [InstanceState.DELETING]


async def test_a_builder_that_a_list_does_not_have_yet_is_not_gone(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.cloud.faults.stale_s = 20
    async with world.living(Life()) as daemon:
        await made_one(world, daemon)
