"""A batch system with nodes that boot and jobs that people submit, and words for writing tests."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

import pytest

from springtide.batch.polled_view import is_ours
from springtide.ports import (
    Chunk,
    Health,
    JobState,
    Member,
    Queue,
    QueueJob,
    QueueNode,
    Reading,
    Unavailable,
)

LIMIT_S = 200.0
REASON = "springtide: of a test"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """What somebody who may not change the batch system submits; it runs until it is ended."""

    queue: str
    """Or several, separated by commas, where that is possible."""
    chunks: tuple[Chunk, ...] = (Chunk(),)
    tasks: int = 1
    """Of an array, if more than one."""
    held: bool = False
    after: str | None = None
    """A job that must have ended before."""
    name: str = "work"
    """Cut to what the batch system takes."""


@dataclass(slots=True)
class Gap:
    """What happens between two commands of a client, which calls `passed` before each of them."""

    act: Callable[[], object] | None = None
    left: int = 0
    """So many commands run before that."""

    @property
    def is_over(self) -> bool:
        return self.act is None

    def passed(self) -> None:
        """In the thread of the command, once."""
        if self.act is None:
            return
        if self.left:
            self.left -= 1
            return
        act, self.act = self.act, None
        act()


@dataclass(frozen=True, slots=True)
class World:
    """The batch system, prepared for nothing yet, and those who act on it besides us.

    What is None cannot be had from this one; tests of it are skipped and say so.
    """

    queue: Queue
    members: Sequence[Member]
    """Nodes of ours that can boot, with addresses: three or more, alike but for the name of the
    last, which is long; each has two cores or more, and one queue."""
    submit: Callable[[Ask], Awaitable[str]]
    """Answers the id, as `Reading` has it."""
    end: Callable[[str], Awaitable[object]]
    """A job is over, all its tasks too."""
    node_boots: Callable[[str], Awaitable[object]]
    """The machine of a node starts; it reports to the batch system by and by."""
    node_dies: Callable[[str], Awaitable[object]]
    """As if its power was cut; a moment or minutes later the batch system knows."""
    server_down: Callable[[], Awaitable[object]]
    server_up: Callable[[], Awaitable[object]]
    """Returns once it answers."""
    drain_by_hand: Callable[[str], Awaitable[object]]
    """An admin drains a node with the batch system's own command, and says `by hand`."""
    drain_silently: Callable[[str], Awaitable[object]] | None = None
    """And says nothing."""
    told: Callable[[str], Awaitable[str]] | None = None
    """What the owner of a job can read of what was told."""
    premises: str | None = None
    """A node that is not ours, and up. Its queue is `elsewhere`."""
    elsewhere: str | None = None
    """Another queue, which has no nodes of ours."""
    both_queues: bool = False
    """Whether a job may be submitted to several queues."""
    feature: str | None = None
    """Something that all members have and jobs can ask for."""
    several_nodes: bool = True
    """Whether jobs can ask for so many nodes with so many cores on each."""
    memory: bool = True
    """Whether jobs say how much memory they need."""
    keeps_reasons: bool = True
    """Whether the batch system keeps the reason of a drain."""
    spoil: Callable[[str], AbstractContextManager[object]] | None = None
    """Within it, all its commands exit with 0 and say no more than this text."""
    prepares: bool = True
    """Whether it needs anything done, once at least, so that it accepts jobs while all nodes are
    off."""
    powerless: Callable[[], Queue] | None = None
    """A client of somebody who may look, and change nothing."""
    commandless: Callable[[], Queue] | None = None
    """A client on a machine that has none of the batch system's commands."""
    commands: Callable[[], int] | None = None
    """How many commands `queue` has run so far."""
    gap: Gap | None = None
    """Of the commands of `queue`."""
    silence_s: float | None = None
    """How long it may take until it knows that a node died; None if that is too long to wait."""
    remain: bool = False
    """Whether nodes are known after `dismantle`, because the site's configuration has them."""


# --- words -----------------------------------------------------------------------------------


