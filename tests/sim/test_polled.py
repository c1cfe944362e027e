"""Polled batch systems: nodes come and go with their jobs, whatever happens in between.

The daemon is the real one; cloud and batch system are made up, and so is time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from springtide.batch.fake_queue import QueueTiming, Work
from springtide.daemon import Daemon
from springtide.model import STARTING, NodeState
from springtide.polling import TOLD
from springtide.ports import (
    Chunk,
    Denied,
    Instance,
    InstanceState,
    Member,
    NoCapacity,
    Reading,
    Rejected,
    Unavailable,
)
from springtide.providers.fake import Faults
from tests.sim.clock import run
from tests.sim.queue_world import QueueWorld, is_over, states, text, until
from tests.sim.world import Life

Story = Callable[[QueueWorld, Daemon], Awaitable[None]]


def play(story: Story, path: Path, spec: str | None = None, **options: object) -> QueueWorld:
    """Have something happen in a world of its own, with the daemon alive."""

    async def whole() -> QueueWorld:
        world = await made(path, spec, **options)
        async with world.living(Life()) as daemon:
            await story(world, daemon)
        return world

    return run(whole())


async def made(path: Path, spec: str | None = None, **options: object) -> QueueWorld:
    world = QueueWorld(path, spec, **options)  # type: ignore[arg-type]
    world.lonely, world.in_memory = False, True
    await world.prepared()
    return world


async def said(daemon: Daemon, what: str) -> list[str]:
    events = await daemon.parts.record.store.events(limit=100_000)
    return [event.detail for event in events if event.what == what]


async def at_rest(world: QueueWorld, daemon: Daemon) -> None:
    """Everything is off, and nothing was lost or is left."""
    await until(lambda: not world.up and not daemon.engine.claimed())
    await until(lambda: set(states(daemon).values()) == {NodeState.OFF})
    await asyncio.sleep(60)
    assert world.queue.killed_jobs == {}
    assert world.queue.open_jobs == []
    assert world.cloud.duplicates() == []
    assert '"nodes": {}' in str(await daemon.parts.record.store.get("power"))
    assert await daemon.parts.record.store.waiting() == []


# --- rise and fall -------------------------------------------------------------------------------


@pytest.mark.accepts("N3", "N4")
def test_ten_jobs_get_ten_nodes_with_one_request_and_nobody_else_gets_any(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        world.queue.submit(Chunk(cores=8), queues=["premises"])
        waiting = world.queue.submit(Chunk(cores=8), queues=["premises"])
        await asyncio.sleep(60)
        assert world.cloud.calls["create"] == 0, "the queue of the premises is not ours"
        jobs = [world.queue.submit(duration_s=30) for _ in range(10)]
        await until(lambda: len(world.up) > 0)
        assert len(world.up) == 10
        await until(lambda: is_over(*jobs))
        assert world.cloud.calls["create"] == 1
        assert max(job.started_at or 0 for job in jobs) - jobs[0].submitted_at < 30
        world.queue.finish(world.queue.open_jobs[0].id)
        world.queue.finish(waiting.id)
        await at_rest(world, daemon)
        assert world.queue.node("old1").expected
        assert not world.queue.node("old1").drained

    play(story, tmp_path, text(nodes=12))


@pytest.mark.accepts("N5")
def test_an_exhausted_pool_is_said_once_and_jobs_take_turns(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        jobs = [world.queue.submit(duration_s=60) for _ in range(8)]
        await until(lambda: is_over(*jobs))
        assert world.cloud.calls["create"] == 1
        assert len(await said(daemon, "pool exhausted")) == 1
        assert len(await said(daemon, "pool exhausted no more")) == 1
        await at_rest(world, daemon)

    play(story, tmp_path, text(nodes=3))


@pytest.mark.accepts("N9")
def test_a_job_that_comes_while_nodes_are_idle_runs_at_once(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        first = world.queue.submit(duration_s=10)
        await until(lambda: is_over(first))
        await asyncio.sleep(45)
        second = world.queue.submit(duration_s=10)
        await until(lambda: is_over(second))
        assert second.started_at is not None
        assert second.started_at - second.submitted_at <= world.queue.timing.turn_s
        assert world.cloud.calls["create"] == 1
        await at_rest(world, daemon)

    play(story, tmp_path)


@pytest.mark.accepts("N10")
def test_nodes_go_one_by_one_and_the_minimum_stays(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        jobs = [world.queue.submit(duration_s=10) for _ in range(4)]
        await until(lambda: is_over(*jobs))
        seen = [len(world.up)]
        for _ in range(400):
            await asyncio.sleep(1)
            if len(world.up) != seen[-1]:
                seen.append(len(world.up))
        assert seen == [4, 3, 2, 1]
        assert world.up == {"c1"}

    play(story, tmp_path, text(nodes=4, min=1, leave="one"))


def test_a_node_is_not_removed_under_a_running_job_however_long_it_takes(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        job = world.queue.submit(duration_s=7200)
        await until(lambda: is_over(job), 8000)
        assert world.queue.killed_jobs == {}
        assert world.cloud.calls["create"] == 1
        await at_rest(world, daemon)

    play(story, tmp_path)


@pytest.mark.accepts("B18")
def test_nothing_starts_for_a_job_that_is_over_before_patience_is(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        job = world.queue.submit()
        await asyncio.sleep(20)
        world.queue.finish(job.id)
        await asyncio.sleep(120)
        assert world.cloud.calls["create"] == 0

    play(story, tmp_path, text(patience="40s"))


def test_jobs_that_can_never_start_are_told_once_and_start_nothing(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        world.queue.submit(Chunk(cores=64), tasks=5000)
        world.queue.submit(Chunk(count=9))
        await asyncio.sleep(600)
        assert world.cloud.calls["create"] == 0
        assert [job for job, _ in world.queue.told] == ["1", "2"]
        assert "none has more than 1" in world.queue.told[0][1]
        assert len(await said(daemon, "jobs that can never start")) == 1

    play(story, tmp_path)


def test_a_job_that_can_never_start_is_told_so_by_one_daemon_alone(tmp_path: Path) -> None:
    """Of jobs that are gone nothing is kept."""

    async def whole() -> None:
        world = await made(tmp_path)
        first, second = world.queue.submit(Chunk(cores=64)), world.queue.submit(Chunk(count=9))
        for life in range(3):
            async with world.living(Life()):
                if life == 1:
                    world.queue.submit(Chunk(cores=64))
                await asyncio.sleep(60)
        assert [job for job, _ in world.queue.told] == ["1", "2", "3"]
        for id in (first.id, second.id, "3"):
            world.queue.finish(id)
        async with world.living(Life()) as daemon:
            await asyncio.sleep(60)
            assert await daemon.parts.record.store.get(TOLD) == "{}"

    run(whole())


def test_more_impossible_jobs_than_anybody_counts_are_told_once(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        for _ in range(12_000):
            world.queue.submit(Chunk(cores=64))
        await asyncio.sleep(120)
        assert len(world.queue.told) == 12_000
        assert world.queue.calls["tell"] == 120

    play(story, tmp_path)


def test_a_batch_system_that_takes_no_commands_is_told_of_once(tmp_path: Path) -> None:
    """Rule 7: it answers, but refuses."""

    async def story(world: QueueWorld, daemon: Daemon) -> None:
        jobs = [world.queue.submit(duration_s=10) for _ in range(2)]
        await until(lambda: is_over(*jobs))
        world.queue.forbidden = True
        await asyncio.sleep(3600)
        assert world.up == {"c1", "c2"}
        (told,) = await said(daemon, "batch system refuses")
        assert "drain c[1-2]: the fake batch system does not let us drain" in told
        assert "whether our user may change it" in told
        world.queue.forbidden = False
        await at_rest(world, daemon)
        assert len(await said(daemon, "batch system refuses no more")) == 1

    play(story, tmp_path)


def test_one_node_that_is_refused_keeps_nothing_else_from_being_done(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        jobs = [world.queue.submit(duration_s=10) for _ in range(3)]
        await until(lambda: is_over(*jobs))
        drain = world.queue.drain

        async def picky(names: Iterable[str], reason: str) -> None:
            if "c2" in (names := list(names)):
                raise Unavailable("the server refuses c2")
            await drain(names, reason)

        world.queue.drain = picky  # type: ignore[method-assign]
        world.queue.submit(Chunk(cores=64))
        await until(lambda: world.up == {"c2"}, 300)
        assert [job for job, _ in world.queue.told] == ["4"]
        (told,) = await said(daemon, "batch system refuses")
        assert "drain c2: the server refuses c2" in told

    play(story, tmp_path)


def test_a_batch_system_that_is_not_to_be_woken_is_told_of_and_jobs_run(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        async def refuses() -> None:
            raise Unavailable("Unauthorized Request")

        world.queue.wake = refuses  # type: ignore[method-assign]
        jobs = [world.queue.submit(duration_s=20) for _ in range(2)]
        await until(lambda: is_over(*jobs), 60)
        (told,) = await said(daemon, "batch system refuses")
        assert "it cannot be woken: Unauthorized Request" in told
        await at_rest(world, daemon)
        assert await said(daemon, "batch system away") == []

    play(story, tmp_path)


def test_people_start_nodes_and_send_them_away(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        await daemon.people.resume(["c2"], "alice")
        await until(lambda: states(daemon)["c2"] is NodeState.READY, 60)
        job = world.queue.submit(duration_s=40)
        await until(lambda: job.started_at is not None, 10)
        await daemon.people.suspend(["c2"], "alice")
        waiting = world.queue.submit(duration_s=10)
        await until(lambda: is_over(job, waiting))
        assert (job.nodes, waiting.nodes) == (("c2",), ("c1",))
        await at_rest(world, daemon)

    play(story, tmp_path)


def test_a_node_that_the_batch_system_does_not_let_go_keeps_its_instance(tmp_path: Path) -> None:
    """N11."""

    async def story(world: QueueWorld, daemon: Daemon) -> None:
        job, leave = world.queue.submit(duration_s=5), world.queue.leave
        await until(lambda: is_over(job))

        async def stays(names: Iterable[str]) -> Mapping[str, str]:
            return dict.fromkeys(names, "somebody looks at it")

        world.queue.leave = stays  # type: ignore[method-assign]
        await asyncio.sleep(600)
        assert world.up == {"c1"}
        assert await said(daemon, "nodes not let go") == ["c1: somebody looks at it"]
        world.queue.leave = leave  # type: ignore[method-assign]
        await at_rest(world, daemon)

    play(story, tmp_path)


@pytest.mark.parametrize("every", ["10s", "2m"])
def test_no_instance_goes_before_the_batch_system_has_forgotten_its_node(
    tmp_path: Path, every: str
) -> None:
    """N11, however seldom somebody looks."""

    async def story(world: QueueWorld, daemon: Daemon) -> None:
        known = list[bool]()
        world.cloud.on_stopped.append(lambda one: known.append(world.queue.node(one.node).expected))
        jobs = [world.queue.submit(duration_s=5) for _ in range(2)]
        await until(lambda: is_over(*jobs))
        await at_rest(world, daemon)
        assert known == [False, False]

    play(story, tmp_path, text(every=every))


def test_a_person_keeps_a_node_that_is_about_to_leave(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        job = world.queue.submit(duration_s=5)
        await until(lambda: is_over(job))
        await until(lambda: world.queue.node("c1").drained)
        await daemon.people.drain(["c1"], "hands off", "alice")
        await asyncio.sleep(600)
        assert world.up == {"c1"}
        await daemon.people.undrain(["c1"], "alice")
        await at_rest(world, daemon)

    play(story, tmp_path)


@pytest.mark.parametrize("after_s", [0.0, 3.0, 8.0, 11.0, 12.0, 14.0, 20.0, 25.0])
def test_people_who_change_their_mind_have_their_node(tmp_path: Path, after_s: float) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        await daemon.people.resume(["c2"], "alice")
        await until(lambda: states(daemon)["c2"] is NodeState.READY, 60)
        await daemon.people.suspend(["c2"], "alice")
        await asyncio.sleep(after_s)
        await daemon.people.resume(["c2"], "alice")
        await asyncio.sleep(40)
        assert states(daemon)["c2"] is NodeState.READY
        job = world.queue.submit(duration_s=10)
        await until(lambda: is_over(job), 15)
        assert job.nodes == ("c2",)
        await at_rest(world, daemon)

    play(story, tmp_path)


@pytest.mark.parametrize("after_s", [2.3, 2.6, 3.0, 5.0, 7.0, 8.0])
def test_the_job_of_a_starting_node_that_is_killed_gets_another_at_once(
    tmp_path: Path, after_s: float
) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        job = world.queue.submit(duration_s=20)
        await asyncio.sleep(after_s)
        assert states(daemon)["c1"] in STARTING
        await daemon.people.kill(["c1"], "alice")
        await until(lambda: is_over(job), 60)
        await at_rest(world, daemon)

    play(story, tmp_path, faults=Faults(before_s=1.0, boot_s=6.0))


def test_a_node_that_somebody_drained_while_it_was_off_is_not_started(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        await world.queue.drain(["c1"], "broken disk (bob)")
        job = world.queue.submit(duration_s=5)
        await until(lambda: is_over(job))
        assert job.nodes == ("c2",)
        await at_rest(world, daemon)
        assert world.queue.node("c1").joins == 0

    play(story, tmp_path)


async def drained_and_killed(world: QueueWorld, daemon: Daemon, after_s: float) -> None:
    """A node in service is drained, and so long after that the batch system is killed."""
    job = world.queue.submit(duration_s=5)
    await until(lambda: is_over(job))
    await daemon.people.drain(["c1"], "disk", "alice")
    await asyncio.sleep(after_s)
    world.queue.unavailable = True
    await asyncio.sleep(3)
    world.queue.restart(forgets_s=8.0)
    world.queue.unavailable = False


def test_a_drain_that_the_batch_system_lost_as_it_was_killed_is_set_again(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        await drained_and_killed(world, daemon, after_s=2.0)
        assert not world.queue.node("c1").drained
        await until(lambda: world.queue.node("c1").drained, 60)
        assert world.queue.node("c1").reason == "disk"
        assert (await daemon.parts.batch.nodes(["c1"]))["c1"].owner == "alice"
        await asyncio.sleep(20)
        events = await daemon.parts.record.store.events(node="c1")
        assert [one.detail for one in events if one.what == "drain set again"] == ["disk"]
        job = world.queue.submit(duration_s=5)
        await until(lambda: is_over(job))
        assert job.nodes == ("c2",)

    timing = QueueTiming(latency_s=0.05, join_s=1.0, turn_s=60.0, deaf_s=0.0)
    play(story, tmp_path, text(idle="600s"), timing=timing)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_drain_that_somebody_ended_is_not_set_again_when_the_batch_system_is_killed(
    tmp_path: Path, when: str
) -> None:
    """With the batch system's own commands."""

    async def story(world: QueueWorld, daemon: Daemon) -> None:
        if when == "before":
            job = world.queue.submit(duration_s=5)
            await until(lambda: is_over(job))
            await daemon.people.drain(["c1"], "disk", "alice")
            await world.queue.undrain(["c1"])
            await asyncio.sleep(15)
            world.queue.restart(forgets_s=8.0)
        else:
            await drained_and_killed(world, daemon, after_s=25.0)
            await asyncio.sleep(15)
            assert world.queue.node("c1").drained, "it was kept"
            await world.queue.undrain(["c1"])
        await asyncio.sleep(60)
        assert not world.queue.node("c1").drained

    timing = QueueTiming(latency_s=0.05, join_s=1.0, turn_s=1.0, deaf_s=0.0)
    play(story, tmp_path, text(idle="600s"), timing=timing)


