"""A node that does not come up says what keeps it, and what to do, while it still tries."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.api import starting
from springtide.joining import NotAdmitted
from springtide.model import NodeState, Phase
from springtide.steps.bootlogs import read_kept
from springtide.story.telling import Told
from tests.unit.cli_world import SPEC, served
from tests.unit.join_world import PEER, JoinWorld, join_world

FAILED = "/data is not mounted from 10.0.0.1:/data: mount.nfs4: No such device"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[JoinWorld]:
    async with join_world(tmp_path) as made:
        yield made


async def hindered(world: JoinWorld) -> Told | None:
    node, store = world.parts.record.nodes["b1"], world.parts.record.store
    return await starting.hindered(world.daemon, node, await store.events(node="b1"))


async def test_the_phase_that_failed_last_is_told_until_it_has_succeeded(world: JoinWorld) -> None:
    asked, _ = await world.joined()
    assert await hindered(world) is None
    failed = Phase("b1", asked.generation, "mounts", world.now, 30.0, f"failed: {FAILED}")
    await world.joining.report(replace(asked, phases=(failed,)), PEER)
    told = await hindered(world)
    assert told is not None
    assert told.now == f"mounts has failed so far: {FAILED}"
    assert told.do == "mend that; `tide timeline b1` shows how far it came"
    done = replace(failed, at=world.now + 10, detail="")
    await world.joining.report(replace(asked, phases=(done,)), PEER)
    assert await hindered(world) is None


async def test_what_failed_in_a_boot_before_is_not_told_of_the_next(world: JoinWorld) -> None:
    asked, _ = await world.joined()
    failed = Phase("b1", asked.generation, "mounts", world.now, 30.0, FAILED)
    await world.joining.report(replace(asked, phases=(failed,)), PEER)
    await world.moved("b1", NodeState.BOOTING, NodeState.JOINING)
    world.now += 100
    await world.parts.record.note("reboot requested", nodes={"b1": ""})
    assert await hindered(world) is None


async def test_a_node_that_has_given_up_is_not_said_to_come_soon(world: JoinWorld) -> None:
    asked, _ = await world.joined()
    await world.joining.report(replace(asked, failed="health check failed: hot", final=True), PEER)
    told = await hindered(world)
    assert told is not None
    assert told.now == "its boot has failed for good: health check failed: hot"


async def test_what_the_control_host_lacks_is_told_of_the_node_and_kept_as_its_cause(
    world: JoinWorld,
) -> None:
    asked = await world.invited()
    away = world.layout.munge_key.rename(world.layout.munge_key.with_name("away"))
    for _ in range(2):
        with pytest.raises(NotAdmitted):
            await world.joining.join(asked, PEER)
    told = await hindered(world)
    assert told is not None
    assert "the control host lacks something: " in told.now
    assert "munge.key: No such file" in told.now
    assert [one.node for one in await world.events("cannot join")] == ["b1"]
    kept = read_kept(world.layout.boots, "b1", None)
    assert kept is not None
    assert "munge.key: No such file" in kept.text
    away.rename(world.layout.munge_key)
    await world.joining.join(asked, PEER)
    assert await hindered(world) is None
    assert read_kept(world.layout.boots, "b1", None) is None


async def test_a_join_port_that_is_closed_is_told_of_nodes_that_wait_for_it(
    world: JoinWorld,
) -> None:
    await world.requested()
    world.joining.closed = "all addresses, port 6821: Address already in use; stop it"
    told = await hindered(world)
    assert told is not None
    assert told.now.startswith("it cannot join, as no node can: all addresses, port 6821: ")


def test_a_group_whose_image_was_never_built_names_the_command_that_builds_it() -> None:
    with served(SPEC.replace('"c[1-4]"}', '"c[1-4]", image: hard}')) as world:
        story = json.loads(world.run("why", "c1", "--json").out)
    assert story["do"].startswith("`tide image build hard` makes the image that is lacking; ")
