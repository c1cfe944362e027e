"""Holds outlive the daemon; records of an older version get the columns they lack."""

import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.model import Cause, Hold, Node, NodeState, Request
from springtide.store import SqliteStore, open_sqlite
from springtide.store.sqlite import connect, migrations

PLACE = Hold("place:zone-a/small/@fake", Cause.CAPACITY, "zone-a is full", 1, 100.0, 220.0)
GROUP = Hold("group:general", Cause.QUOTA, "no more than 10", 2, 50.0, 1250.0)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = open_sqlite(tmp_path / "record.db")
    yield opened
    await opened.close()


@pytest.mark.accepts("X4")
async def test_holds_are_there_after_a_restart(tmp_path: Path) -> None:
    first = open_sqlite(tmp_path / "record.db")
    await first.hold(PLACE)
    await first.hold(GROUP)
    await first.close()
    second = open_sqlite(tmp_path / "record.db")
    assert await second.holds() == {PLACE.key: PLACE, GROUP.key: GROUP}
    await second.close()


async def test_a_hold_takes_the_place_of_the_one_before_it(store: SqliteStore) -> None:
    await store.hold(PLACE)
    longer = replace(PLACE, count=2, until=460.0)
    await store.hold(longer)
    assert await store.holds() == {PLACE.key: longer}


async def test_only_the_hold_that_is_lifted_goes_and_twice_is_fine(store: SqliteStore) -> None:
    await store.hold(PLACE)
    await store.hold(GROUP)
    await store.lift(PLACE.key)
    await store.lift(PLACE.key)
    assert await store.holds() == {GROUP.key: GROUP}


async def test_what_a_node_was_started_with_is_kept(store: SqliteStore) -> None:
    node = Node("c1", "general", config="first")
    await store.define([node])
    [moved] = await store.move([node.to(NodeState.REQUESTED, config="second")], [])
    assert (await store.nodes())["c1"] == moved
    assert moved.config == "second"


async def test_a_request_is_read_with_its_jobs_of_several_nodes(store: SqliteStore) -> None:
    request = Request("r1", "resume", ("c1", "c2", "c3"), 5.0, ("7", "8"), {"7": "c[1-2]"})
    await store.receive(request)
    assert await store.waiting() == [request]


async def test_a_record_of_the_version_before_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    _write_as_before(path)
    store = SqliteStore(connect(path))
    assert (await store.nodes())["c1"] == Node("c1", "general", NodeState.READY, rebuilds=3)
    assert await store.waiting() == [Request("r1", "resume", ("c1",), 5.0)]
    assert await store.holds() == {}
    await store.close()


def _write_as_before(path: Path) -> None:
    """A node and a request in a record of schema 2."""
    db = sqlite3.connect(path)
    for _, sql in migrations()[:2]:
        db.executescript(sql)
    db.execute(
        "INSERT INTO nodes (name, grp, state, generation, reason, changed_at, rebuilds)"
        " VALUES ('c1', 'general', 'ready', 0, '', 0, 3)"
    )
    db.execute("INSERT INTO requests VALUES ('r1', 'resume', 'c1', 5.0, '[]', 0)")
    db.execute("PRAGMA user_version = 2")
    db.commit()
    db.close()