def test_no_job_starts_on_a_drained_node_that_is_rebuilt(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        first = world.queue.submit(duration_s=5)
        await until(lambda: is_over(first))
        await daemon.people.drain(["c1"], "disk", "alice")
        answer = await daemon.people.rebuild(["c1"], "alice", {"force": True})
        jobs = [world.queue.submit(duration_s=50) for _ in range(4)]
        await daemon.engine.wait(answer.operations[0].id)
        await until(lambda: is_over(*jobs))
        assert not any("c1" in job.nodes for job in jobs)
        assert (await daemon.parts.batch.nodes(["c1"]))["c1"].owner == "alice"

    timing = QueueTiming(latency_s=0.05, join_s=1.0, turn_s=0.0)
    play(story, tmp_path, text(idle="600s"), timing=timing)


@pytest.mark.parametrize("what", ["wake", "drain"])
def test_a_rebuild_of_many_costs_few_commands(tmp_path: Path, what: str) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        jobs = [world.queue.submit(duration_s=5) for _ in range(50)]
        await until(lambda: is_over(*jobs))
        before = world.queue.calls[what]
        answer = await daemon.people.rebuild(daemon.spec.managed, "alice", {"force": True})
        await daemon.engine.wait(answer.operations[0].id)
        assert world.queue.calls[what] - before < 20

    play(story, tmp_path, text(nodes=50, idle="600s"))


def test_it_looks_at_once_when_it_is_called_but_no_more_than_once_a_second(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        looks, once, time = list[float](), daemon.poller.once, asyncio.get_running_loop().time

        async def counted() -> None:
            looks.append(time())
            await once()

        daemon.poller.once = counted  # type: ignore[method-assign]
        daemon.poller.wake()
        await asyncio.sleep(20)
        assert len(looks) == 1, "the first one sees what was before it"
        looks.clear()
        called_at = time()
        daemon.poller.wake()
        await asyncio.sleep(1.5)
        assert [at - called_at < 0.1 for at in looks] == [True]
        for _ in range(150):
            daemon.poller.wake()
            await asyncio.sleep(0.02)
        assert 3 <= len(looks) - 1 <= 4

    play(story, tmp_path, text(every="60s"))


def test_a_defect_or_a_batch_system_that_makes_no_sense_ends_no_loop(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        read = world.queue.read

        async def broken() -> Reading:
            raise ValueError("no sense")

        world.queue.read = broken  # type: ignore[method-assign]
        job = world.queue.submit(duration_s=10)
        await asyncio.sleep(60)
        assert world.cloud.calls["create"] == 0
        world.queue.read = read  # type: ignore[method-assign]
        await until(lambda: is_over(job))
        await at_rest(world, daemon)

    play(story, tmp_path)


# --- trouble -------------------------------------------------------------------------------------


@pytest.mark.accepts("N18")
@pytest.mark.parametrize("trouble", ["denied", "full", "throttled"])
def test_a_provider_that_fails_is_asked_ever_less_and_then_jobs_run(
    tmp_path: Path, trouble: str
) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        faults = world.cloud.faults
        fault = {"denied": Denied, "full": NoCapacity}.get(trouble)
        if fault:
            faults.refusals[fault] = 1.0
        else:
            faults.throttled_until = asyncio.get_running_loop().time() + 1800
        jobs = [world.queue.submit(duration_s=30) for _ in range(3)]
        await asyncio.sleep(1800)
        assert not world.up
        assert world.cloud.calls["create"] < 100
        before = world.queue.calls["read"]
        await asyncio.sleep(60)
        assert world.queue.calls["read"] > before + 3, "the loop goes on"
        faults.refusals.clear()
        await until(lambda: is_over(*jobs), 7200)
        await at_rest(world, daemon)

    play(story, tmp_path)


def test_a_node_that_is_refused_or_never_boots_is_replaced_by_another(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        world.cloud.faults.refused_nodes["c1"] = Rejected("not this one")
        first = world.queue.submit(duration_s=10)
        await until(lambda: is_over(first))
        assert first.nodes == ("c2",)
        world.cloud.faults.stuck_boots = 1.0
        wide = world.queue.submit(Chunk(count=2), duration_s=10)
        await until(lambda: world.up == {"c2", "c3"}, 60)
        world.cloud.faults.stuck_boots = 0.0
        await until(lambda: is_over(wide), 1800)
        await at_rest(world, daemon)

    play(story, tmp_path)


@pytest.mark.parametrize("phase_s", [1, 4, 9, 15, 60, 90, 105, 115, 125])
def test_while_the_batch_system_is_away_no_node_is_touched(tmp_path: Path, phase_s: float) -> None:
    """Rule 1."""

    async def story(world: QueueWorld, daemon: Daemon) -> None:
        jobs = [world.queue.submit(duration_s=30) for _ in range(2)]
        await asyncio.sleep(phase_s)
        world.queue.unavailable = True
        await asyncio.sleep(10)  # what had been decided by then may go on
        touched = dict(world.cloud.calls)
        up = world.up
        await asyncio.sleep(60)
        assert world.up >= up - {n for n in up if states(daemon)[n] is NodeState.DELETING}
        assert world.cloud.calls["create"] == touched.get("create", 0)
        assert world.cloud.calls["delete"] == touched.get("delete", 0)
        world.queue.unavailable = False
        jobs.append(world.queue.submit(duration_s=10))
        await until(lambda: is_over(*jobs))
        await at_rest(world, daemon)

    play(story, tmp_path)


@pytest.mark.parametrize("deaf_s", [5.0, 30.0, 120.0])
def test_a_batch_system_that_was_restarted_and_hears_nobody_yet_costs_no_node(
    tmp_path: Path, deaf_s: float
) -> None:
    """Rule 5."""

    async def story(world: QueueWorld, daemon: Daemon) -> None:
        jobs = [world.queue.submit(duration_s=600) for _ in range(2)]
        short = world.queue.submit(duration_s=20)
        await until(lambda: is_over(short))
        up = world.up
        calls = dict(world.cloud.calls)
        world.queue.restart()
        jobs.append(world.queue.submit(duration_s=10))
        await asyncio.sleep(deaf_s)
        assert world.up == up
        assert world.cloud.calls["create"] == calls["create"]
        assert world.cloud.calls["delete"] == calls.get("delete", 0)
        await until(lambda: is_over(*jobs))
        await at_rest(world, daemon)

    timing = QueueTiming(latency_s=0.05, join_s=1.0, turn_s=1.0, deaf_s=deaf_s)
    play(story, tmp_path, timing=timing)


# --- races ---------------------------------------------------------------------------------------


async def slow(path: Path, seed: int) -> QueueWorld:
    """A world of two nodes, slow at random."""
    rng = Random(seed)
    timing = QueueTiming(
        latency_s=rng.choice([0.01, 0.1, 0.7]), join_s=1.0, turn_s=rng.choice([0.0, 0.1, 2.0])
    )
    faults = Faults(before_s=0.2, after_s=rng.choice([0.1, 1.0]), boot_s=3, delete_s=3, seed=seed)
    spec = text(nodes=2, every=rng.choice(["3s", "5s", "8s"]), idle="15s")
    return await made(path, spec, timing=timing, faults=faults)


@dataclass(slots=True)
class Race:
    """A job that is submitted at some await point of the daemon."""

    first: int = 0
    """Where the removal begins, and where it has ended."""
    last: int = 0
    jobs: list[Work] = field(default_factory=list)
    states: tuple[NodeState, ...] = ()


async def race(path: Path, seed: int, moment: int | None) -> Race:
    """Nodes rise, idle, and go; meanwhile somebody submits."""
    life, found = Life(), Race()
    world = await slow(path, seed)
    async with world.living(life) as daemon:

        def submit() -> None:
            found.states = tuple(states(daemon).values())
            found.jobs.append(world.queue.submit(duration_s=20))
            found.jobs.append(world.queue.submit(Chunk(count=2), duration_s=5))

        life.fate, life.dies_at = submit, moment
        jobs = [world.queue.submit(duration_s=1) for _ in range(2)]
        await until(lambda: is_over(*jobs))
        await asyncio.sleep(14)
        found.first = life.passed
        await until(lambda: not world.up)
        found.last = life.passed
        await until(lambda: is_over(*found.jobs), 600)
        await at_rest(world, daemon)
    assert all(job.requeues == 0 for job in found.jobs)
    return found


@pytest.mark.accepts("N11")
def test_a_job_that_comes_at_any_moment_of_a_removal_is_not_lost(tmp_path: Path) -> None:
    """Two hundred moments, from before the nodes are retired until they are gone."""
    seen = set[NodeState]()
    for seed in range(10):
        alone = run(race(tmp_path, seed, None))
        for number in range(20):
            moment = alone.first + (alone.last - alone.first) * number // 20
            found = run(race(tmp_path, seed, moment))
            assert len(found.jobs) == 2, "nobody submitted"
            seen.update(found.states)
    assert {NodeState.READY, NodeState.DELETING} <= seen


async def _cycle(world: QueueWorld, dies_at: int | None) -> int:
    """Jobs of one and of two nodes from zero, and back to zero; answers the await points passed."""
    life = Life(dies_at)
    jobs = [world.queue.submit(Chunk(count=2), duration_s=5), world.queue.submit(duration_s=3)]

    def over() -> bool:
        return is_over(*jobs) and not world.up

    async with world.living(life):
        await until(lambda: over() or life.over.is_set())
        if not life.over.is_set():
            await asyncio.sleep(20)
    if life.over.is_set():
        await asyncio.sleep(2)
    async with world.living(Life()) as daemon:
        await until(over)
        await at_rest(world, daemon)
    return life.passed


def test_a_daemon_that_is_killed_at_any_moment_loses_no_job_and_leaks_no_node(
    tmp_path: Path,
) -> None:
    spec = text(nodes=3, idle="10s", every="5s")

    async def whole(dies_at: int | None) -> int:
        return await _cycle(await made(tmp_path, spec), dies_at)

    points = run(whole(None))
    assert points > 200
    for dies_at in range(1, points + 1, max(1, points // 250)):
        print("killed at await point", dies_at, "of", points)
        run(whole(dies_at))


def test_a_daemon_that_is_killed_before_it_noted_a_join_disturbs_no_job(tmp_path: Path) -> None:
    async def whole() -> None:
        world = await made(tmp_path, text(nodes=2))
        life, join = Life(), world.queue.join

        async def last_deed(members: Iterable[Member]) -> None:
            await join(members)
            life.over.set()

        jobs = [world.queue.submit(duration_s=600) for _ in range(2)]
        world.queue.join = last_deed  # type: ignore[method-assign]
        async with world.living(life):
            await until(life.over.is_set)
        world.queue.join = join  # type: ignore[method-assign]
        await until(lambda: all(job.nodes for job in jobs))
        async with world.living(Life()) as daemon:
            await until(lambda: is_over(*jobs))
            assert [job.requeues for job in jobs] == [0, 0]
            assert world.cloud.calls["create"] == 1
            await at_rest(world, daemon)

    run(whole())


def test_a_busy_node_whose_provider_lists_another_address_works_on(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        job = world.queue.submit(duration_s=600)
        await until(lambda: job.started_at is not None)
        provider = daemon.parts.home
        listed = provider.list

        async def elsewhere(cluster: str) -> Sequence[Instance]:
            return [replace(one, address="10.9.9.9") for one in await listed(cluster)]

        provider.list = elsewhere  # type: ignore[method-assign]
        await until(lambda: is_over(job))
        assert job.requeues == 0
        assert world.queue.killed_jobs == {}

    play(story, tmp_path)


# --- size ----------------------------------------------------------------------------------------


def test_ten_thousand_nodes_come_and_go(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        array = world.queue.submit(tasks=10_000, duration_s=60)
        await until(lambda: len(world.up) == 10_000, 300)
        await until(lambda: len(world.queue.finished) == 10_000, 600)
        assert array.tasks == 0
        await until(lambda: not world.up, 900)
        assert world.queue.killed_jobs == {}

    play(story, tmp_path, text(nodes=10_000))


# --- what a hard look found ----------------------------------------------------------------------


def test_a_dead_node_that_is_kept_for_its_job_holds_up_no_other(tmp_path: Path) -> None:
    """A job that may not run twice (`qsub -r n`) is not queued again, so its node cannot leave."""

    async def story(world: QueueWorld, daemon: Daemon) -> None:
        stuck, other = world.queue.submit(), world.queue.submit()
        await until(lambda: all(job.nodes for job in (stuck, other)))
        requeue = world.queue.requeue
        world.queue.requeue = lambda jobs: requeue(id for id in jobs if id != stuck.id)  # type: ignore[method-assign]
        for instance in list(world.cloud.alive()):
            world.cloud.die(instance.id, InstanceState.STOPPED)
        await until(lambda: other.requeues == 1 and bool(other.nodes), 1800)
        ended = await said(daemon, "operation ended")
        assert any("c1: the batch system keeps it: it has jobs: 1" in words for words in ended)

    play(story, tmp_path, text(nodes=2, idle="600s"))


def test_nodes_that_are_kept_for_their_jobs_use_up_no_brake(tmp_path: Path) -> None:
    """No more than three that run are given up at once: not the same ones in vain each time."""

    async def story(world: QueueWorld, daemon: Daemon) -> None:
        jobs = [world.queue.submit() for _ in range(4)]
        await until(lambda: all(job.nodes for job in jobs))
        await daemon.engine.idle()
        stuck = {job.id for job in jobs if job.nodes != ("c4",)}
        (other,) = [job for job in jobs if job.id not in stuck]
        requeue = world.queue.requeue
        world.queue.requeue = lambda jobs: requeue(id for id in jobs if id not in stuck)  # type: ignore[method-assign]
        for name in world.up:
            world.queue.node(name).down = True
        await until(lambda: other.requeues == 1, 3600)

    play(story, tmp_path, text(nodes=4, idle="600s"))


def test_a_joining_node_that_the_batch_system_forgot_is_told_of_again(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        job = world.queue.submit()
        await until(lambda: states(daemon)["c1"] == "joining")
        world.queue.node("c1").expected = False
        await until(lambda: job.nodes == ("c1",), 110)
        world.queue.finish(job.id)
        assert "the batch system had forgotten it" in await said(daemon, "address told")

    slow = QueueTiming(latency_s=0.05, join_s=20.0, turn_s=1.0)
    play(story, tmp_path, text(nodes=1), timing=slow)
