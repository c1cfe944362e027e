"""A real Grid Engine does what all batch systems do."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from springtide.batch.gridengine import GridEngineQueue
from springtide.batch.gridengine_cell import Cell
from springtide.ports import Health, JobState
from tests.batch.conformance import Conformance
from tests.batch.gridengine_world import (
    FULL,
    NAMES,
    Counted,
    Fleet,
    Shared,
    client,
    make_world,
    reset,
)
from tests.batch.world import (
    REASON,
    Ask,
    World,
    cloud,
    job,
    node,
    refused,
    running,
    sketch,
    until,
    up,
)
from tests.gridengine import conf
from tests.gridengine.bed import GridEngine
from tests.spaces import unused

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    found = Shared(unused())
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def bed(shared: Shared) -> GridEngine:
    return shared.get()[0]


@pytest.fixture
def machines(shared: Shared) -> Fleet:
    return shared.get()[1]


@pytest.fixture
async def world(bed: GridEngine, machines: Fleet) -> AsyncIterator[World]:
    """With a host of the premises that is up."""
    world = make_world(bed, machines)
    await until(world, lambda seen: seen.nodes[conf.PREMISES].health is Health.UP)
    yield world
    if machines.whole:
        machines.whole = False
        await reset(world, bed, machines)
        machines.whole = True


class TestGridEngine(Conformance):
    """The fixture is the module's: other tests of it have the same world."""


async def test_a_host_whose_name_leads_nowhere_is_refused_and_nothing_is_left(world: World) -> None:
    """With those that came with it: rule 10."""
    await world.queue.prepare(world.members)
    before = sketch(await world.queue.read())
    lost = replace(world.members[0], name="no-such-name")
    said = await refused(world.queue.join([world.members[1], lost]))
    assert "batch.hosts" in said
    assert sketch(await world.queue.read()) == before


async def test_a_queue_that_is_not_there_is_named(world: World) -> None:
    said = await refused(world.queue.prepare([replace(world.members[0], queues=("gone.q",))]))
    assert "has no queue gone.q" in said


async def test_the_placeholder_stays_while_nodes_of_ours_remain(world: World) -> None:
    """rule 3"""
    await world.queue.prepare(world.members)
    await world.queue.dismantle([one.name for one in world.members[1:]])
    id = await world.submit(Ask(cloud(world)))
    assert (await job(world, id)).state is JobState.WAITING


@pytest.mark.accepts("N3")
async def test_a_job_that_names_no_queue_is_for_the_premises(world: World, bed: GridEngine) -> None:
    await world.queue.prepare(world.members)
    id = await asyncio.to_thread(bed.submit, "true", "-h")
    assert (await job(world, id)).queues == (conf.ON_PREMISES,)
    await _have_hosts(bed, "NONE")
    try:
        assert conf.QUEUE in (await job(world, id)).queues
    finally:
        await _have_hosts(bed, conf.PREMISES)


async def _have_hosts(bed: GridEngine, hosts: str) -> None:
    """The queue of the premises."""
    change = ("-rattr", "queue", "hostlist", hosts, conf.ON_PREMISES)
    await asyncio.to_thread(bed.run, "qconf", *change)


async def test_a_node_that_is_shown_by_its_full_name_is_ours(
    world: World, bed: GridEngine, machines: Fleet
) -> None:
    """It joins, runs a job, is drained, stays while it is busy, and goes without a trace."""
    member = replace(world.members[0], name=FULL, address=machines.addresses[FULL])
    whole = replace(world, queue=client(bed, names=(*NAMES, FULL)), members=[member])
    await up(whole)
    assert f"{FULL}." in await asyncio.to_thread(bed.run, "qconf", "-sel")
    one = await running(whole)
    assert one.nodes == (FULL,)
    await whole.queue.drain([FULL], REASON)
    assert "jobs are on it" in (await whole.queue.leave([FULL]))[FULL]
    await whole.end(one.id)
    await until(whole, lambda seen: not seen.nodes[FULL].jobs)
    assert await whole.queue.leave([FULL]) == {}
    assert FULL not in await asyncio.to_thread(bed.run, "qconf", "-sel")
    assert FULL not in await asyncio.to_thread(bed.run, "qconf", "-sq", conf.QUEUE)


async def test_a_host_of_others_with_a_name_of_ours_is_refused_and_left_alone(
    world: World, bed: GridEngine
) -> None:
    await world.queue.prepare(world.members)
    member = world.members[0]
    await asyncio.to_thread(bed.add, member.name, member.address)
    try:
        before = sketch(await world.queue.read())
        queue = world.queue
        for doing in (
            queue.prepare([member]),
            queue.join([member]),
            queue.drain([member.name], REASON),
            queue.undrain([member.name]),
        ):
            assert "is not ours" in await refused(doing)
        assert "is not ours" in (await queue.leave([member.name]))[member.name]
        await queue.dismantle(NAMES)
        assert sketch(await queue.read()) == before
        assert (await node(world, member.name)).health is Health.JOINING
    finally:
        await asyncio.to_thread(bed.remove, member.name)
        bed.name({member.name: member.address})


