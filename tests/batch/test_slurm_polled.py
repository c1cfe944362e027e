"""A real Slurm that is read does what every such batch system does."""

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from springtide.batch.polled import Look, Polled
from springtide.batch.running import Output
from springtide.batch.slurm_commands import Commands
from springtide.batch.slurm_polled import SlurmQueue
from springtide.ports import Chunk, Health, Member, Queue, Remembers
from tests.batch import batch_world
from tests.batch.batch_conformance import BatchConformance
from tests.batch.batch_world import BatchWorld, polled
from tests.batch.conformance import Conformance
from tests.batch.slurm_bed import OTHER, USER, SlurmBed
from tests.batch.world import LIMIT_S, Ask, Gap, World, heard, node, running, until, up
from tests.leftovers import place
from tests.spaces import network

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

NAMES = ("ps1", "ps2", "ps3", "ps-node-with-a-long-name-indeed-4")
AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"


@dataclass(slots=True)
class Tampered:
    """What may be wrong with commands, and how many there were."""

    count: int = 0
    says: str | None = None
    away: bool = False
    """Nobody answers, as commands find out by themselves after ten seconds each."""
    gap: Gap = field(default_factory=Gap)

    @contextmanager
    def spoil(self, text: str) -> Iterator[None]:
        self.says = text
        try:
            yield
        finally:
            self.says = None


@dataclass(frozen=True, slots=True)
class Watched(Commands):
    """Commands of somebody, counted, that may say nonsense."""

    before: Sequence[str] = ()
    tampered: Tampered = field(default_factory=Tampered)
    place: str = ""

    def run(self, command: Sequence[str], conf: Path | None = None) -> Output:
        self.tampered.gap.passed()
        self.tampered.count += 1
        if self.tampered.away:
            return subprocess.CompletedProcess(command, 1, "", AWAY)
        if self.tampered.says is not None:
            return subprocess.CompletedProcess(command, 0, self.tampered.says, "")
        first, *others = command
        return Commands.run(self, [*self.before, f"{self.place}{first}", *others], conf)


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    with place() as root, network(root) as net:
        bed = SlurmBed(root, net, NAMES)
        try:
            bed.start()
            yield bed
        finally:
            bed.end()


@pytest.fixture
def world(bed: SlurmBed) -> Iterator[World]:
    yield make_world(bed)
    bed.reset(NAMES)


class TestPolledSlurm(Conformance):
    """The fixture is the module's: other tests of it have the same world."""


class TestPolledSlurmPort(BatchConformance):
    """What happens when its slurmctld is really away, `TestPolledSlurm` sees."""

    @pytest.fixture
    def world(self, world: World) -> BatchWorld:
        commands = cast(SlurmQueue, world.queue)._commands

        async def have_away(yes: bool) -> None:
            cast(Watched, commands).tampered.away = yes

        return replace(
            polled(world),
            server_down=lambda: have_away(True),
            server_up=lambda: have_away(False),
        )


async def test_a_drain_is_there_again_though_slurmctld_was_killed_just_after_it(
    world: World, bed: SlurmBed
) -> None:
    """What it had not written down yet, it has forgotten."""
    there = polled(world)
    first, second = await batch_world.up(there, 2)
    await there.batch.drain([second], "fan", "ann")
    await asyncio.to_thread(bed.await_saved, "fan")
    await there.batch.drain([first], "disk", "ann")
    await asyncio.to_thread(bed.kill, "slurmctld")
    await asyncio.to_thread(bed.start_slurmctld)
    for name, reason in ((first, "disk"), (second, "fan")):
        found = await batch_world.until(there, name, lambda one: one.drained and one.registered)
        assert (found.owner, found.reason) == ("ann", reason)
        assert bed.field("node", name, "Reason").startswith(reason)
    await certain(there, first)
    await asyncio.to_thread(bed.told, "scontrol", "update", f"nodename={first}", "state=resume")
    await batch_world.until(there, first, lambda one: not one.drained)


async def certain(there: BatchWorld, name: str) -> None:
    """Until it is known that slurmctld has this drain: if it had written that down before, only by
    and by. Who ends it before that seems to be a slurmctld that has forgotten it."""
    batch = cast(Polled, there.batch)

    def is_certain(look: Look) -> bool:
        drain = look.marks.drains[name]
        return not drain.at or drain.life == look.reading.started_at

    async with asyncio.timeout(LIMIT_S):
        while not is_certain(await batch.look()):
            await asyncio.sleep(0.1)


