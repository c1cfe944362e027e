"""`tide why` with a polled batch system: what a job waits for, from the daemon's own answers.

The daemon and its API are the real ones; cloud and batch system are made up, and so is time.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from springtide.batch.fake_queue import QueueTiming
from springtide.daemon import Daemon
from springtide.model import Kind
from springtide.ports import Chunk, Member, NoCapacity, Rejected, Unavailable
from springtide.providers.fake import Faults
from tests.sim import asking
from tests.sim.clock import run
from tests.sim.queue_world import QueueWorld, is_over, text, until
from tests.sim.world import Life

SLURMS = re.compile(r"slurm|\bs(control|queue|info|acct|prio|cancel)\b", re.IGNORECASE)
Tale = Callable[[QueueWorld, Daemon], Awaitable[None]]


def play(tale: Tale, path: Path, spec: str, **options: Any) -> None:
    async def whole() -> None:
        world = QueueWorld(path, spec, **options)
        world.lonely, world.in_memory = False, True
        await world.prepared()
        async with world.living(Life()) as daemon:
            await tale(world, daemon)

    run(whole())


async def get(daemon: Daemon, path: str) -> Any:
    """What the API answers, and that no word of it is Slurm's."""
    found = await asking.get(daemon, path)
    assert not SLURMS.search(json.dumps(found)), found
    return found


async def why(daemon: Daemon, what: str) -> dict[str, Any]:
    (answer,) = await get(daemon, f"/why/{what}")
    assert answer["problems"] == []
    found: dict[str, Any] = answer
    return found


async def looks(daemon: Daemon, count: int = 2) -> None:
    """So many looks at the batch system pass."""
    for _ in range(count):
        before = daemon.poller.last
        await until(lambda before=before: daemon.poller.last is not before)  # type: ignore[misc]


@pytest.mark.accepts("X5")
def test_a_job_says_which_nodes_start_for_it_and_by_which_operation(tmp_path: Path) -> None:
    async def tale(world: QueueWorld, daemon: Daemon) -> None:
        job = world.queue.submit(Chunk(count=2), duration_s=30)
        new = await why(daemon, job.id)
        assert new["now"] == "job 1 waits: Springtide has not looked at it yet."
        assert new["next"].startswith("Springtide looks within 10 s (polling.every)")
        await until(lambda: len(world.up) == 2)
        told = await why(daemon, job.id)
        assert told["now"].startswith(
            "job 1 waits: c[1-2] must start first; operation 1 (resume by Springtide for job 1) is "
            "at work since "
        )
        assert told["next"].startswith("it runs as soon as they are in service; ")
        assert told["do"] == "`tide why c1` tells more"
        assert told["past"][0]["text"] == "c[1-2]: start ordered by Springtide for job 1"
        boots = await why(daemon, "c1")
        assert boots["now"].startswith("c1 boots: Torque waits for its pbs_mom to report since ")
        await until(lambda: job.started_at is not None)
        assert (await why(daemon, job.id))["now"] == "job 1 runs on c[1-2]."
        await until(lambda: is_over(job))
        over = await why(daemon, job.id)
        assert over["now"].startswith(
            "Torque knows no job 1 any more; the last that Springtide did"
        )
        idle = await why(daemon, "c1")
        assert idle["next"] == "Springtide lets it go when it has been idle for 60 s (timing.idle)."
        await until(lambda: not world.up and not daemon.engine.claimed())
        off = await why(daemon, "c1")
        assert off["now"] == "c1 is off and has no instance."
        assert off["next"] == "Springtide starts it when a job needs it."
        (listed,) = await get(daemon, "/operations")
        assert listed["operations"][-1]["reason"] == "resume by Springtide, for jobs 1"
        await get(daemon, "/events")
        await get(daemon, "/status")

    timing = QueueTiming(latency_s=0.05, join_s=20.0, turn_s=1.0)
    play(tale, tmp_path, text(nodes=3), timing=timing)


