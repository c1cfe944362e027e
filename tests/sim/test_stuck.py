"""Jobs that a quota keeps from starting, which the batch system does not tell: nodes come and go.

The daemon is the real one; cloud and batch system are made up, and so is time.
"""

import asyncio
from pathlib import Path

import pytest

from springtide.daemon import Daemon
from springtide.model import Kind
from springtide.polling import STUCK
from springtide.ports import Chunk
from tests.sim.queue_world import QueueWorld, is_over, text, until
from tests.sim.test_polled import play, said
from tests.sim.test_polled_why import why

DAY_S = 86400.0


@pytest.mark.accepts("N2", "B18")
def test_a_job_beyond_a_quota_keeps_no_node_and_starts_ever_fewer(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        world.queue.quotas["ann"] = 1
        first = world.queue.submit(duration_s=3600)
        second = world.queue.submit(duration_s=60)
        await until(lambda: len(world.up) == 2)
        await until(lambda: len(world.up) == 1)
        assert (first.ended_at, second.started_at) == (None, None)
        (words,) = await said(daemon, STUCK)
        assert words.startswith("jobs of ann (such as 2): nodes that would hold them stood free")
        assert STUCK in daemon.poller.troubles
        told = await why(daemon, second.id)
        assert told["now"] == (
            "job 2 waits, but not for nodes: such as would hold it stood free, and Torque did not "
            "start it; a quota, a limit or access may keep it, or its scheduler stands still."
        )
        assert told["next"].startswith("no node is started or kept for it; Springtide tries again")
        assert told["do"] == "`qstat -f 2` tells more"
        await until(lambda: is_over(first), 7200)
        await until(lambda: is_over(second), 90)
        await until(lambda: not world.up)
        await asyncio.sleep(30)
        assert STUCK not in daemon.poller.troubles

    play(story, tmp_path, text(nodes=3))


@pytest.mark.accepts("N2", "B18")
def test_a_job_that_never_may_start_costs_few_nodes_in_a_day_and_runs_once_it_may(
    tmp_path: Path,
) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        world.queue.quotas["ann"] = 0
        wide = world.queue.submit(Chunk(count=2), duration_s=60)
        await asyncio.sleep(DAY_S)
        made = await daemon.parts.record.store.operations(limit=1000)
        starts = [one for one in made if one.kind is Kind.RESUME]
        assert 20 <= len(starts) <= 26
        assert not world.up
        del world.queue.quotas["ann"]
        await until(lambda: is_over(wide), 3600 + 600)

    play(story, tmp_path, text(nodes=3))


def test_others_are_served_at_once_beside_jobs_that_are_stuck(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        world.queue.quotas["ann"] = 0
        for _ in range(50):
            world.queue.submit()
        await until(lambda: len(world.up) == 3)
        await until(lambda: not world.up)
        others = [world.queue.submit(duration_s=60, user="bob") for _ in range(6)]
        await until(lambda: is_over(*others), 300)
        assert len(world.queue.open_jobs) == 50

    play(story, tmp_path, text(nodes=3))


def test_a_scheduler_that_lets_nobody_by_a_wide_job_strands_nobody(tmp_path: Path) -> None:
    """The small job may not start before the wide one, which lacks a busy node for an hour."""

    async def story(world: QueueWorld, daemon: Daemon) -> None:
        long = world.queue.submit(duration_s=3600)
        await until(lambda: long.started_at is not None)
        world.queue.quotas["bob"] = 0
        wide = world.queue.submit(Chunk(count=3), duration_s=60)
        small = world.queue.submit(duration_s=60, user="bob")
        await asyncio.sleep(3000)
        assert await said(daemon, STUCK) == []
        assert len(world.up) == 2
        await until(lambda: is_over(wide), 1200)
        world.queue.quotas.clear()
        world.queue._soon()
        await until(lambda: is_over(small), 120)

    play(story, tmp_path, text(nodes=3))
