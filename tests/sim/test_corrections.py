"""A batch system that refuses something for one node: all else is done and told all the same."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from springtide.api import troubles
from springtide.daemon import Daemon
from springtide.ports import Power, Unavailable
from tests.sim.test_repair import made, until, up
from tests.sim.world import Life, World

pytestmark = pytest.mark.looptime

REFUSED, GIVEN = "refused by the batch system", "given to the batch system again"
NAMES = ["c1", "c2", "c3"]


def refuse(world: World, monkeypatch: pytest.MonkeyPatch, call: str, name: str = "c2") -> None:
    """As scontrol does: one node that is refused spoils the command."""
    takes = getattr(world.batch, call)

    async def picky(nodes: Iterable[str], *rest: Any, **named: Any) -> None:
        if name in nodes:
            raise Unavailable(f"slurm_update error: {name} is reserved")
        await takes(nodes, *rest, **named)

    monkeypatch.setattr(world.batch, call, picky)


async def told(daemon: Daemon, what: str) -> dict[str, list[str]]:
    """What was said of each node, the newest first."""
    found: dict[str, list[str]] = {}
    for event in await daemon.parts.record.store.events(limit=1000):
        if event.what == what and event.node:
            found.setdefault(event.node, []).append(event.detail)
    return found


async def test_a_node_that_is_not_opened_keeps_no_other_closed_and_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = made(tmp_path)
    async with world.living(Life()) as daemon:
        with monkeypatch.context() as meanwhile:
            refuse(world, meanwhile, "undrain")
            await world.batch.drain(NAMES, "held: no room")
            await asyncio.sleep(600)
            assert [name for name in NAMES if world.batch.node(name).drained] == ["c2"]
            assert set(await told(daemon, GIVEN)) == {"c1", "c3"}
            why = "undrain: slurm_update error: c2 is reserved"
            assert await told(daemon, REFUSED) == {"c2": [why]}
            (line,) = (await troubles.shown(daemon))[REFUSED]
            assert line.startswith(f"c2: {why}; the batch system answers, so see in its log")
        await until(lambda: not world.batch.node("c2").drained, 60)
        await asyncio.sleep(60)
        assert set(await told(daemon, GIVEN)) == set(NAMES)
        assert REFUSED not in await troubles.shown(daemon)


async def test_what_was_done_is_told_though_a_later_command_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = made(tmp_path)
    async with world.living(Life()) as daemon:
        await up(world, daemon, 2)
        refuse(world, monkeypatch, "set_addresses")
        right = [world.batch.node(name).address for name in ("c1", "c2")]
        for name in ("c1", "c2"):
            world.batch.node(name).address = "127.64.9.9"
        await world.batch.drain(["c3"], "held: no room")
        await asyncio.sleep(120)
        assert set(await told(daemon, GIVEN)) == {"c3"}
        assert world.batch.node("c1").address == right[0]
        assert await told(daemon, REFUSED) == {
            "c2": ["set address: slurm_update error: c2 is reserved"]
        }


async def test_a_node_that_is_not_released_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = made(tmp_path)
    async with world.living(Life()) as daemon:
        refuse(world, monkeypatch, "release")
        for name in NAMES:
            world.batch.node(name).down = True
        await asyncio.sleep(600)
        assert [name for name in NAMES if world.batch.node(name).down] == ["c2"]
        assert set(await told(daemon, GIVEN)) == {"c1", "c3"}
        assert set(await told(daemon, REFUSED)) == {"c2"}


async def test_a_persons_drain_that_cannot_be_made_again_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = made(tmp_path)
    async with world.living(Life()) as daemon:
        refuse(world, monkeypatch, "drain")
        for name in NAMES:
            node = world.batch.node(name)
            node.power, node.owner, node.reason = Power.DOWN, "ada", "fan"
        await asyncio.sleep(60)
        assert [name for name in NAMES if not world.batch.node(name).drained] == ["c2"]
        assert set(await told(daemon, REFUSED)) == {"c2"}


async def test_a_batch_system_that_is_away_for_a_while_is_told_of_no_node(tmp_path: Path) -> None:
    world = made(tmp_path)
    async with world.living(Life()) as daemon:
        await world.batch.drain(NAMES, "held: no room")
        world.batch.unavailable = True
        await asyncio.sleep(300)
        world.batch.unavailable = False
        await until(lambda: not any(world.batch.node(name).drained for name in NAMES), 60)
        assert await told(daemon, REFUSED) == {}