@pytest.mark.accepts("X5")
def test_a_job_that_cannot_start_now_or_ever_says_why(tmp_path: Path) -> None:
    async def tale(world: QueueWorld, daemon: Daemon) -> None:
        held = world.queue.submit(held=True)
        huge = world.queue.submit(Chunk(cores=8))
        theirs = world.queue.submit(Chunk(cores=99), queues=["premises"])
        await looks(daemon)
        story = await why(daemon, held.id)
        assert story["now"].startswith("job 1 is held (Torque: ")
        assert story["next"].startswith("no node is started for it before it is released")
        assert story["do"] == "`qstat -f 1` tells more"
        story = await why(daemon, huge.id)
        assert story["now"] == (
            "job 2 waits in vain: it can never start in cloud: it asks for 8 cores on a node, and "
            "none has more than 1; ask for less, or delete the job."
        )
        assert (story["next"], story["do"]) == ("never.", "`qdel 2`")
        story = await why(daemon, theirs.id)
        assert story["now"] == "job 3 waits: premises has no nodes of Springtide."
        assert not world.up

    play(tale, tmp_path, text(nodes=2))


@pytest.mark.accepts("X5")
def test_a_job_that_finds_the_pool_exhausted_names_the_group_and_its_limit(tmp_path: Path) -> None:
    async def tale(world: QueueWorld, daemon: Daemon) -> None:
        jobs = [world.queue.submit() for _ in range(3)]
        await until(lambda: jobs[1].started_at is not None)
        await looks(daemon)
        story = await why(daemon, jobs[2].id)
        assert story["now"] == (
            "job 3 waits: group general has too few left for it of its 2 nodes."
        )
        assert story["next"] == "Torque starts it when other jobs have ended."
        assert story["do"] == (
            "more names in groups.general.nodes, and `tide apply`, make room for more nodes"
        )

    play(tale, tmp_path, text(nodes=2))


@pytest.mark.accepts("X5")
def test_a_job_that_the_calendar_lets_wait_says_until_when(tmp_path: Path) -> None:
    async def tale(world: QueueWorld, daemon: Daemon) -> None:
        jobs = [world.queue.submit() for _ in range(2)]
        await until(lambda: jobs[0].started_at is not None)
        await looks(daemon)
        story = await why(daemon, jobs[1].id)
        assert story["now"].startswith(
            "job 2 waits: group general has too few left for it of the 1 nodes that may be up now; "
            "by the calendar general has 0 to 1 nodes until 18:00, by entry 1 ("
        )
        assert story["next"] == (
            "Torque starts it when other jobs have ended, or the calendar allows more nodes."
        )
        (off,) = [name for name in daemon.spec.managed if name not in world.up][:1]
        node = await why(daemon, off)
        assert "is off, and by the calendar no further node of its group is started" in node["now"]
        assert "0 to 1 nodes until 18:00" in node["now"]
        assert node["next"] == "it may be started after that, or when another one has gone."
        assert "tide schedule show" in node["do"]

    block = 'calendar: {time_zone: UTC, entries: [{daily: "13:00-18:00", max: 1}]}\n'
    play(tale, tmp_path, text(nodes=3) + block)


def test_a_job_that_has_not_waited_for_long_enough_says_how_long_it_will(tmp_path: Path) -> None:
    async def tale(world: QueueWorld, daemon: Daemon) -> None:
        job = world.queue.submit(duration_s=30)
        await looks(daemon)
        story = await why(daemon, job.id)
        assert story["now"] == "job 1 waits: it may yet find room on nodes that are there."
        asked = r"Springtide starts nodes for it if it still waits in \d+ s \(polling\.patience\)\."
        assert re.fullmatch(asked, story["next"])
        assert not world.up
        await until(lambda: is_over(job))

    play(tale, tmp_path, text(patience="60s"))


