"""The daemon takes what the hook spooled, whatever else lies there and whatever fails meanwhile."""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from springtide.model import Event
from springtide.ports import StoreError
from tests.sim.world import Life, World

pytestmark = pytest.mark.looptime

REFUSED = "spooled request refused"


def spool(world: World, name: str, **change: object) -> None:
    world.layout.spool.mkdir(exist_ok=True)
    request = {"program": "resume", "id": name, "at": 1, "nodes": "c1", **change}
    (world.layout.spool / f"{name}.json").write_text(json.dumps(request))


def lying(world: World) -> list[str]:
    return sorted(path.name for path in world.layout.spool.iterdir() if path.name[0] != ".")


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0.25)


async def events(world: World, what: str) -> Sequence[Event]:
    assert world.daemon is not None
    found = await world.daemon.parts.record.store.events()
    return [event for event in found if event.what == what]


async def test_strange_files_do_not_keep_requests_from_being_taken(tmp_path: Path) -> None:
    world = World(tmp_path)
    spool(world, "1", id="\ud800")
    spool(world, "2", at=float("nan"))
    (world.layout.spool / "3.json").mkdir()
    os.mkfifo(world.layout.spool / "4.json")
    (world.layout.spool / os.fsdecode(b"5\xff.json")).write_text("[" * 200_000)
    spool(world, "6", nodes="c2")
    async with world.living(Life()):
        await until(lambda: lying(world) == [])
        assert len(await events(world, REFUSED)) == 5
        spool(world, "7", nodes="c3")
        await until(lambda: lying(world) == [])
        await asyncio.sleep(10)
        assert len(await events(world, REFUSED)) == 5, "each is told once"
        assert world.daemon is not None
        opened = await world.daemon.parts.record.store.operations()
        assert {name for one in opened for name in one.nodes} >= {"c2", "c3"}


async def test_a_record_that_fails_for_a_while_loses_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    async with world.living(Life()) as daemon:

        async def full(*_: object) -> None:
            raise StoreError("disk full")

        store = daemon.parts.record.store
        with monkeypatch.context() as broken:
            broken.setattr(store, "receive", full)
            broken.setattr(store, "append", full)
            spool(world, "1")
            spool(world, "2", nodes="")
            await asyncio.sleep(10)
            assert lying(world) == ["1.json", "2.json"]
        await until(lambda: lying(world) == [])
        assert len(await events(world, REFUSED)) == 1


async def test_a_request_that_meets_a_defect_does_not_hold_up_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    async with world.living(Life()) as daemon:
        take = daemon.parts.record.store.receive

        async def stumble(request: object) -> bool:
            if getattr(request, "id", "") == "1":
                raise ZeroDivisionError
            return await take(request)  # type: ignore[arg-type]

        monkeypatch.setattr(daemon.parts.record.store, "receive", stumble)
        spool(world, "1")
        spool(world, "2", nodes="c2")
        await until(lambda: lying(world) == ["1.json"])
        monkeypatch.undo()
        await until(lambda: lying(world) == [])
