"""What the engine may rely on with every batch system, whether it asks for nodes or is read.

Test classes inherit it and give it a fixture `world`. What only batch systems that are read do is
in `conformance`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from springtide.ports import OURS, BatchNode, BatchSystem, Power, Unavailable
from tests.batch.batch_world import BatchWorld, asked, job, node, running, started, until, up

PERSON = "alice"
LOOK_S = 2.0
"""Schedulers have had their turn by then."""


class BatchConformance:
    """Each of them as a batch system does it."""

    # --- what it shows -----------------------------------------------------------------------

    async def test_its_version_is_told(self, world: BatchWorld) -> None:
        assert await world.batch.version()

    async def test_loading_it_again_changes_nothing(self, world: BatchWorld) -> None:
        await world.batch.reload(world.site)
        assert await world.batch.reload(world.site) == ""
        assert await world.batch.standing() == ""

    async def test_nodes_that_are_off_are_shown(self, world: BatchWorld) -> None:
        await world.batch.reload(world.site)
        seen = await world.batch.nodes()
        assert set(world.names) <= seen.keys()
        for one in (seen[name] for name in world.names):
            assert (one.power, one.registered, one.busy) == (Power.DOWN, False, False)
            assert (one.drained, one.owner, one.reason) == (False, None, "")

    async def test_nodes_that_it_does_not_know_are_left_out(self, world: BatchWorld) -> None:
        first = world.names[0]
        assert (await world.batch.nodes(["never-was", first])).keys() == {first}
        assert await world.batch.nodes([]) == {}

    async def test_an_empty_queue_is_empty_and_no_error(self, world: BatchWorld) -> None:
        assert list(await world.batch.jobs()) == []

    # --- nodes come, and have jobs -------------------------------------------------------------

    async def test_nodes_that_are_asked_for_are_up_when_they_are_heard_from(
        self, world: BatchWorld
    ) -> None:
        for name in await up(world, 2):
            seen = await node(world, name)
            assert (seen.power, seen.registered, seen.busy) == (Power.UP, True, False)
            assert seen.address == world.addresses[name]

    async def test_a_job_runs_on_a_node_that_is_up(self, world: BatchWorld) -> None:
        (name,) = await up(world)
        id, place = await running(world)
        assert place == name
        assert (await job(world, id)).node_count == 1
        assert (await node(world, name)).busy

    async def test_owners_of_several_jobs_are_told(self, world: BatchWorld) -> None:
        await world.batch.reload(world.site)
        ids = [await world.submit() for _ in range(2)]
        await world.batch.tell(",".join(ids), "it never fits")
        assert ["it never fits" in await world.told(id) for id in ids] == [True, True]

    # --- drains ------------------------------------------------------------------------------

    async def test_a_drain_says_why_and_whose_wish_it_is(self, world: BatchWorld) -> None:
        ours, persons = await up(world, 2)
        await world.batch.drain([ours], "rebuild")
        await world.batch.drain([persons], "bad fan", PERSON)
        assert await _wish(world, ours) == (True, OURS, "springtide: rebuild")
        assert await _wish(world, persons) == (True, PERSON, "bad fan")

    async def test_a_drained_node_keeps_its_job_and_takes_no_new(self, world: BatchWorld) -> None:
        await up(world)
        first, name = await running(world)
        await world.batch.drain([name], "rebuild")
        second = await world.submit()
        await asyncio.sleep(LOOK_S)
        assert (await job(world, first)).nodes == name
        assert (await job(world, second)).nodes != name

    async def test_what_is_drained_keeps_its_first_reason(self, world: BatchWorld) -> None:
        (name,) = await up(world)
        for reason in ("rebuild", "update"):
            await world.batch.drain([name], reason)
        assert await _wish(world, name) == (True, OURS, "springtide: rebuild")

    async def test_a_person_may_take_a_drain_of_ours_over_and_not_the_other_way(
        self, world: BatchWorld
    ) -> None:
        (name,) = await up(world)
        await world.batch.drain([name], "rebuild")
        await world.batch.drain([name], "bad fan", PERSON)
        await world.batch.drain([name], "update")
        assert await _wish(world, name) == (True, PERSON, "bad fan")

    async def test_a_drain_is_ended_by_its_owner_or_for_anybody(self, world: BatchWorld) -> None:
        ours, persons = await up(world, 2)
        await world.batch.drain([ours], "rebuild")
        await world.batch.drain([persons], "bad fan", PERSON)
        await world.batch.undrain([ours, persons])
        assert await _wish(world, ours) == (False, None, "")
        assert await _wish(world, persons) == (True, PERSON, "bad fan")
        await world.batch.undrain([ours, persons], None)
        assert await _wish(world, persons) == (False, None, "")

    async def test_a_node_that_is_undrained_takes_jobs(self, world: BatchWorld) -> None:
        (name,) = await up(world)
        await world.batch.drain(world.names, "rebuild")
        await world.batch.undrain([name])
        assert (await running(world))[1] == name

    async def test_the_drain_of_an_admin_is_not_ours_to_end(self, world: BatchWorld) -> None:
        (name,) = await up(world)
        await world.drain_by_hand(name)
        await world.batch.undrain([name])
        drained, owner, reason = await _wish(world, name)
        assert drained
        assert owner not in (None, OURS)
        assert reason == ("by hand" if world.keeps_reasons else "")

    async def test_a_node_that_is_drained_while_it_is_off_comes_drained(
        self, world: BatchWorld
    ) -> None:
        name = world.names[0]
        await world.batch.reload(world.site)
        await world.batch.drain([name], "bad fan", PERSON)
        await up(world)
        assert await _wish(world, name) == (True, PERSON, "bad fan")

    # --- nodes go, or do not come ----------------------------------------------------------------

    async def test_the_job_of_a_node_that_is_given_back_waits_again(
        self, world: BatchWorld
    ) -> None:
        await up(world)
        id, name = await running(world)
        await world.batch.give_back([name], "the provider is full")
        await until(world, name, lambda node: not node.busy and not node.registered)
        assert (await job(world, id)).state == "PENDING"

    async def test_a_node_that_was_given_back_may_be_asked_for_once_it_is_released(
        self, world: BatchWorld
    ) -> None:
        name = world.names[0]
        await world.batch.reload(world.site)
        await asked(world, name)
        await world.batch.give_back([name], "the provider is full")
        await until(world, name, _is_off)
        await world.batch.release([name])
        await until(world, name, lambda node: node.power is Power.DOWN)
        assert not (await node(world, name)).drained
        await up(world)

    async def test_a_node_that_is_given_back_stays_its_drainers(self, world: BatchWorld) -> None:
        (name,) = await up(world)
        await world.batch.drain([name], "bad fan", PERSON)
        await world.batch.give_back([name], "it does not answer")
        await until(world, name, _is_off)
        await world.batch.release([name])
        assert await _wish(world, name) == (True, PERSON, "bad fan")

    async def test_a_busy_node_that_is_to_leave_keeps_its_job_and_takes_no_new(
        self, world: BatchWorld
    ) -> None:
        await up(world)
        first, name = await running(world)
        await world.batch.power_down([name])
        second = await world.submit()
        await asyncio.sleep(LOOK_S)
        assert ((await job(world, first)).state, await started(world, first)) == ("RUNNING", name)
        assert (await job(world, second)).nodes != name

    async def test_a_node_that_starts_afresh_is_up_only_when_it_is_heard_from_again(
        self, world: BatchWorld
    ) -> None:
        (name,) = await up(world)
        await world.node_dies(name)
        await world.batch.expect([name])
        assert not (await node(world, name)).registered
        await world.node_boots(name)
        await until(world, name, lambda node: node.registered)

    async def test_a_node_that_failed_is_out_of_service(self, world: BatchWorld) -> None:
        (name,) = await up(world)
        await world.node_dies(name)
        await world.batch.fail([name], "it did not register")
        assert not (await node(world, name)).registered

    # --- nothing to do, and nobody who does it ---------------------------------------------------

    async def test_no_names_are_nothing_to_do(self, world: BatchWorld) -> None:
        """Nodes of other tests may be on their way still."""
        await world.batch.reload(world.site)
        before = await world.batch.nodes(world.names)
        await world.batch.set_addresses({})
        for change in _changes(world.batch, []):
            await change()
        assert await world.batch.nodes(world.names) == before

    async def test_while_it_is_away_nothing_is_answered_and_nothing_done(
        self, world: BatchWorld
    ) -> None:
        """Nor is anything taken for empty, from which something might be decided."""
        name, other = world.names[:2]
        await world.batch.reload(world.site)
        await world.batch.drain([other], "bad fan", PERSON)
        id = await world.submit()
        before = [await node(world, one) for one in (name, other)]
        await world.server_down()
        for ask in (world.batch.nodes, world.batch.jobs):
            with pytest.raises(Unavailable):
                await ask()
        for change in _changes(world.batch, [name, other]):
            with pytest.raises(Unavailable):
                await change()
        with pytest.raises(Unavailable):
            await world.batch.set_addresses(world.addresses)
        with pytest.raises(Unavailable):
            await world.batch.tell(id, "it never fits")
        await world.server_up()
        assert [await node(world, one) for one in (name, other)] == before
        assert "never fits" not in await world.told(id)


def _changes(batch: BatchSystem, names: Iterable[str]) -> list[Callable[[], Awaitable[object]]]:
    """All that can be done to nodes."""
    return [
        lambda: batch.power_up(names),
        lambda: batch.power_down(names),
        lambda: batch.give_back(names, "the provider is full"),
        lambda: batch.release(names),
        lambda: batch.drain(names, "rebuild"),
        lambda: batch.undrain(names, None),
        lambda: batch.expect(names),
        lambda: batch.fail(names, "it did not register"),
    ]


async def _wish(world: BatchWorld, name: str) -> tuple[bool, str | None, str]:
    """Whether it takes no jobs, by whose wish, and why."""
    seen = await node(world, name)
    return seen.drained, seen.owner, seen.reason


def _is_off(node: BatchNode) -> bool:
    return node.power in (Power.DOWN, Power.GOING_DOWN)