async def test_the_end_of_another_cluster_does_not_empty_our_queue(
    world: World, bed: GridEngine
) -> None:
    await asyncio.to_thread(bed.name, {"springtide-other-placeholder": "192.0.2.3"})
    commands = Counted(bed.bin, bed.root, conf.CELL)
    cell = Cell(commands, "other", "springtide-other-placeholder", ("other1",))
    other = GridEngineQueue(cell, [conf.QUEUE])
    await world.queue.prepare(world.members)
    await other.prepare([replace(world.members[0], name="other1")])
    await other.dismantle(["other1"])
    id = await world.submit(Ask(cloud(world)))
    assert (await job(world, id)).state is JobState.WAITING
    assert "other" not in await asyncio.to_thread(bed.run, "qconf", "-shgrp", conf.GROUP)


async def test_what_an_owner_writes_into_a_job_hides_no_other(
    world: World, bed: GridEngine
) -> None:
    """rule 1: Grid Engine prints odd bytes as they are, and takes sizes as C does."""
    await world.queue.prepare(world.members)
    plain = await world.submit(Ask(cloud(world)))
    for odd in (
        ("-t", "1-2", "-v", "X=a\x1bb\x01"),
        ("-t", "1-2", "-ac", "note=a\x02b"),
        ("-l", "h_vmem=0x40000000"),
        ("-l", "mem_free=.5G"),
        ("-l", "mem_free=1e9"),
    ):
        id = await asyncio.to_thread(bed.submit, "true", "-q", conf.QUEUE, *odd)
        assert (await job(world, id)).state is JobState.WAITING, odd
    assert (await job(world, plain)).state is JobState.WAITING


CALENDAR = "calendar_name never\nyear NONE\nweek mon-sun=0-24=off\n"


async def test_jobs_of_a_queue_that_is_closed_as_a_whole_are_held_before_any_node_starts(
    world: World, bed: GridEngine
) -> None:
    """By a calendar, and by a person's `qmod -sq`."""
    await world.queue.prepare(world.members)
    id = await world.submit(Ask(cloud(world)))
    assert (await job(world, id)).state is JobState.WAITING
    bed.configure("-Acal", CALENDAR)
    bed.run("qconf", "-mattr", "queue", "calendar", "never", conf.QUEUE)
    try:
        found = await job(world, id)
        assert (found.state, found.reason) == (
            JobState.HELD,
            "queue cloud.q is disabled by calendar",
        )
    finally:
        bed.run("qconf", "-mattr", "queue", "calendar", "NONE", conf.QUEUE)
        bed.run("qconf", "-dcal", "never")
    bed.run("qmod", "-sq", conf.QUEUE)
    try:
        found = await job(world, id)
        assert (found.state, found.reason) == (JobState.HELD, "queue cloud.q is suspended")
    finally:
        bed.run("qmod", "-usq", conf.QUEUE)
    assert (await job(world, id)).state is JobState.WAITING


async def test_a_licence_of_the_cell_is_no_feature_of_nodes(world: World, bed: GridEngine) -> None:
    await world.queue.prepare(world.members)
    id = await asyncio.to_thread(
        bed.submit, "true", "-q", conf.QUEUE, "-l", f"{conf.LICENCE}=1,{conf.FEATURE}=true"
    )
    (chunk,) = (await job(world, id)).chunks
    assert chunk.features == {conf.FEATURE}


async def test_a_job_of_a_range_of_slots_asks_for_the_least_of_them(
    world: World, bed: GridEngine
) -> None:
    """Also where the site has it shown, and sorted, with the most."""
    await world.queue.prepare(world.members)
    bed.run("qconf", "-mattr", "pe", "urgency_slots", "max", "mpi")
    try:
        id = await asyncio.to_thread(bed.submit, "true", "-q", conf.QUEUE, "-pe", "mpi", "2-")
        (chunk,) = (await job(world, id)).chunks
        assert (chunk.count, chunk.cores) == (2, 1)
    finally:
        bed.run("qconf", "-mattr", "pe", "urgency_slots", "min", "mpi")


async def test_a_job_that_its_owner_deleted_goes_with_its_dead_node(world: World) -> None:
    """Grid Engine would wait with it for that node, and keep the node for it, without end."""
    (member,) = await up(world)
    one = await running(world)
    await world.node_dies(member.name)
    await world.end(one.id)
    await world.queue.drain([member.name], REASON)
    await world.queue.requeue([one.id])
    await until(world, lambda seen: not seen.jobs)
    assert await world.queue.leave([member.name]) == {}
