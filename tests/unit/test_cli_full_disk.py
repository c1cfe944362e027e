"""A record that cannot be written: what was done all the same is told, and status shows it."""

import sqlite3
from collections.abc import Iterator

import pytest

from springtide.store.sqlite import SqliteStore
from tests.unit.cli_world import World, served

FULL = "the record could not be written: database or disk is full"
FILL = """CREATE TEMP TRIGGER full BEFORE INSERT ON events
BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"""
EMPTY = "DROP TRIGGER full"


@pytest.fixture
def world() -> Iterator[World]:
    with served() as world:
        yield world


def disk(world: World, change: str) -> None:
    async def fill() -> None:
        store = world.daemon.parts.record.store
        assert isinstance(store, SqliteStore)
        await store._do(sqlite3.Connection.execute, change)

    world.call(fill)


def test_a_drain_that_could_not_be_recorded_says_that_the_node_is_drained(world: World) -> None:
    disk(world, FILL)
    done = world.run("drain", "c3", "--reason", "bad fan")
    assert done.code == 1
    assert f"c3: drained, as you wanted, but {FULL}; make room in " in done.err
    assert world.rows()["c3"]["batch"]["drained"]
    done = world.run("undrain", "c3")
    assert f"c3: undrained, as you wanted, but {FULL}" in done.err
    done = world.run("resume", "c1")
    assert f"c1: resume asked of the batch system, as you wanted, but {FULL}" in done.err


def test_status_says_that_the_record_cannot_be_written_until_it_can(world: World) -> None:
    assert "\nrecord" not in world.run("status").out
    disk(world, FILL)
    world.run("drain", "c3", "--reason", "bad fan")
    told = f"record    {FULL}; make room in {world.layout.state}"
    assert told in world.run("status").out
    disk(world, EMPTY)
    assert told in world.run("status").out, "a look is no proof"
    world.run("undrain", "c3")
    assert "\nrecord" not in world.run("status").out