async def test_nodes_of_a_slurm_that_never_ran_are_put_down_and_join(
    world: World, bed: SlurmBed
) -> None:
    await asyncio.to_thread(bed.forget)
    assert bed.state(NAMES[0]).startswith("UNKNOWN")
    assert "down until they join" in await world.queue.prepare(world.members)
    states = {frozenset(bed.state(name).split("+")) for name in NAMES}
    assert {state - {"NOT_RESPONDING"} for state in states} == {frozenset({"DOWN", "DRAIN"})}
    await up(world, prepared=True)
    await running(world)


async def test_a_node_that_somebody_resumed_is_off_again_before_it_joins(
    world: World, bed: SlurmBed
) -> None:
    """Whether its slurmd runs, or slurmctld only believes so; the next one may boot at once."""
    name = NAMES[0]
    await world.queue.prepare(world.members)
    await asyncio.to_thread(bed.told, "scontrol", "update", f"nodename={name}", "state=resume")
    await world.node_boots(name)
    await until(world, lambda seen: seen.nodes[name].health is Health.UP)
    assert "down until they join" in await world.queue.prepare(world.members)
    assert (await node(world, name)).health is Health.ABSENT
    await world.node_dies(name)
    await world.node_boots(name)
    await world.queue.join(world.members[:1])
    await heard(world, name)
    await running(world)


async def test_a_comment_of_somebody_else_stays(world: World, bed: SlurmBed) -> None:
    def comment() -> str:
        return bed.told("scontrol", "-o", "show", "node", NAMES[0]).partition(" Comment=")[2]

    said = "rack 7, call Bob"
    await asyncio.to_thread(
        bed.told, "scontrol", "update", f"nodename={NAMES[0]}", f"comment={said}"
    )
    (member,) = await up(world)
    assert comment() == f"springtide: at {member.address}; {said}"
    await world.queue.leave([member.name])
    assert comment() == f"springtide: off; {said}"
    await world.queue.dismantle(NAMES)
    assert comment() == said


async def test_what_jobs_exclude_is_seen_of_tasks_of_arrays_too(
    world: World, bed: SlurmBed
) -> None:
    await up(world)
    submit = partial(bed.sbatch, "--partition=cloud", f"--exclude={NAMES[0]},{NAMES[2]}")
    job = await asyncio.to_thread(submit, "--nodes=1")
    array = await asyncio.to_thread(submit, "--array=5")
    found = {one.id: one for one in (await world.queue.read()).jobs}
    assert found[job].avoid == found[f"{array}_5"].avoid == {NAMES[0], NAMES[2]}
    assert found[job].names == ()


async def test_a_job_that_its_owner_cancelled_is_not_queued_again_with_its_node(
    world: World, bed: SlurmBed
) -> None:
    """Its script does not mind, so that it is cleaned up after for a while."""
    (member,) = await up(world)
    scratch = bed.root / "scratch"
    scratch.mkdir()
    scratch.chmod(0o777)
    deaf = f"trap '' TERM; touch {scratch}/began; while :; do sleep 1; done"
    options = ("--partition=cloud", f"--nodelist={member.name}", f"--wrap={deaf}")
    job = await asyncio.to_thread(bed.sbatch, *options)
    state = partial(bed.field, "job", job, "JobState")
    await until(world, lambda _: (scratch / "began").exists())
    await asyncio.to_thread(bed.told, "scancel", job)
    assert state() == "COMPLETING"
    await world.queue.drain([member.name], "springtide: leaves")
    await world.queue.requeue([job])
    await until(world, lambda _: state() == "CANCELLED")
    assert bed.field("job", job, "Restarts") == "0"
    assert isinstance(world.queue, Remembers)
    over = await world.queue.past_job(job)
    assert over is not None
    assert over.state == "CANCELLED"
    assert await world.queue.past_job("999999") is None


async def test_a_job_of_several_parts_that_its_owner_cancelled_is_not_queued_again(
    world: World, bed: SlurmBed
) -> None:
    """squeue gives each part a number of its own, and shows them with that of the first."""
    first, second = await up(world, 2)
    scratch = bed.root / "parts"
    scratch.mkdir()
    scratch.chmod(0o777)
    script = scratch / "deaf"
    lines = ("#!/bin/sh", "trap '' TERM", f"touch {scratch}/began", "while :; do sleep 1; done")
    script.write_text("\n".join(lines))
    cloud = "--partition=cloud"
    parts = (cloud, f"--nodelist={first.name}", ":", cloud, f"--nodelist={second.name}")
    command = (*USER, "sbatch", "--parsable", "--output=/dev/null", *parts, str(script))
    job = await asyncio.to_thread(bed.told, *command)
    state = partial(bed.field, "job", job, "JobState")
    await until(world, lambda _: (scratch / "began").exists())
    await asyncio.to_thread(bed.told, "scancel", job)
    assert state() == "COMPLETING"
    await world.queue.drain([first.name, second.name], "springtide: leaves")
    await world.queue.requeue([job, str(int(job) + 1)])
    await until(world, lambda _: state() not in ("COMPLETING", "RUNNING"))
    assert (state(), bed.field("job", job, "Restarts")) == ("CANCELLED", "0")


