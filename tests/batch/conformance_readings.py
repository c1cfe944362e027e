"""What is read of a batch system: all of it, or an error."""

from springtide.ports import Chunk, Health, JobState, Reading
from tests.batch.world import (
    REASON,
    Ask,
    World,
    cloud,
    cores,
    job,
    jobs,
    node,
    offered,
    read_while,
    refused,
    running,
    started,
    until,
    up,
)


class Readings:
    """Part of `Conformance`."""

    async def test_its_version_is_told(self, world: World) -> None:
        assert (await world.queue.version()).strip()

    async def test_commands_that_are_missing_are_named(self, world: World) -> None:
        lame = offered(world.commandless, "it needs no commands")()
        said = await refused(lame.version())
        assert any(program in said for program in lame.programs), said
        await refused(lame.read())

    async def test_an_empty_queue_is_empty_and_no_error(self, world: World) -> None:
        await world.queue.prepare(world.members)
        reading = await world.queue.read()
        assert list(reading.jobs) == []
        ours = [reading.nodes[m.name] for m in world.members if m.name in reading.nodes]
        assert {one.health for one in ours} <= {Health.ABSENT}
        assert [one for one in ours if one.drained or one.jobs] == []

    async def test_a_server_that_is_down_is_no_empty_queue(self, world: World) -> None:
        """rule 1"""
        await up(world)
        one = await running(world)
        await world.server_down()
        await refused(world.queue.read())
        await refused(world.queue.version())
        await world.server_up()
        reading = await until(world, lambda seen: bool(jobs(seen, one.id)))
        assert jobs(reading, one.id)[0].state is JobState.RUNNING

    async def test_an_answer_that_makes_no_sense_is_no_empty_queue(self, world: World) -> None:
        """rule 1"""
        spoil = offered(world.spoil, "it answers with no text")
        await up(world)
        one = await running(world)
        for text in ("", "no such thing\n", "<Data>", "{", "\0\0\0", "[]"):
            with spoil(text):
                await refused(world.queue.read())
        assert (await job(world, one.id)).state is JobState.RUNNING

    async def test_from_zero_a_job_is_accepted_and_is_demand(self, world: World) -> None:
        """rule 3"""
        await world.queue.prepare(world.members)
        id = await world.submit(Ask(cloud(world)))
        await world.queue.wake()
        reading = await until(world, lambda seen: bool(jobs(seen, id)))
        (one,) = jobs(reading, id)
        assert (one.state, one.tasks, cores(one), one.nodes) == (JobState.WAITING, 1, 1, ())
        assert one.queues == (cloud(world),)
        assert one.user

    async def test_waiting_held_dependent_and_running_are_told_apart(self, world: World) -> None:
        (member, *_) = await up(world)
        first = await running(world, Chunk(cores=member.cores))
        second = await world.submit(Ask(cloud(world)))
        held = await world.submit(Ask(cloud(world), held=True))
        after = await world.submit(Ask(cloud(world), after=first.id))
        await world.queue.wake()
        reading = await world.queue.read()
        states = {id: jobs(reading, id)[0].state for id in (first.id, second, held, after)}
        assert states == {
            first.id: JobState.RUNNING,
            second: JobState.WAITING,
            held: JobState.HELD,
            after: JobState.HELD,
        }
        assert jobs(reading, first.id)[0].nodes == (member.name,)
        assert reading.nodes[member.name].jobs == (first.id,)

    async def test_a_dependent_job_waits_when_that_has_ended(self, world: World) -> None:
        await up(world)
        first = await running(world)
        after = await world.submit(Ask(cloud(world), after=first.id))
        assert (await job(world, after)).state is JobState.HELD
        await world.end(first.id)
        await world.queue.wake()
        await started(world, after)

    async def test_tasks_of_an_array_are_counted(self, world: World) -> None:
        await world.queue.prepare(world.members)
        id = await world.submit(Ask(cloud(world), tasks=7))
        reading = await until(world, lambda seen: _tasks(seen, id, JobState.WAITING) == 7)
        assert {cores(one) for one in jobs(reading, id)} == {1}

    async def test_tasks_of_an_array_that_run_have_nodes(self, world: World) -> None:
        """Nodes and jobs are asked for one after the other, so both are waited for."""
        (member, *_) = await up(world)
        tasks = member.cores + 3
        id = await world.submit(Ask(cloud(world), tasks=tasks))
        await world.queue.wake()
        full = member.cores

        def is_full(seen: Reading) -> bool:
            running = _tasks(seen, id, JobState.RUNNING) == full
            return running and seen.nodes[member.name].cores_used == full

        reading = await until(world, is_full)
        assert _tasks(reading, id, JobState.WAITING) == 3
        run = [one for one in jobs(reading, id) if one.state is JobState.RUNNING]
        assert {one.nodes for one in run} == {(member.name,)}
        assert set(reading.nodes[member.name].jobs) == {one.id for one in run}

    async def test_a_node_that_has_room_may_have_jobs(self, world: World) -> None:
        """rule 4"""
        (member, *_) = await up(world)
        one = await running(world, Chunk(cores=member.cores - 1))
        seen = await node(world, member.name)
        assert (seen.health, seen.drained) == (Health.UP, False)
        assert (seen.jobs, seen.cores_used) == ((one.id,), member.cores - 1)

    async def test_a_job_that_starts_during_a_reading_counts_once(self, world: World) -> None:
        """Or a node would start for a job that has one; an array in every second gap."""
        offered(world.gap, "nothing happens during a reading")
        commands = offered(world.commands, "its commands cannot be counted")
        (member, *_) = await up(world)
        before = commands()
        await world.queue.read()
        for after in range(1, commands() - before):
            await _starts_during_a_reading(world, member.name, after, tasks=1 + after % 2)

    async def test_jobs_of_another_queue_are_told_from_ours(self, world: World) -> None:
        elsewhere = offered(world.elsewhere, "it has but one queue")
        await world.queue.prepare(world.members)
        ours = await world.submit(Ask(cloud(world)))
        other = await world.submit(Ask(elsewhere))
        reading = await until(world, lambda seen: bool(jobs(seen, ours) and jobs(seen, other)))
        assert jobs(reading, ours)[0].queues == (cloud(world),)
        assert jobs(reading, other)[0].queues == (elsewhere,)

    async def test_a_job_of_several_queues_names_them_all(self, world: World) -> None:
        offered(world.both_queues or None, "a job is in one queue")
        await world.queue.prepare(world.members)
        names = (cloud(world), offered(world.elsewhere, "it has but one queue"))
        id = await world.submit(Ask(",".join(names), held=True))
        assert set((await job(world, id)).queues) == set(names)

    async def test_what_jobs_need_is_told(self, world: World) -> None:
        await world.queue.prepare(world.members)
        size = world.members[0].cores
        one = await job(world, await world.submit(Ask(cloud(world), (Chunk(cores=size),))))
        assert (cores(one), sum(chunk.count for chunk in one.chunks if chunk.spread)) == (size, 1)

    async def test_jobs_of_several_nodes_say_how_many(self, world: World) -> None:
        offered(world.several_nodes or None, "jobs ask for cores, and not for nodes")
        await world.queue.prepare(world.members)
        id = await world.submit(Ask(cloud(world), (Chunk(count=2, cores=2),)))
        (chunk,) = (await job(world, id)).chunks
        assert (chunk.count, chunk.cores, chunk.spread) == (2, 2, True)

    async def test_jobs_of_several_nodes_have_them_all(self, world: World) -> None:
        members = await up(world, 2)
        full = Chunk(count=2, cores=members[0].cores)
        one = await running(world, full)
        assert set(one.nodes) == {member.name for member in members}
        reading = await world.queue.read()
        assert [reading.nodes[member.name].jobs for member in members] == [(one.id,)] * 2

    async def test_features_that_jobs_need_are_told(self, world: World) -> None:
        feature = offered(world.feature, "jobs ask for no features of nodes")
        await world.queue.prepare(world.members)
        wanted = Chunk(features=frozenset({feature}))
        one = await job(world, await world.submit(Ask(cloud(world), (wanted,))))
        assert [chunk.features for chunk in one.chunks] == [{feature}]

    async def test_memory_that_jobs_need_is_told(self, world: World) -> None:
        offered(world.memory or None, "jobs do not say what memory they need")
        await world.queue.prepare(world.members)
        one = await job(world, await world.submit(Ask(cloud(world), (Chunk(memory=64),))))
        assert sum(chunk.count * chunk.memory for chunk in one.chunks) == 64

    async def test_long_names_are_whole(self, world: World) -> None:
        await world.queue.prepare(world.members)
        member = world.members[-1]
        assert len(member.name) >= 30
        await world.queue.join([member])
        assert member.name in (await world.queue.read()).nodes
        id = await world.submit(Ask(cloud(world), name="n" * 200))
        assert (await job(world, id)).state is JobState.WAITING

    async def test_a_reading_takes_no_more_commands_when_there_is_more(self, world: World) -> None:
        commands = offered(world.commands, "its commands cannot be counted")
        await world.queue.prepare(world.members[:1])
        await world.queue.read()
        before = commands()
        await world.queue.read()
        few = commands() - before
        await world.queue.prepare(world.members)
        await world.queue.join(world.members)
        for tasks in (1, 1, 1, 5):
            await world.submit(Ask(cloud(world), tasks=tasks))
        before = commands()
        await world.queue.read()
        assert commands() - before == few


async def _starts_during_a_reading(world: World, name: str, after: int, tasks: int) -> None:
    await world.queue.drain([name], REASON)
    id = await world.submit(Ask(cloud(world), tasks=tasks))
    await until(world, lambda seen: _tasks(seen, id, JobState.WAITING) == tasks)

    async def starts() -> None:
        await world.queue.undrain([name])
        await world.queue.wake()
        await until(world, lambda seen: _tasks(seen, id, JobState.RUNNING) == tasks)

    reading = await read_while(world, after, starts)
    counted = _tasks(reading, id, JobState.WAITING) + len(reading.nodes[name].jobs)
    assert counted <= tasks, f"after {after} commands: {reading}"
    await world.end(id)
    await until(world, lambda seen: not seen.jobs and not seen.nodes[name].jobs)


def _tasks(reading: Reading, id: str, state: JobState) -> int:
    return sum(one.tasks for one in jobs(reading, id) if one.state is state)
