"""The calendar at work, with a batch system that starts and stops nodes itself; hours pass at once.

The simulation begins at midnight.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from springtide import maintenance
from springtide.batch.fake import Timing
from springtide.engine import Refused
from springtide.model import NodeState
from springtide.ports import ITSELF, OURS, Chunk, Power, Rejected, Unavailable
from springtide.spec import parse
from tests.sim.queue_world import QueueWorld
from tests.sim.queue_world import text as queue_text
from tests.sim.test_engine import states, until
from tests.sim.world import Life, World

pytestmark = pytest.mark.looptime


@pytest.fixture(autouse=True)
def _few_looks_into_the_spool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is in it here, and hours pass."""
    monkeypatch.setattr("springtide.daemon.SPOOL_S", 600.0)


TEXT = """
cluster: sim
batch: {{kind: fake}}
provider: {{kind: fake}}
groups: {{general: {{nodes: "c[1-6]", min: {min}}}}}
timing: {{idle: 5m, start: 120s, stop: 60s, lock: 10m, gather: 20ms, reconcile: 30s, grace: 60s}}
calendar: {{time_zone: UTC, entries: [{entries}]}}
"""
DAY = '{daily: "01:00-03:00", min: 3}'
NIGHT = '{daily: "01:00-03:00", max: 2}'


def world_of(path: Path, *entries: str, min: int = 0) -> World:
    timing = Timing(latency_s=0.01, join_s=1, idle_s=300, suspend_timeout_s=60)
    world = World(path, text=TEXT.format(min=min, entries=", ".join(entries)), timing=timing)
    world.batch.exempt = frozenset(world.spec.sometimes_up)
    return world


async def clock(hours: float) -> None:
    await asyncio.sleep(hours * 3600 - asyncio.get_running_loop().time())


def up(world: World) -> list[str]:
    return [name for name, state in states(world).items() if state is not NodeState.OFF]


def drained(world: World) -> dict[str, str]:
    nodes = (world.batch.node(name) for name in world.spec.managed)
    return {node.name: node.reason for node in nodes if node.drained}


@pytest.mark.accepts("N19")
async def test_nodes_come_up_when_an_entry_begins_and_go_when_it_has_ended(tmp_path: Path) -> None:
    world = world_of(tmp_path, DAY)
    async with world.living(Life()):
        await clock(0.99)
        assert up(world) == []
        await clock(1.05)
        assert [world.batch.node(n).registered for n in ("c1", "c2", "c3")] == [True] * 3
        assert up(world) == ["c1", "c2", "c3"]
        await clock(2.99)
        assert up(world) == ["c1", "c2", "c3"], "they are idle for hours, and stay"
        await clock(3 + 4.5 / 60)
        assert up(world) == ["c1", "c2", "c3"], "timing.idle is not over"
        await clock(3.2)
        assert (up(world), world.cloud.alive()) == ([], [])
        await clock(25.05)
        assert up(world) == ["c1", "c2", "c3"], "the next day it begins again"


async def test_a_node_that_had_a_short_job_after_an_entry_ended_stays_for_as_long_as_others_did(
    tmp_path: Path,
) -> None:
    """Though it was idle whenever somebody looked."""
    world = world_of(tmp_path, DAY)
    async with world.living(Life()):
        await clock(3 + 3 / 60 + 10 / 3600)
        job = world.batch.submit(1, 5)
        await until(lambda: job.state == "COMPLETED", 10)
        await clock(3 + 7 / 60)
        assert up(world) == list(job.nodes)
        await until(lambda: not up(world), 300)


async def test_a_node_whose_job_goes_on_when_an_entry_ends_goes_after_it(tmp_path: Path) -> None:
    world = world_of(tmp_path, DAY)
    async with world.living(Life()):
        await clock(2.9)
        job = world.batch.submit(1, 3600)
        await clock(3.5)
        assert (job.state, len(up(world))) == ("RUNNING", 1)
        await until(lambda: job.state == "COMPLETED", 3600)
        await until(lambda: not up(world), 900)
        assert (job.requeues, world.batch.killed_jobs) == (0, {})