@pytest.mark.parametrize(
    ("booted", "by_hand"), [(False, False), (False, True), (True, False), (True, True)], ids=str
)
async def test_a_node_that_somebody_drains_while_it_boots_is_there_when_it_is_undrained(
    world: World, bed: SlurmBed, booted: bool, by_hand: bool
) -> None:
    """slurmctld itself leaves it down, whether or not its slurmd had started before that."""
    name = NAMES[0]
    await world.queue.prepare(world.members)
    await world.queue.join(world.members[:1])
    if booted:
        await world.node_boots(name)
        await heard(world, name)
    await world.drain_by_hand(name)
    if not booted:
        await world.node_boots(name)
    await until(world, lambda seen: seen.nodes[name].health is Health.UP)
    seen = await node(world, name)
    assert (seen.drained, seen.reason) == (True, "by hand")
    if by_hand:
        await asyncio.to_thread(bed.told, "scontrol", "update", f"nodename={name}", "state=undrain")
        await until(world, lambda seen: seen.nodes[name].health is Health.UP)
        seen = await node(world, name)
        serves = booted and not seen.drained  # slurmctld itself may take it back then
        assert serves or (seen.drained and seen.reason.startswith("springtide"))
    await world.queue.undrain([name])
    await until(world, lambda seen: not seen.nodes[name].drained)
    await running(world)


def make_world(bed: SlurmBed) -> World:
    commands = Watched(bed.conf, "is batch.attach right?")

    def client(commands: Commands) -> Queue:
        return SlurmQueue(commands, NAMES)

    async def submit(ask: Ask) -> str:
        return await asyncio.to_thread(bed.sbatch, *_options(ask))

    async def end(id: str) -> None:
        await asyncio.to_thread(bed.told, "scancel", id)

    async def boots(name: str) -> None:
        bed.boot(name)

    async def dies(name: str) -> None:
        await asyncio.to_thread(bed.cut, name)

    async def server_down() -> None:
        await asyncio.to_thread(bed.stop_slurmctld)

    async def server_up() -> None:
        await asyncio.to_thread(bed.start_slurmctld)

    async def by_hand(name: str) -> None:
        change = ("scontrol", "update", f"nodename={name}", "state=drain", "reason=by hand")
        await asyncio.to_thread(bed.told, *change)

    async def told(id: str) -> str:
        said = await asyncio.to_thread(bed.told, "scontrol", "show", "job", id)
        return said.partition("AdminComment=")[2].partition("\n")[0]

    return World(
        queue=client(commands),
        members=[
            Member(name, bed.addresses[name], 4, 1000, ("big",), ("cloud",)) for name in NAMES
        ],
        submit=submit,
        end=end,
        node_boots=boots,
        node_dies=dies,
        server_down=server_down,
        server_up=server_up,
        drain_by_hand=by_hand,
        told=told,
        premises="static1",
        elsewhere="old",
        both_queues=True,
        feature="big",
        spoil=commands.tampered.spoil,
        prepares=False,
        powerless=lambda: client(Watched(bed.conf, "", before=OTHER)),
        commandless=lambda: client(Watched(bed.conf, "", place="/nowhere/")),
        commands=lambda: commands.tampered.count,
        gap=commands.tampered.gap,
        silence_s=200.0,
        remain=True,
    )


def _options(ask: Ask) -> list[str]:
    (chunk,) = ask.chunks
    options = [f"--partition={ask.queue}", f"--job-name={ask.name}", *_size(chunk)]
    options += [f"--array=1-{ask.tasks}"] if ask.tasks > 1 else []
    options += ["--hold"] if ask.held else []
    options += [f"--dependency=afterany:{ask.after}"] if ask.after else []
    return options


def _size(chunk: Chunk) -> list[str]:
    options = [f"--nodes={chunk.count}", "--ntasks-per-node=1", f"--cpus-per-task={chunk.cores}"]
    options += [f"--mem={chunk.memory}"] if chunk.memory else []
    options += [f"--constraint={'&'.join(sorted(chunk.features))}"] if chunk.features else []
    return options
