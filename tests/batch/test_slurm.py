"""A real Slurm that asks for nodes itself does what every batch system does."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count

import pytest

from springtide.batch import slurm_nodes
from springtide.batch.slurm import Slurm
from springtide.ports import Site
from tests.batch.batch_conformance import BatchConformance
from tests.batch.batch_world import BatchWorld
from tests.e2e.slurm_lab import Lab, early_in_a_second, made_lab, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

MOST = 40
"""Tests; each has a partition of its own, so that one Slurm does for all of them."""
NODES = 2


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Lab, Slurm]]:
    with asyncio.Runner() as runner:
        making = made_lab()
        lab = runner.run(making.__aenter__())
        try:
            yield lab, runner.run(lab.up(groups=_groups(), partitions=_partitions()))
        finally:
            runner.run(making.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def turns() -> Iterator[int]:
    return count()


@pytest.fixture
async def world(
    shared: tuple[Lab, Slurm], turns: Iterator[int], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[BatchWorld]:
    """On a busy machine slurmctld may take its time to begin with what it is asked for."""
    monkeypatch.setattr(slurm_nodes, "BEGIN_S", 60.0)
    lab, slurm = shared
    with ExitStack() as stack:
        world = make_world(lab, slurm, stack, next(turns))
        yield world
        lab.run("scancel", "--full", "--user=root")

        async def empty() -> bool:
            return not await slurm.jobs()

        await until(empty)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmWorld(BatchWorld):
    """One that starts nodes by itself as soon as a job needs them."""

    submit_held: Callable[[], Awaitable[str]]


class TestSlurm(BatchConformance):
    """The fixture is the module's."""

    async def test_while_it_is_away_nothing_is_answered_and_nothing_done(
        self, world: BatchWorld
    ) -> None:
        """For a job that is not held it might start a node before it is away."""
        assert isinstance(world, SlurmWorld)
        await super().test_while_it_is_away_nothing_is_answered_and_nothing_done(
            replace(world, submit=world.submit_held)
        )


def make_world(lab: Lab, slurm: Slurm, stack: ExitStack, turn: int) -> SlurmWorld:
    site = Site(lab.address)
    running: dict[str, ExitStack] = {}

    async def boots(name: str) -> None:
        """Slurm counts whole seconds since a node booted: it might seem to have been there when
        it was asked for, if it begins in the same one."""
        now = int(time.time())
        await until(lambda: early_in_a_second(after=now))
        machine = running[name] = stack.enter_context(ExitStack())
        machine.enter_context(lab.slurmd(name))

    async def dies(name: str) -> None:
        running.pop(name).close()

    async def submit(*options: str) -> str:
        return lab.submit("-p", f"p{turn}", "-N1", "--exclusive", *options, seconds=600)

    async def server_down() -> None:
        os.kill(lab.pid(), signal.SIGTERM)

        async def gone() -> bool:
            return await slurm.standing() == "slurmctld does not run"

        await until(gone)

    async def by_hand(name: str) -> None:
        lab.admin_drains(name, "by hand")

    async def told(id: str) -> str:
        said = lab.run("scontrol", "show", "job", id)
        return said.partition("AdminComment=")[2].partition("\n")[0]

    return SlurmWorld(
        batch=slurm,
        addresses=lab.places(*_nodes(turn)),
        submit=submit,
        submit_held=lambda: submit("--hold"),
        node_boots=boots,
        node_dies=dies,
        server_down=server_down,
        server_up=lambda: slurm.reload(site),
        drain_by_hand=by_hand,
        told=told,
        site=site,
        begun="POWERING_UP",
    )


def _nodes(turn: int) -> list[str]:
    return [f"c{turn * NODES + at}" for at in range(1, NODES + 1)]


def _groups() -> dict[str, object]:
    return {f"g{turn}": {"nodes": ",".join(_nodes(turn))} for turn in range(MOST)}


def _partitions() -> dict[str, object]:
    return {f"p{turn}": {"groups": [f"g{turn}"]} for turn in range(MOST)}
