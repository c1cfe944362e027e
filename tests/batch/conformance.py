"""What every batch system that is read must do, as tests. Its own module subclasses `Conformance`
and gives a fixture `world`; time is the event loop's, so a virtual clock will do. Names of classes
are those of the table: TestFakeQueue, TestTorque, TestOpenPbs, TestGridEngine, TestPolledSlurm.

    class TestTorque(Conformance):
        @pytest.fixture
        async def world(self): ...
            yield World(queue=…, members=…, …)
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from springtide.ports import Chunk, Health, JobState, Member, Unavailable
from tests.batch.conformance_readings import Readings
from tests.batch.conformance_refusals import Refusals
from tests.batch.world import (
    REASON,
    Ask,
    World,
    cloud,
    health,
    heard,
    job,
    jobs,
    node,
    offered,
    refused,
    running,
    sketch,
    started,
    stays,
    until,
    up,
)


class Conformance(Readings, Refusals):
    """The contract of `ports.Queue`."""

    # --- nodes come ------------------------------------------------------------------------------

    async def test_preparing_twice_changes_nothing(self, world: World) -> None:
        await world.queue.prepare(world.members)
        before = sketch(await world.queue.read())
        assert await world.queue.prepare(world.members) == ""
        assert sketch(await world.queue.read()) == before

    async def test_preparing_leaves_nodes_that_serve_alone(self, world: World) -> None:
        (member,) = await up(world)
        one = await running(world)
        await world.queue.prepare(world.members)
        seen = await node(world, member.name)
        assert (seen.health, seen.drained, seen.jobs) == (Health.UP, False, (one.id,))

    @pytest.mark.accepts("N8")
    async def test_a_node_that_is_heard_from_takes_jobs_at_once(self, world: World) -> None:
        await world.queue.prepare(world.members)
        member = world.members[0]
        id = await world.submit(Ask(cloud(world)))
        await world.queue.join([member])
        assert (await node(world, member.name)).health is Health.JOINING
        await stays(world, lambda seen: jobs(seen, id)[0].state is JobState.WAITING)
        await world.node_boots(member.name)
        await heard(world, member.name)
        reading = await until(world, lambda seen: bool(jobs(seen, id)[0].nodes))
        assert jobs(reading, id)[0].nodes == (member.name,)

    async def test_a_node_that_boots_before_it_joins_is_heard_from(self, world: World) -> None:
        await world.queue.prepare(world.members)
        await world.node_boots(world.members[0].name)
        await world.queue.join(world.members[:1])
        await heard(world, world.members[0].name)

    async def test_joining_twice_is_fine(self, world: World) -> None:
        await world.queue.prepare(world.members)
        await world.queue.join(world.members[:2])
        await world.queue.join(world.members[:2])
        await up(world, 2, prepared=True)
        await running(world)

    async def test_nodes_join_without_having_been_prepared(self, world: World) -> None:
        await world.queue.prepare(world.members[:1])
        await world.queue.join([world.members[1]])
        await world.node_boots(world.members[1].name)
        await heard(world, world.members[1].name)

    async def test_a_node_made_anew_is_up_only_when_it_is_heard_from_again(
        self, world: World
    ) -> None:
        (member,) = await up(world)
        await world.node_dies(member.name)
        await _left(world, member)
        await world.queue.join([member])
        await stays(world, lambda seen: health(seen, member.name) is Health.JOINING)
        await world.node_boots(member.name)
        await heard(world, member.name)

    async def test_a_node_that_joins_anew_without_having_left_is_up_only_when_heard_from_again(
        self, world: World
    ) -> None:
        (member,) = await up(world)
        await world.node_dies(member.name)
        await world.queue.join([member])
        await stays(world, lambda seen: health(seen, member.name) is Health.JOINING)
        await world.node_boots(member.name)
        await heard(world, member.name)

    async def test_a_busy_node_that_is_to_join_again_keeps_its_jobs(self, world: World) -> None:
        """rule 2"""
        first, second = await up(world, 2)
        one = await running(world)
        with suppress(Unavailable):
            await world.queue.join([first, second])
        await stays(world, lambda seen: jobs(seen, one.id)[0].nodes == one.nodes)
        assert (await node(world, one.nodes[0])).jobs == (one.id,)
        assert not any([(await node(world, name)).drained for name in (first.name, second.name)])

    async def test_a_node_that_dies_is_down(self, world: World) -> None:
        silence_s = offered(world.silence_s, "it takes too long to know")
        (member,) = await up(world)
        await world.node_dies(member.name)
        reading = await until(
            world, lambda seen: health(seen, member.name) is Health.DOWN, limit_s=silence_s
        )
        assert not reading.nodes[member.name].drained

    # --- drains ----------------------------------------------------------------------------------

    async def test_a_drained_node_keeps_its_jobs_and_takes_no_new(self, world: World) -> None:
        (member,) = await up(world)
        one = await running(world)
        await world.queue.drain([member.name], REASON)
        other = await world.submit(Ask(cloud(world)))
        await stays(world, lambda seen: jobs(seen, other)[0].state is JobState.WAITING)
        seen = await node(world, member.name)
        assert (seen.health, seen.drained, seen.jobs) == (Health.UP, True, (one.id,))
        await world.queue.undrain([member.name])
        await world.queue.wake()
        assert (await started(world, other)).nodes == (member.name,)
        assert not (await node(world, member.name)).drained

    async def test_drains_have_reasons(self, world: World) -> None:
        offered(world.keeps_reasons or None, "it keeps no reasons")
        (member,) = await up(world)
        await world.queue.drain([member.name], REASON)
        assert (await node(world, member.name)).reason == REASON
        await world.queue.drain([member.name], "springtide: another")
        assert (await node(world, member.name)).reason == "springtide: another"

    async def test_draining_and_undraining_twice_is_fine(self, world: World) -> None:
        first, second = await up(world, 2)
        for _ in range(2):
            await world.queue.drain([first.name, second.name], REASON)
        assert (await node(world, second.name)).drained
        for _ in range(2):
            await world.queue.undrain([first.name])
        assert not (await node(world, first.name)).drained
        assert (await node(world, second.name)).drained

    async def test_the_drain_of_a_node_that_was_not_heard_from_holds(self, world: World) -> None:
        await world.queue.prepare(world.members)
        member = world.members[0]
        await world.queue.join([member])
        await world.queue.drain([member.name], REASON)
        id = await world.submit(Ask(cloud(world)))
        await world.node_boots(member.name)
        await until(world, lambda seen: health(seen, member.name) is Health.UP)
        await stays(world, lambda seen: jobs(seen, id)[0].state is JobState.WAITING)
        assert (await node(world, member.name)).drained
        await world.queue.undrain([member.name])
        await world.queue.wake()
        assert (await started(world, id)).nodes == (member.name,)

    async def test_the_drain_of_a_person_holds_on_a_node_that_joins(self, world: World) -> None:
        await _drained_while_it_joins(world, world.drain_by_hand)

    async def test_the_drain_of_a_person_without_a_word_holds_on_a_node_that_joins(
        self, world: World
    ) -> None:
        await _drained_while_it_joins(
            world, offered(world.drain_silently, "it wants a reason for a drain")
        )

    async def test_the_drain_of_a_person_is_seen_on_a_node_that_is_off(self, world: World) -> None:
        await world.queue.prepare(world.members)
        name = world.members[0].name
        await world.queue.join(world.members[:1])
        await _left(world, world.members[0])
        offered(name in (await world.queue.read()).nodes or None, "it knows no nodes that are off")
        await world.drain_by_hand(name)
        seen = await node(world, name)
        assert (seen.health, seen.drained) == (Health.ABSENT, True)
        assert not seen.reason.startswith("springtide")
        if world.keeps_reasons:
            assert "by hand" in seen.reason

    async def test_the_drain_of_a_person_is_seen(self, world: World) -> None:
        (member,) = await up(world)
        await world.drain_by_hand(member.name)
        seen = await node(world, member.name)
        assert (seen.health, seen.drained) == (Health.UP, True)
        assert not seen.reason.startswith("springtide")
        if world.keeps_reasons:
            assert "by hand" in seen.reason

    async def test_the_drain_of_a_person_holds_while_we_prepare(self, world: World) -> None:
        (member,) = await up(world)
        await world.drain_by_hand(member.name)
        await world.queue.prepare(world.members)
        assert (await node(world, member.name)).drained

    # --- nodes go --------------------------------------------------------------------------------

    async def test_an_idle_drained_node_is_forgotten(self, world: World) -> None:
        (member,) = await up(world)
        await _left(world, member)
        seen = await node(world, member.name)
        assert (seen.health, seen.drained, seen.jobs) == (Health.ABSENT, False, ())

    async def test_jobs_are_accepted_after_all_nodes_have_left(self, world: World) -> None:
        """rule 3"""
        (member,) = await up(world)
        await _left(world, member)
        id = await world.submit(Ask(cloud(world)))
        assert (await job(world, id)).state is JobState.WAITING

    async def test_a_node_that_has_left_takes_no_jobs_though_its_machine_runs(
        self, world: World
    ) -> None:
        (member,) = await up(world)
        await _left(world, member)
        id = await world.submit(Ask(cloud(world)))
        await stays(world, lambda seen: jobs(seen, id)[0].state is JobState.WAITING)
        assert (await node(world, member.name)).health is Health.ABSENT

    async def test_a_busy_node_stays_and_its_jobs_go_on(self, world: World) -> None:
        """rule 2"""
        (member,) = await up(world)
        one = await running(world)
        await world.queue.drain([member.name], REASON)
        stay = await world.queue.leave([member.name])
        assert list(stay) == [member.name]
        assert stay[member.name]
        assert (await job(world, one.id)).nodes == one.nodes
        seen = await node(world, member.name)
        assert (seen.health, seen.drained, seen.jobs) == (Health.UP, True, (one.id,))
        await world.end(one.id)
        await until(world, lambda seen: not seen.nodes[member.name].jobs)
        assert await world.queue.leave([member.name]) == {}
        assert (await node(world, member.name)).health is Health.ABSENT

    async def test_one_busy_node_does_not_keep_the_others(self, world: World) -> None:
        """rule 2"""
        members = await up(world, 2)
        one = await running(world, Chunk(cores=members[0].cores))
        names = [member.name for member in members]
        await world.queue.drain(names, REASON)
        assert list(await world.queue.leave(names)) == list(one.nodes)
        reading = await world.queue.read()
        gone = [name for name in names if health(reading, name) is Health.ABSENT]
        assert gone == [name for name in names if name not in one.nodes]

    async def test_a_node_that_died_is_forgotten(self, world: World) -> None:
        (member,) = await up(world)
        await world.node_dies(member.name)
        await _left(world, member)
        assert (await node(world, member.name)).health is Health.ABSENT

    async def test_a_node_that_was_never_heard_from_is_forgotten(self, world: World) -> None:
        await world.queue.prepare(world.members)
        await world.queue.join(world.members[:1])
        await _left(world, world.members[0])
        assert (await node(world, world.members[0].name)).health is Health.ABSENT

    async def test_leaving_twice_is_fine(self, world: World) -> None:
        (member,) = await up(world)
        await _left(world, member)
        assert await world.queue.leave([member.name]) == {}

    async def test_leaving_without_having_been_there_is_fine(self, world: World) -> None:
        await world.queue.prepare(world.members[:1])
        assert await world.queue.leave([world.members[1].name, "never-was"]) == {}

    # --- jobs ------------------------------------------------------------------------------------

    async def test_a_requeued_job_waits_and_runs_elsewhere(self, world: World) -> None:
        members = await up(world, 2)
        one = await running(world)
        (name,) = one.nodes
        await world.queue.drain([name], REASON)
        await world.node_dies(name)
        await world.queue.requeue([one.id])
        await world.queue.wake()
        other = next(member.name for member in members if member.name != name)
        await until(world, lambda seen: jobs(seen, one.id)[0].nodes == (other,))

    async def test_requeueing_what_is_over_is_fine(self, world: World) -> None:
        await up(world)
        one = await running(world)
        await world.end(one.id)
        await until(world, lambda seen: not jobs(seen, one.id))
        await world.queue.requeue([one.id])
        await world.queue.tell([one.id], "hello")
        assert not jobs(await world.queue.read(), one.id)

    async def test_owners_are_told(self, world: World) -> None:
        told = offered(world.told, "it has no place for words to owners")
        await world.queue.prepare(world.members)
        ids = [await world.submit(Ask(cloud(world))) for _ in range(2)]
        await world.queue.tell(ids, "springtide: it never fits")
        assert ["it never fits" in await told(id) for id in ids] == [True, True]

    async def test_it_can_be_woken_at_any_time(self, world: World) -> None:
        await world.queue.wake()
        (member,) = await up(world)
        one = await running(world)
        for _ in range(2):
            await world.queue.wake()
        seen = await node(world, member.name)
        assert (seen.health, seen.drained, seen.jobs) == (Health.UP, False, (one.id,))

    # --- the premises, and the end ---------------------------------------------------------------

    async def test_nodes_of_the_premises_are_shown_and_never_touched(self, world: World) -> None:
        name = offered(world.premises, "it has no other nodes")
        before = await node(world, name)
        assert before.health is Health.UP
        (member,) = await up(world)
        await _left(world, member)
        await world.queue.dismantle([one.name for one in world.members])
        after = await node(world, name)
        assert (after.health, after.drained, after.jobs) == (Health.UP, before.drained, ())

    async def test_jobs_of_the_premises_run_there_and_not_on_our_nodes(self, world: World) -> None:
        name = offered(world.premises, "it has no other nodes")
        (member,) = await up(world)
        id = await world.submit(Ask(offered(world.elsewhere, "it has but one queue")))
        await world.queue.wake()
        assert (await started(world, id)).nodes == (name,)
        assert (await node(world, name)).jobs == (id,)
        assert (await node(world, member.name)).jobs == ()

    async def test_dismantling_leaves_nothing(self, world: World) -> None:
        before = set((await world.queue.read()).nodes)
        (member,) = await up(world, 1)
        await _left(world, member)
        names = [one.name for one in world.members]
        for _ in range(2):
            await world.queue.dismantle(names)
        reading = await world.queue.read()
        assert {health(reading, name) for name in names} == {Health.ABSENT}
        if not world.remain:
            assert set(reading.nodes) == before

    async def test_busy_nodes_are_not_dismantled(self, world: World) -> None:
        """rule 2"""
        await up(world)
        one = await running(world)
        await refused(world.queue.dismantle([member.name for member in world.members]))
        await stays(world, lambda seen: jobs(seen, one.id)[0].nodes == one.nodes)
        assert (await node(world, one.nodes[0])).jobs == (one.id,)

    async def test_it_can_be_prepared_again_after_dismantling(self, world: World) -> None:
        await world.queue.prepare(world.members)
        await world.queue.dismantle([one.name for one in world.members])
        await up(world)
        await running(world)

    def test_a_node_is_started_with_a_command_that_stays(self, world: World) -> None:
        entry = world.queue.entry(world.members[0].name)
        assert all(entry.command), "a program, and no word of it empty"
        assert entry.command, "there is one"
        assert entry == world.queue.entry(world.members[0].name), "whenever it is asked"
        assert all(path.is_absolute() for path in (*entry.files, *entry.directories))


async def _drained_while_it_joins(world: World, drain: Callable[[str], Awaitable[object]]) -> None:
    await world.queue.prepare(world.members)
    member = world.members[0]
    await world.queue.join([member])
    await _left(world, member)  # one that is new may take no changes yet
    await world.queue.join([member])
    await drain(member.name)
    id = await world.submit(Ask(cloud(world)))
    await world.node_boots(member.name)
    await heard(world, member.name)
    await stays(world, lambda seen: jobs(seen, id)[0].state is JobState.WAITING)
    seen = await node(world, member.name)
    assert (seen.health, seen.drained) == (Health.UP, True)
    assert not seen.reason.startswith("springtide")


async def _left(world: World, member: Member) -> None:
    """Drained, and then gone, whether or not its machine runs."""
    await world.queue.drain([member.name], REASON)
    assert await world.queue.leave([member.name]) == {}