async def test_nodes_that_the_batch_system_will_not_close_keep_no_other_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path, NIGHT)
    drain = world.batch.drain

    async def refusing(nodes: Iterable[str], reason: str, by: str = OURS) -> None:
        if "calendar" in reason:
            raise Unavailable("not by you")
        await drain(nodes, reason, by)

    monkeypatch.setattr(world.batch, "drain", refusing)
    async with world.living(Life()):
        await clock(1.02)
        await drain(["c1"], "Low RealMemory", ITSELF)
        await until(lambda: not drained(world), 120)


async def test_no_more_nodes_start_than_an_entry_allows_and_the_rest_when_it_ends(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path, NIGHT)
    async with world.living(Life()):
        await clock(1.02)
        why = "springtide: calendar: at most 2 until 03:00"
        assert drained(world) == dict.fromkeys(("c3", "c4", "c5", "c6"), why)
        jobs = [world.batch.submit(1, 9000) for _ in range(5)]
        await clock(2.9)
        assert sorted(job.state for job in jobs) == ["PENDING"] * 3 + ["RUNNING"] * 2
        assert len(up(world)) == 2
        await clock(3.1)
        assert (drained(world), [job.state for job in jobs]) == ({}, ["RUNNING"] * 5)


async def test_jobs_that_come_when_an_entry_has_just_begun_start_no_more_nodes_than_it_allows(
    tmp_path: Path,
) -> None:
    """Whether a pass was due then or not."""
    world = world_of(tmp_path, NIGHT, '{daily: "03:00-24:00", max: 3}')
    async with world.living(Life()):
        for hour, most in (1, 2), (3, 3):
            await clock(hour + 2 / 3600)
            assert len(drained(world)) == 6 - most
            jobs = [world.batch.submit(1, 60) for _ in range(5)]
            while not all(job.state == "COMPLETED" for job in jobs):
                await asyncio.sleep(1)
                assert len(up(world)) <= most


async def test_never_are_more_nodes_open_than_may_start_when_one_takes_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """c1 cannot start for a while: c3 may in its place, until c1 can again."""
    world = world_of(tmp_path, NIGHT)
    seen: list[int] = []
    undrain = world.batch.undrain

    async def watched(nodes: Iterable[str], by: str | None = OURS) -> None:
        await undrain(nodes, by)
        seen.append(6 - len(drained(world)))

    monkeypatch.setattr(world.batch, "undrain", watched)
    async with world.living(Life()) as daemon:
        await clock(1.02)
        holding = daemon.parts.holding
        await holding.rejected(world.spec, {"c1": Rejected("no such flavor")})
        await until(lambda: list(drained(world)) == ["c1", "c4", "c5", "c6"])
        await holding.open_node("c1")
        await until(lambda: list(drained(world)) == ["c3", "c4", "c5", "c6"], 120)
    assert seen == [2, 2]


async def test_nodes_above_the_maximum_end_their_jobs_and_then_go(tmp_path: Path) -> None:
    world = world_of(tmp_path, NIGHT)
    async with world.living(Life()):
        await clock(0.5)
        jobs = [world.batch.submit(1, 3600) for _ in range(4)]
        await clock(1.2)
        late = [world.batch.submit(1, 60) for _ in range(4)]
        assert len(up(world)) == 4
        await until(lambda: all(job.state == "COMPLETED" for job in jobs), 3600)
        assert [job.requeues for job in jobs] == [0, 0, 0, 0]
        await until(lambda: all(job.state == "COMPLETED" for job in late), 3600)
        assert asyncio.get_running_loop().time() < 3 * 3600
        assert len(up(world)) <= 2
        assert world.batch.killed_jobs == {}


async def test_a_maximum_below_the_groups_own_minimum_lets_its_nodes_go(tmp_path: Path) -> None:
    world = world_of(tmp_path, '{daily: "01:00-03:00", max: 1}', min=3)
    async with world.living(Life()):
        await clock(0.5)
        assert up(world) == ["c1", "c2", "c3"]
        await clock(1.5)
        assert up(world) == ["c1"]
        await clock(3.1)
        assert up(world) == ["c1", "c2", "c3"]