def offered(thing: T | None, why: str) -> T:
    """What a world has; without it the test is not for this batch system."""
    if not thing:
        pytest.skip(why)
    return thing


async def until(
    world: World, holds: Callable[[Reading], bool], limit_s: float = LIMIT_S
) -> Reading:
    """The reading, once the condition holds for it."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    while not holds(found := await world.queue.read()):
        assert loop.time() < end, f"still {found} after {limit_s:.0f} s"
        await asyncio.sleep(0.1)
    return found


async def node(world: World, name: str) -> QueueNode:
    return (await world.queue.read()).nodes.get(name) or QueueNode(name, Health.ABSENT)


async def job(world: World, id: str) -> QueueJob:
    found = jobs(await world.queue.read(), id)
    assert found, f"job {id} is lost"
    return found[0]


def jobs(reading: Reading, id: str) -> list[QueueJob]:
    """The job, or all of an array: ids of tasks begin with that of their array."""
    return [one for one in reading.jobs if _number(one.id) == _number(id)]


def _number(id: str) -> str:
    found = re.match(r"\d+", id)
    assert found, f"{id} is no job"
    return found[0]


def health(reading: Reading, name: str) -> Health:
    found = reading.nodes.get(name)
    return found.health if found else Health.ABSENT


def sketch(reading: Reading) -> dict[str, tuple[Health, bool, tuple[str, ...]]]:
    """All that matters of its nodes; words may change by themselves."""
    seen = reading.nodes.values()
    return {one.name: (one.health, one.drained, one.jobs) for one in seen}


def cores(one: QueueJob) -> int:
    """What each task of it needs in all."""
    return sum(chunk.count * chunk.cores for chunk in one.chunks)


async def up(world: World, count: int = 1, *, prepared: bool = False) -> list[Member]:
    """So many nodes in service."""
    if not prepared:
        await world.queue.prepare(world.members)
    chosen = list(world.members[:count])
    await world.queue.join(chosen)
    for member in chosen:
        await world.node_boots(member.name)
    await heard(world, *(member.name for member in chosen))
    return chosen


async def heard(world: World, *names: str) -> None:
    """Until they are up, and then into service, as `Polled` does."""
    reading = await until(world, lambda seen: all(health(seen, n) is Health.UP for n in names))
    if closed := [name for name in names if is_ours(reading.nodes[name])]:
        await world.queue.undrain(closed)
    await world.queue.wake()


def cloud(world: World) -> str:
    """The queue of our nodes."""
    return world.members[0].queues[0]


async def running(world: World, *chunks: Chunk) -> QueueJob:
    """A job that runs."""
    id = await world.submit(Ask(cloud(world), chunks or (Chunk(),)))
    await world.queue.wake()
    return await started(world, id)


async def read_while(
    world: World, after: int, happens: Callable[[], Coroutine[object, object, object]]
) -> Reading:
    """A reading, of which something happens after so many commands."""
    gap, loop = offered(world.gap, "nothing happens during a reading"), asyncio.get_running_loop()
    gap.left = after
    gap.act = lambda: asyncio.run_coroutine_threadsafe(happens(), loop).result(LIMIT_S)
    reading = await world.queue.read()
    assert gap.is_over, f"a reading has no more than {after} commands"
    return reading


async def started(world: World, id: str) -> QueueJob:
    def runs(reading: Reading) -> bool:
        return any(one.state is JobState.RUNNING and one.nodes for one in jobs(reading, id))

    reading = await until(world, runs)
    return next(one for one in jobs(reading, id) if one.state is JobState.RUNNING)


async def refused(doing: Awaitable[object]) -> str:
    """What is said of a command that must not be done."""
    with pytest.raises(Unavailable) as caught:
        await doing
    assert str(caught.value).strip(), "refused without a word"
    return str(caught.value)


async def stays(world: World, holds: Callable[[Reading], bool], seconds: float = 3.0) -> None:
    """For so long; a scheduler that is woken each time has had its chance."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        await world.queue.wake()
        reading = await world.queue.read()
        assert holds(reading), f"no more: {reading}"
        await asyncio.sleep(0.3)
