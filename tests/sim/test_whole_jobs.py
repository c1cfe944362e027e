"""Jobs of several nodes start whole or not at all, and what is spare serves other jobs or goes."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from springtide.batch.fake import Timing
from springtide.daemon import Daemon
from springtide.model import Kind, NodeState, Operation, Request
from springtide.ports import Job, NoCapacity, Rejected
from springtide.providers.fake import Faults
from tests.sim.world import SPEC, Life, World

pytestmark = pytest.mark.looptime

PLACE = ("zone-1", "default")
PATIENT = Timing(latency_s=0.01, join_s=1, idle_s=300, suspend_timeout_s=30)
ANY = SPEC.replace("}}}}", ", start: any}}}}")


class Queue(World):
    """A world whose batch system tells which job has which nodes, as Slurm's resume file does."""

    pieces = 1
    """The nodes are asked for in so many calls, a second apart: Slurm's ResumeRate."""

    def __init__(self, tmp_path: Path, nodes: int, capacity: int, **options: Any) -> None:
        super().__init__(tmp_path, nodes, timing=PATIENT, **options)
        self.cloud.capacity[PLACE] = capacity
        self.wide: dict[str, dict[str, str]] = {}

    def _resume(self, nodes: Sequence[str], jobs: Sequence[Job]) -> None:
        size = -(-len(nodes) // self.pieces)
        for after_s, start in enumerate(range(0, len(nodes), size)):
            some = nodes[start : start + size]
            asyncio.get_running_loop().call_later(after_s, self._resume_some, some, list(jobs))

    def _resume_some(self, nodes: Sequence[str], jobs: Sequence[Job]) -> None:
        wide = {job.id: job.nodes for job in jobs if job.node_count > 1}
        self.wide[f"r{self._requests + 1:05}"] = wide
        super()._resume(nodes, jobs)

    def _hand_over(self, daemon: Daemon, request: Request) -> None:
        super()._hand_over(daemon, replace(request, wide=self.wide.get(request.id, {})))

    @property
    def alive(self) -> set[str]:
        return {instance.node for instance in self.cloud.alive()}


async def until(done: Callable[[], object], limit_s: float = 900) -> None:
    async with asyncio.timeout(limit_s):
        while not done():
            await asyncio.sleep(0.25)


async def events(daemon: Daemon, what: str) -> dict[str | None, str]:
    found = await daemon.parts.record.store.events()
    return {event.node: event.detail for event in found if event.what == what}


async def resumes(daemon: Daemon) -> list[Operation]:
    found = await daemon.parts.record.store.operations()
    return [operation for operation in found if operation.kind is Kind.RESUME]


@pytest.mark.accepts("X10")
async def test_of_a_job_that_lacks_a_node_nothing_stays_up(tmp_path: Path) -> None:
    world = Queue(tmp_path, nodes=4, capacity=3)
    job = world.batch.submit(4, 10)
    async with world.living(Life()) as daemon:
        await until(lambda: job.requeues and not world.alive, 10)
        reasons = await events(daemon, "node failed")
        assert reasons["c4"].startswith("the provider is full: ")
        for name in ("c1", "c2", "c3"):
            assert reasons[name] == f"spare: job 1 lacks c4 ({reasons['c4']}) and cannot start"
        assert await events(daemon, "spare node kept") == {}
        (told,) = world.batch.told
        assert told == ("1", f"c4 could not start, so the job waits again: {reasons['c4']}")
        world.cloud.capacity.clear()
        await until(lambda: job.state == "COMPLETED")


async def test_it_is_given_up_before_it_has_booted(tmp_path: Path) -> None:
    slow = Faults(before_s=0.1, after_s=0.1, boot_s=60, delete_s=3)
    world = Queue(tmp_path, nodes=4, capacity=3, faults=slow)
    job = world.batch.submit(4, 10)
    async with world.living(Life()):
        await until(lambda: job.requeues and not world.alive, 10)


async def test_it_is_given_up_also_if_it_came_up_while_others_were_still_being_made(
    tmp_path: Path,
) -> None:
    quick = Faults(before_s=0.1, after_s=8, boot_s=1, delete_s=3)
    world = Queue(tmp_path, nodes=4, capacity=3, faults=quick)
    job = world.batch.submit(4, 10)
    async with world.living(Life()) as daemon:
        await until(lambda: job.requeues, 30)
        await daemon.engine.idle()
        assert world.alive == set()
    assert world.batch.killed_jobs == {}


@pytest.mark.accepts("X10")
async def test_of_two_jobs_that_lack_nodes_one_runs_on_the_nodes_of_both(tmp_path: Path) -> None:
    """c1 is refused, and c6 finds no room: four are made, three of one job and one of the other."""
    world = Queue(tmp_path, nodes=6, capacity=4)
    world.cloud.faults.refused_nodes["c1"] = Rejected("bad image")
    wide, narrow = world.batch.submit(4, 10), world.batch.submit(2, 10)
    async with world.living(Life()) as daemon:
        await until(lambda: wide.state == "RUNNING", 60)
        assert wide.nodes == ("c2", "c3", "c4", "c5")
        assert wide.requeues == 1
        nodes = daemon.parts.record.nodes
        assert {nodes[name].generation for name in wide.nodes} == {1}, "none was made twice"
        kept = await events(daemon, "spare node kept")
        assert set(kept) == set(wide.nodes)
        assert "job 1 lacks c1 (the provider refused the request: bad image)" in kept["c2"]
        assert "job 2 lacks c6 (the provider is full: " in kept["c5"]
        await until(lambda: narrow.state == "COMPLETED")
        assert {nodes[name].generation for name in wide.nodes} == {1}
    assert world.batch.killed_jobs == {}


async def test_spares_serve_a_smaller_job_behind_and_only_the_rest_goes(tmp_path: Path) -> None:
    world = Queue(tmp_path, nodes=4, capacity=3)
    wide, narrow = world.batch.submit(4, 10), world.batch.submit(2, 10)
    async with world.living(Life()) as daemon:
        await until(lambda: wide.nodes, 10)
        await world.batch.close()  # until the spares are up: Slurm would give them earlier
        await until(lambda: wide.requeues and len(world.alive) == 2, 10)
        assert set(await events(daemon, "spare node kept")) == {"c1", "c2"}
        await daemon.engine.idle()
        await world.batch.open()
        await until(lambda: narrow.state == "COMPLETED", 60)
        assert narrow.nodes == ("c1", "c2")
        assert narrow.requeues == 0
        assert {daemon.parts.record.nodes[name].generation for name in narrow.nodes} == {1}


async def test_a_job_that_has_all_its_nodes_is_left_alone(tmp_path: Path) -> None:
    world = Queue(tmp_path, nodes=5, capacity=4)
    whole, broken = world.batch.submit(2, 60), world.batch.submit(3, 10)
    async with world.living(Life()):
        await until(lambda: broken.requeues and world.alive == {"c1", "c2"}, 10)
        await until(lambda: whole.state == "COMPLETED", 100)
        assert whole.requeues == 0


async def test_a_job_of_one_node_keeps_one(tmp_path: Path) -> None:
    world = Queue(tmp_path, nodes=3, capacity=2)
    wide, single = world.batch.submit(3, 10), world.batch.submit(1, 10)
    async with world.living(Life()) as daemon:
        await until(lambda: wide.nodes, 10)
        await world.batch.close()
        await until(lambda: wide.requeues and len(world.alive) == 1, 10)
        await daemon.engine.idle()
        await world.batch.open()
        await until(lambda: single.state == "COMPLETED", 60)
        assert single.nodes == ("c1",)


@pytest.mark.accepts("X10")
async def test_a_group_that_starts_any_keeps_all_that_could_be_made(tmp_path: Path) -> None:
    world = Queue(tmp_path, nodes=4, capacity=3, text=ANY.format(nodes=4, lock="10m"))
    job = world.batch.submit(4, 10)
    async with world.living(Life()) as daemon:
        await until(lambda: job.requeues, 10)
        world.cloud.capacity.clear()
        await until(lambda: job.state == "COMPLETED")
        nodes = daemon.parts.record.nodes
        assert {nodes[name].generation for name in ("c1", "c2", "c3")} == {1}
        assert set(await events(daemon, "spare node kept")) == {"c1", "c2", "c3"}


@pytest.mark.accepts("X10")
async def test_a_job_of_a_thousand_nodes_starts_whole_or_not_at_all(tmp_path: Path) -> None:
    world = Queue(tmp_path, nodes=1000, capacity=999)
    job = world.batch.submit(1000, 10)
    async with world.living(Life()) as daemon:
        await until(lambda: job.requeues and not world.alive, 60)
        first = min(await resumes(daemon), key=lambda operation: operation.id)
        assert len(first.fallen) == 1000
        assert world.batch.calls["give_back"] == 2, "one for each kind of reason"
        assert world.batch.calls["jobs"] == 2, "one to decide, one to tell owners"
        world.cloud.capacity.clear()
        await until(lambda: job.state == "COMPLETED")
    assert world.cloud.duplicates() == []


async def test_nodes_that_were_asked_for_in_several_calls_go_together(tmp_path: Path) -> None:
    slow = Faults(before_s=0.1, after_s=0.1, boot_s=60, delete_s=3)
    world = Queue(tmp_path, nodes=4, capacity=3, faults=slow)
    world.pieces = 2
    job = world.batch.submit(4, 10)
    async with world.living(Life()) as daemon:
        await until(lambda: job.requeues and not world.alive, 20)
        assert len(await resumes(daemon)) >= 2
        reasons = await events(daemon, "node given back")
        assert "job 1 lacks c4" in reasons["c1"]
        world.cloud.capacity.clear()
        await until(lambda: job.state == "COMPLETED")
    assert world.cloud.duplicates() == []


async def test_nothing_is_given_up_while_the_batch_system_is_away(tmp_path: Path) -> None:
    world = Queue(tmp_path, nodes=4, capacity=3)
    job = world.batch.submit(4, 10)
    async with world.living(Life()) as daemon:
        world.batch.unavailable = True
        await until(lambda: world.batch.calls["jobs"], 30)
        world.batch.unavailable = False
        await until(lambda: job.requeues, 60)
        await daemon.engine.idle()
        assert len(world.alive) == 3
        told = await events(daemon, "spare nodes kept")
        assert "does not tell who could use them" in told[None]
        world.cloud.capacity.clear()
        await until(lambda: job.state == "COMPLETED")


async def _cut_off(world: Queue, dies_at: int | None) -> int:
    """Two jobs, of which one lacks a node until it was queued again; all end, and all nodes go."""
    world.batch.timing.idle_s = 20
    world.cloud.faults.refused_nodes["c3"] = NoCapacity("none left")
    wide, narrow = world.batch.submit(3, 5), world.batch.submit(2, 5)
    life = Life(dies_at)

    def over() -> bool:
        done = wide.state == narrow.state == "COMPLETED"
        return done and not world.cloud.alive() and not world.spool

    async with world.living(life):
        await until(lambda: wide.requeues or life.over.is_set())
        world.cloud.faults.refused_nodes.clear()
        await until(lambda: over() or life.over.is_set())
    if life.over.is_set():
        await asyncio.sleep(2)
        async with world.living(Life()) as daemon:
            await until(over)
            await daemon.engine.idle()
    return life.passed


async def _assert_clean(world: World) -> None:
    assert world.cloud.duplicates() == []
    assert world.batch.killed_jobs == {}
    async with world.living(Life()) as daemon:
        await daemon.engine.idle()
        store = daemon.parts.record.store
        assert {node.state for node in (await store.nodes()).values()} == {NodeState.OFF}
        assert await store.operations(unfinished=True) == []


@pytest.mark.accepts("X1", "X10")
async def test_a_kill_while_spares_are_sorted_leaves_nothing_behind(tmp_path: Path) -> None:
    points = await _cut_off(Queue(tmp_path / "whole", nodes=3, capacity=9), None)
    for dies_at in range(1, points + 1, points // 30):
        print("killed at await point", dies_at, "of", points)
        world = Queue(tmp_path / f"killed-{dies_at}", nodes=3, capacity=9)
        await _cut_off(world, dies_at)
        await _assert_clean(world)