async def test_a_node_that_the_batch_system_does_not_let_go_keeps_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path, '{daily: "01:00-03:00", max: 1}', min=3)
    power_down = world.batch.power_down

    async def refusing(nodes: Iterable[str]) -> None:
        if "c3" in (names := list(nodes)):
            raise Unavailable("not c3")
        await power_down(names)

    monkeypatch.setattr(world.batch, "power_down", refusing)
    async with world.living(Life()):
        await clock(1.5)
        assert up(world) == ["c1", "c3"]


async def test_a_node_that_an_image_is_being_made_of_goes_after_that_and_no_other_in_its_place(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path, NIGHT, min=3)
    async with world.living(Life()) as daemon:
        await clock(0.9)
        daemon.parts.gallery.claimed.add("c3")
        await world.batch.drain(["c3"], "image soft@2")
        await clock(1.5)
        assert up(world) == ["c1", "c2", "c3"]
        daemon.parts.gallery.claimed.clear()
        await clock(2.5)
        assert up(world) == ["c1", "c2"]


async def test_a_persons_drain_is_left_alone(tmp_path: Path) -> None:
    world = world_of(tmp_path, NIGHT)
    async with world.living(Life()) as daemon:
        await daemon.people.drain(["c6"], "disk", "alice")
        await clock(1.1)
        assert drained(world)["c6"] == "disk"
        await clock(3.2)
        assert drained(world) == {"c6": "disk"}


BRIEF = '{daily: "01:00-01:01", max: 0}'
FULL = '{daily: "01:00-03:00", max: 0}'


async def test_an_entry_shorter_than_timing_grace_ends_at_its_minute(tmp_path: Path) -> None:
    world = world_of(tmp_path, BRIEF)
    async with world.living(Life()):
        await clock(1 + 58 / 3600)
        assert len(drained(world)) == 6
        await clock(1 + 62 / 3600)
        assert drained(world) == {}


async def test_a_node_that_is_powering_down_when_an_entry_ends_can_be_started_at_once(
    tmp_path: Path,
) -> None:
    """It was let go a moment before: neither the drain nor SuspendTimeout is waited for."""
    world = world_of(tmp_path, FULL)
    world.batch.timing.suspend_timeout_s = 300
    async with world.living(Life()):
        await clock(0.99)
        job = world.batch.submit(1, 2 * 3600 - 10)
        await until(lambda: job.state == "COMPLETED", 3 * 3600)
        await until(lambda: not up(world), 60)
        assert world.batch.node("c1").power is Power.GOING_DOWN
        await clock(3 + 2 / 3600)
        assert (drained(world), world.batch.node("c1").power) == ({}, Power.DOWN)


async def test_a_node_that_is_powering_down_stays_closed_while_an_entry_holds(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path, FULL)
    world.batch.timing.suspend_timeout_s = 300
    async with world.living(Life()):
        await clock(0.99)
        job = world.batch.submit(1, 3600)
        await until(lambda: job.state == "COMPLETED", 2 * 3600)
        late = world.batch.submit(1, 60)
        await until(lambda: not up(world), 60)
        for _ in range(60):
            await asyncio.sleep(10)
            assert (late.state, len(drained(world))) == ("PENDING", 6)


async def test_drains_of_the_calendar_end_when_it_is_taken_out_of_the_file(tmp_path: Path) -> None:
    world = world_of(tmp_path, FULL)
    async with world.living(Life()) as daemon:
        await clock(1 + 1 / 60)
        await daemon.people.drain(["c6"], "disk", "alice")
        without = parse(TEXT.format(min=0, entries=""), "sim.yaml")
        async with daemon.people.applying:
            await daemon.people.apply(without, "root", lambda: None)
        await asyncio.sleep(2)
        assert drained(world) == {"c6": "disk"}


