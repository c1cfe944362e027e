"""Nodes that come up and take no jobs, because of what they all have: few start, and it is said.

The daemon is the real one; cloud and batch system are made up, and so is time.
"""

import asyncio
from pathlib import Path

import pytest

from springtide.daemon import Daemon
from springtide.model import Kind
from springtide.polling import EXHAUSTED, VAIN
from tests.sim.queue_world import QueueWorld, is_over, text, until
from tests.sim.test_polled import play, said
from tests.sim.test_polled_why import why


@pytest.mark.accepts("N2")
def test_a_prolog_that_breaks_every_node_costs_few_of_them_and_jobs_run_when_it_is_mended(
    tmp_path: Path,
) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        world.queue.spoils = True
        job = world.queue.submit(duration_s=60)
        most = 0
        for _ in range(7200 // 10):
            await asyncio.sleep(10)
            most = max(most, len(world.up))
        made = await daemon.parts.record.store.operations(limit=1000)
        starts = [one for one in made if one.kind is Kind.RESUME]
        assert 5 <= len(starts) <= 7
        assert most <= 3
        assert VAIN in daemon.poller.troubles
        assert await said(daemon, EXHAUSTED) == []
        told = await why(daemon, job.id)
        assert told["now"] == "job 1 waits: nodes of general come up and take no jobs."
        assert told["next"].startswith("no more of them start; Springtide tries again in ")
        world.queue.spoils = False
        await until(lambda: is_over(job), 3600 + 300)
        await until(lambda: not world.up)
        await asyncio.sleep(30)
        assert VAIN not in daemon.poller.troubles

    play(story, tmp_path, text(nodes=9))


def test_a_node_that_somebody_mends_is_used_at_once(tmp_path: Path) -> None:
    async def story(world: QueueWorld, daemon: Daemon) -> None:
        world.queue.spoils = True
        job = world.queue.submit(duration_s=120)
        await until(lambda: VAIN in daemon.poller.troubles)
        world.queue.spoils = False
        (name, *_) = sorted(world.up)
        world.queue.node(name).shut = False
        world.queue._soon()
        await until(lambda: is_over(job), 180)
        assert VAIN not in daemon.poller.troubles

    play(story, tmp_path, text(nodes=9, idle="10m"))