@pytest.mark.accepts("X5")
def test_a_job_whose_nodes_are_held_back_says_why_and_hears_it_in_its_comment(
    tmp_path: Path,
) -> None:
    full = "no small in zone-a"

    async def tale(world: QueueWorld, daemon: Daemon) -> None:
        job = world.queue.submit()
        await until(lambda: bool(world.queue.told))
        await looks(daemon)
        story = await why(daemon, job.id)
        assert (
            f"c1 could not start, so the job waits again: the provider is full: {full}"
            in (story["now"])
        )
        assert story["next"].startswith("group general is held until ")
        assert any(full in words for _, words in world.queue.told)
        second = world.queue.submit()
        await looks(daemon)
        story = await why(daemon, second.id)
        assert story["now"] == "job 2 waits: no more nodes of general are started now."
        assert story["next"].startswith("group general is held until ")

    faults = Faults(refused_nodes={f"c{n}": NoCapacity(full) for n in (1, 2, 3)})
    play(tale, tmp_path, text(nodes=3), faults=faults)


def test_a_busy_node_that_leaves_is_left_alone_and_nothing_is_told_of_it(tmp_path: Path) -> None:
    async def tale(world: QueueWorld, daemon: Daemon) -> None:
        job = world.queue.submit()
        await until(lambda: job.started_at is not None)
        await daemon.parts.batch.power_down(["c1"])
        before = len(await get(daemon, "/events"))
        await asyncio.sleep(1800)
        later = (await get(daemon, "/events"))[before:]
        assert [event for event in later if event["node"] == "c1"] == []
        assert world.queue.node("c1").drained
        told = (await why(daemon, "c1"))["now"]
        assert told.startswith("c1 is in service since ")
        assert " ago), and has job 1; " in told
        world.queue.finish(job.id)
        await until(lambda: not world.up)
        assert world.queue.killed_jobs == {}

    play(tale, tmp_path, text(nodes=1))


def test_an_array_and_its_tasks_are_known_by_the_ids_that_people_write(tmp_path: Path) -> None:
    async def tale(world: QueueWorld, daemon: Daemon) -> None:
        world.queue.submit(tasks=5)
        await until(lambda: len(world.up) == 2)
        await looks(daemon)
        for id in ("1", "1.4", "1_4"):
            assert (await why(daemon, id))["about"] == "job 1"
        strange = await why(daemon, "7[3].head.example.org")
        assert strange["now"].startswith("Torque knows no job 7[3].head.example.org any more")

    play(tale, tmp_path, text(nodes=2))


@pytest.mark.accepts("X5")
def test_a_join_that_is_refused_is_said_at_once_and_falls_out_in_time(
    tmp_path: Path,
) -> None:
    async def tale(world: QueueWorld, daemon: Daemon) -> None:
        async def refuse(members: object) -> None:
            raise Unavailable("c1 is referenced in queue all.q")

        world.queue.join = refuse  # type: ignore[method-assign]
        world.queue.submit(Chunk())
        now = asyncio.get_running_loop().time
        await until(lambda: bool(world.up))
        began = now()
        await asyncio.sleep(10)
        told = await why(daemon, "c1")
        assert "does not take it: c1 is referenced in queue all.q" in told["now"]
        await until(lambda: not daemon.engine.under_way(Kind.RESUME))
        assert 100 < now() - began < 180, "timing.start is over"
        (one,) = await get(daemon, "/operations/1")
        assert one["state"] == "failed"
        assert "c1 is referenced in queue all.q" in one["fallen"]["c1"]

    play(tale, tmp_path, text(nodes=1))


