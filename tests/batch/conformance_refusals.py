"""What a batch system is never asked to do, and what happens if it refuses."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from springtide.ports import Health, JobState, Member, Queue
from tests.batch.world import (
    REASON,
    Ask,
    World,
    cloud,
    job,
    node,
    offered,
    refused,
    running,
    sketch,
    up,
)

HOSTILE = (
    "a;touch pwned",
    "a b",
    "-all",
    "$(id)",
    "a\nb",
    "",
    "../a",
    "@pool",
    "*",
    "a,b",
    "x" * 300,
)
TEXTS = ('it\'s "odd"; $(touch pwned) `id` | & > x', "-d --all", "one\ntwo\t= three", "ü" * 400)

Act = Callable[[Queue, Member], Awaitable[object]]
ON_NODES: dict[str, Act] = {
    "prepare": lambda queue, member: queue.prepare([member]),
    "dismantle": lambda queue, member: queue.dismantle([member.name]),
    "join": lambda queue, member: queue.join([member]),
    "leave": lambda queue, member: queue.leave([member.name]),
    "drain": lambda queue, member: queue.drain([member.name], REASON),
    "undrain": lambda queue, member: queue.undrain([member.name]),
}


class Refusals:
    """Part of `Conformance`."""

    @pytest.mark.parametrize("act", list(ON_NODES))
    async def test_names_that_are_none_are_refused_before_any_command(
        self, world: World, act: str
    ) -> None:
        await world.queue.prepare(world.members)
        before = world.commands() if world.commands else 0
        for name in HOSTILE:
            said = await refused(ON_NODES[act](world.queue, replace(world.members[0], name=name)))
            assert len(said) < 500
        assert (world.commands() if world.commands else 0) == before

    async def test_jobs_that_are_none_are_refused_before_any_command(self, world: World) -> None:
        before = world.commands() if world.commands else 0
        for id in HOSTILE:
            await refused(world.queue.requeue([id]))
            await refused(world.queue.tell([id], "hello"))
        assert (world.commands() if world.commands else 0) == before

    async def test_reasons_are_words_and_nothing_else(self, world: World) -> None:
        first, second = await up(world, 2)
        for text in TEXTS:
            await world.queue.drain([first.name], text)
            assert (await node(world, first.name)).drained
            assert not (await node(world, second.name)).drained
            await world.queue.undrain([first.name])
            assert not (await node(world, first.name)).drained

    async def test_what_owners_are_told_is_words_and_nothing_else(self, world: World) -> None:
        await world.queue.prepare(world.members)
        id = await world.submit(Ask(cloud(world)))
        for text in TEXTS:
            await world.queue.tell([id], text)
            assert (await job(world, id)).state is JobState.WAITING

    @pytest.mark.parametrize("act", list(ON_NODES))
    async def test_without_rights_nothing_is_done_and_that_is_said(
        self, world: World, act: str
    ) -> None:
        """rule 7"""
        powerless = offered(world.powerless, "everybody has the same rights")
        if act == "prepare":
            offered(world.prepares or None, "it needs no preparation")
        member = world.members[0] if act == "prepare" else (await up(world))[0]
        if act == "undrain":
            await world.queue.drain([member.name], REASON)
        before = sketch(await world.queue.read())
        acts_on = world.members[1] if act in ("prepare", "join") else member
        await refused(ON_NODES[act](powerless(), acts_on))
        assert sketch(await world.queue.read()) == before

    async def test_without_rights_jobs_of_others_stay_as_they_are(self, world: World) -> None:
        """rule 7"""
        powerless = offered(world.powerless, "everybody has the same rights")
        await up(world)
        one = await running(world)
        await refused(powerless().requeue([one.id]))
        assert (await job(world, one.id)).nodes == one.nodes

    async def test_a_server_that_is_down_refuses_everything(self, world: World) -> None:
        (member,) = await up(world)
        await world.server_down()
        for act in ("dismantle", "join", "leave", "drain", "undrain"):
            await refused(ON_NODES[act](world.queue, member))
        await world.server_up()
        seen = await node(world, member.name)
        assert seen.health in (Health.UP, Health.DOWN), "rule 5: it may not be heard yet"
        assert not seen.drained

    async def test_no_names_are_nothing_to_do(self, world: World) -> None:
        await world.queue.prepare(world.members)
        before = sketch(await world.queue.read())
        await world.queue.join([])
        assert await world.queue.leave([]) == {}
        await world.queue.drain([], REASON)
        await world.queue.undrain([])
        await world.queue.requeue([])
        await world.queue.tell([], "hello")
        await world.queue.dismantle([])
        assert sketch(await world.queue.read()) == before