async def test_drains_of_a_hold_end_when_it_is_lifted(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await clock(0.1)
        holding = daemon.parts.holding
        await holding.rejected(world.spec, {"c1": Rejected("no image"), "c2": Rejected("no image")})
        await until(lambda: len(drained(world)) == 6)
        await holding.mended()
        await asyncio.sleep(2)
        assert drained(world) == {}


async def test_a_node_that_is_held_back_is_not_started_by_hand(tmp_path: Path) -> None:
    world = world_of(tmp_path, NIGHT)
    async with world.living(Life()) as daemon:
        await clock(1.02)
        with pytest.raises(Refused, match="c5 may not start: the calendar wants 0 to 2 nodes"):
            await daemon.people.resume(["c5"], "root")
        assert (await daemon.people.resume(["c2"], "root")).asked == ("c2",)
        await clock(3.02)
        assert (await daemon.people.resume(["c5"], "root")).asked == ("c5",)


async def test_the_reason_follows_the_entry_that_holds(tmp_path: Path) -> None:
    world = world_of(tmp_path, NIGHT, '{daily: "03:00-05:00", max: 4}')
    async with world.living(Life()):
        await clock(3.1)
        why = "springtide: calendar: at most 4 until 05:00"
        assert drained(world) == {"c5": why, "c6": why}


async def test_a_daemon_that_was_dead_while_an_entry_ended_catches_up(tmp_path: Path) -> None:
    world = world_of(tmp_path, DAY, '{daily: "00:00-24:00", max: 4}')
    life = Life()
    async with world.living(life):
        await clock(2.5)
        assert len(up(world)) == 3
        life.over.set()
    await clock(4)
    async with world.living(Life()):
        await clock(4.2)
        assert up(world) == []
        why = "springtide: calendar: at most 4 until 1970-01-02 01:00"
        assert drained(world) == {"c5": why, "c6": why}


# --- a batch system that is polled ----------------------------------------------------------------


def queue_world(path: Path, *entries: str, min: int = 0) -> QueueWorld:
    block = f"calendar: {{time_zone: UTC, entries: [{', '.join(entries)}]}}\n"
    return QueueWorld(path, spec=queue_text(nodes=6, min=min) + block)


@pytest.mark.accepts("N19")
async def test_nodes_of_a_polled_batch_system_come_and_go_by_the_calendar(tmp_path: Path) -> None:
    world = queue_world(tmp_path, DAY)
    async with world.living(Life()):
        await clock(0.99)
        assert up(world) == []
        await clock(1.05)
        assert len(up(world)) == 3
        await clock(2.99)
        assert len(up(world)) == 3
        await clock(3.1)
        assert up(world) == []


async def test_jobs_of_a_polled_batch_system_get_no_more_nodes_than_the_calendar_allows(
    tmp_path: Path,
) -> None:
    world = queue_world(tmp_path, '{daily: "01:00-03:00", max: 1}', min=2)
    async with world.living(Life()):
        await clock(0.5)
        assert up(world) == ["c1", "c2"]
        await clock(1.1)
        assert len(up(world)) == 1, "also of those that are up at other times"
        for _ in range(4):
            world.queue.submit(Chunk(1, 1), queues=("cloud",), duration_s=9000)
        most = 0
        while asyncio.get_running_loop().time() < 2.9 * 3600:
            await asyncio.sleep(60)
            most = max(most, len(up(world)))
        assert most == 1
        await clock(3.1)
        assert len(up(world)) == 4


async def test_in_maintenance_nothing_of_a_polled_batch_system_comes_or_goes_by_the_calendar(
    tmp_path: Path,
) -> None:
    night = '{daily: "03:00-06:00", max: 1}'
    world = queue_world(tmp_path, DAY, night)
    async with world.living(Life()) as daemon:
        record = daemon.parts.record
        await world.prepared()
        await clock(0.5)
        await maintenance.begin(record, "root", "new switch")
        await clock(1.5)
        assert up(world) == [], "the day has begun"
        job = world.queue.submit(Chunk(1, 1), queues=("cloud",), duration_s=60)
        await until(lambda: job.ended_at is not None, 600)
        await maintenance.end(record, "root")
        await clock(2)
        assert len(up(world)) == 3
        for _ in range(3):
            world.queue.submit(Chunk(1, 1), queues=("cloud",), duration_s=9000)
        await maintenance.begin(record, "root", "new switch")
        await clock(3.5)
        assert retired(world) == [], "the night has begun"
        await maintenance.end(record, "root")
        await clock(3.6)
        assert len(retired(world)) == 2


def retired(world: QueueWorld) -> list[str]:
    """Nodes that take no more jobs."""
    return [name for name in up(world) if world.queue.node(name).drained]