def test_a_batch_system_that_keeps_a_node_holds_up_no_cancel(tmp_path: Path) -> None:
    async def tale(world: QueueWorld, daemon: Daemon) -> None:
        join = world.queue.join

        async def half(members: Iterable[Member]) -> None:
            await join(members)
            raise Unavailable("its queue cannot be changed")

        async def refuse(names: Iterable[str]) -> Mapping[str, str]:
            raise Unavailable("it is still referenced in queue all.q")

        world.queue.join = half  # type: ignore[method-assign]
        world.queue.leave = refuse  # type: ignore[method-assign]
        world.queue.submit(Chunk())
        await until(lambda: daemon.engine.under_way(Kind.RESUME) == 1)
        await asyncio.sleep(0.6)  # it has joined, and was not heard from
        began = asyncio.get_running_loop().time()
        await daemon.engine.cancel(1, "root")
        assert asyncio.get_running_loop().time() - began < 60
        (one,) = await get(daemon, "/operations/1")
        assert one["state"] == "cancelled"
        events = await daemon.parts.record.store.events(limit=1000)
        (said,) = [each.detail for each in events if each.what == "give back failed"]
        assert "still referenced" in said

    timing = QueueTiming(latency_s=0.05, join_s=900.0, turn_s=1.0)
    play(tale, tmp_path, text(nodes=1), timing=timing)


def test_a_node_that_is_held_by_itself_says_so_and_so_does_a_job_that_needs_it(
    tmp_path: Path,
) -> None:
    async def tale(world: QueueWorld, daemon: Daemon) -> None:
        await daemon.parts.holding.rejected(daemon.spec, {"c1": Rejected("no image base")})
        lift = "when the cause is gone, `tide holds --lift node:c1` has it tried at once"
        node = await why(daemon, "c1")
        assert node["now"] == "c1 is off, and it is not started now."
        assert node["next"] == (
            "c1 is held until somebody lifts that: requests for node c1 are refused (no image "
            "base): mend the cluster file, or the cause and run `tide holds --lift node:c1`."
        )
        assert node["do"] == lift
        job = world.queue.submit(Chunk())
        await looks(daemon)
        told = await why(daemon, job.id)
        assert told["next"].startswith("c1 is held until somebody lifts that: ")
        assert told["do"] == lift
        other = await why(daemon, "c1")
        assert other["now"] == node["now"], "a drain of ours that it has does not end meanwhile"

    play(tale, tmp_path, text(nodes=1))


def test_a_drain_is_remembered_while_the_server_is_away(tmp_path: Path) -> None:
    async def tale(world: QueueWorld, daemon: Daemon) -> None:
        await daemon.people.drain(["c1"], "bad disk", "root")
        world.queue.unavailable = True
        (told,) = await get(daemon, "/why/c1")
        assert told["now"] == (
            "c1 is off, and as far as is known takes no new jobs: root drained it; Torque does not "
            "answer, so this is our record alone."
        )
        assert told["next"].endswith(
            "; then nothing: root drained it (bad disk); `tide undrain c1` ends that."
        )

    play(tale, tmp_path, text(nodes=1))


def test_status_tells_of_jobs_that_can_never_start_and_of_groups_that_are_too_small(
    tmp_path: Path,
) -> None:
    async def tale(world: QueueWorld, daemon: Daemon) -> None:
        huge = world.queue.submit(Chunk(cores=64))
        jobs = [world.queue.submit(duration_s=30) for _ in range(2)]
        await until(lambda: bool(world.up))
        await looks(daemon)
        (status,) = await get(daemon, "/status")
        assert status["troubles"]["jobs that can never start"][0].startswith(f"job {huge.id}: ")
        assert "more nodes of group general" in status["troubles"]["pool exhausted"][0]
        await until(lambda: is_over(*jobs))
        world.queue.finish(huge.id)
        await looks(daemon)
        (status,) = await get(daemon, "/status")
        assert status["troubles"] == {}

    play(tale, tmp_path, text(nodes=1))


def test_a_deploy_while_the_server_is_away_says_what_to_do(tmp_path: Path) -> None:
    async def tale(world: QueueWorld, daemon: Daemon) -> None:
        world.queue.unavailable = True
        (one,) = await daemon.engine.submit(Kind.DEPLOY, (), asked_by="root")
        ended = await daemon.engine.wait(one.id)
        assert ended is not None
        chosen = f"--state {world.spec.state}", "--cluster sim"
        again = (f"; when that is mended, run `tide deploy {one}`" for one in chosen)
        assert ended.reason.endswith(tuple(again))

    play(tale, tmp_path, text(nodes=1))
