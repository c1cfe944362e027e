"""Rebuilds by a provider that keeps the instance and makes its disk anew, on virtual time."""

from pathlib import Path

import pytest

from springtide.model import OperationState
from tests.sim.test_service import (
    _killed,
    _rebuild,
    apply,
    deployed,
    drained,
    ended,
    running,
    spec,
    until,
    world_of,
)
from tests.sim.world import Life, World

pytestmark = pytest.mark.looptime


def ids(world: World) -> dict[str, str]:
    return {one.node: one.id for one in world.cloud.alive()}


def placed(path: Path) -> World:
    world = world_of(path)
    world.in_place = True
    return world


@pytest.mark.parametrize("via", ["direct", "reboot"])
async def test_a_rebuild_in_place_keeps_ids_and_addresses_and_ends_no_job(
    tmp_path: Path, via: str
) -> None:
    world = placed(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        before = {one.node: (one.id, one.address) for one in world.cloud.alive()}
        job = world.batch.submit(1, 200)
        await until(lambda: job.state == "RUNNING")
        await apply(world, daemon, spec(image="two"))
        answer = await daemon.people.rebuild(daemon.spec.managed, "root", {"via": via})
        (done,) = await ended(daemon, answer)
        assert done.state is OperationState.DONE, done
        assert set(running(world).values()) == {"two"}
        assert {one.node: (one.id, one.address) for one in world.cloud.alive()} == before
        assert (job.state, job.requeues) == ("COMPLETED", 0)
        assert await drained(world) == set()
        assert {daemon.parts.record.nodes[n].rebuilds for n in before} == {1}
        assert world.cloud.calls["create"] == 1
        again = await daemon.people.rebuild(daemon.spec.managed, "root", {"via": via})
        assert again.operations == ()


@pytest.mark.accepts("A16")
async def test_another_image_in_the_file_alone_touches_no_instance(tmp_path: Path) -> None:
    world = placed(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        before = ids(world)
        await apply(world, daemon, spec(image="two"))
        await deployed(daemon)
        assert ids(world) == before
        assert set(running(world).values()) == {"one"}
        assert world.cloud.calls["rebuild"] == world.cloud.calls["reboot"] == 0


async def test_with_the_image_it_has_a_node_is_rebooted_and_not_rebuilt(tmp_path: Path) -> None:
    world = placed(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        answer = await daemon.people.rebuild(daemon.spec.managed, "root", {"force": True})
        (done,) = await ended(daemon, answer)
        assert done.state is OperationState.DONE, done
        assert (world.cloud.calls["rebuild"], world.cloud.calls["reboot"]) == (0, 1)


@pytest.mark.accepts("X1")
async def test_killed_at_any_point_a_rebuild_in_place_goes_on(tmp_path: Path) -> None:
    points = await _killed(placed(tmp_path / "whole"), _rebuild, None)
    for dies_at in range(1, points + 1, 17):
        world = placed(tmp_path / f"killed-{dies_at}")
        await _killed(world, _rebuild, dies_at)
        assert world.cloud.made == 3
