"""The SQLite store: compare-and-set, leases, events that stay, requests that are not lost."""

import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.model import (
    Event,
    Kind,
    Move,
    Node,
    NodeState,
    Operation,
    OperationState,
    Request,
)
from springtide.ports import StoreError
from springtide.store import SqliteStore, open_sqlite
from springtide.store.sqlite import connect, migrations


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = open_sqlite(tmp_path / "record.db")
    yield opened
    await opened.close()


async def test_nodes_are_kept_when_they_are_defined_again(store: SqliteStore) -> None:
    node = Node("c1", "general")
    await store.define([node])
    await store.move([node.to(NodeState.REQUESTED, generation=1)], [])
    await store.define([Node("c1", "renamed"), Node("c2", "renamed")])
    found = await store.nodes()
    assert found["c1"] == replace(node, group="renamed", state=NodeState.REQUESTED, generation=1)
    assert found["c2"].state is NodeState.OFF


async def test_only_asked_nodes_are_read(store: SqliteStore) -> None:
    await store.define(Node(f"c{n}", "general") for n in range(10))
    assert set(await store.nodes(["c3", "c7", "absent"])) == {"c3", "c7"}


async def test_a_move_loses_against_one_that_came_before_it(store: SqliteStore) -> None:
    node = Node("c1", "general")
    await store.define([node])
    move = node.to(NodeState.REQUESTED, generation=1)
    event = Event(1.0, "node requested", "c1")
    assert await store.move([move], [event]) == [move.after]
    assert await store.move([move], [event]) == []
    assert len(await store.events()) == 1


async def test_a_move_of_a_former_generation_is_refused(store: SqliteStore) -> None:
    old = Node("c1", "general", NodeState.READY, generation=1)
    await store.define([replace(old, generation=2)])
    assert await store.move([old.to(NodeState.DELETING)], []) == []


async def test_leases_are_all_or_none(store: SqliteStore) -> None:
    first, second = await store.open(
        [Operation(0, Kind.RESUME, ("c1", "c2")), Operation(0, Kind.SUSPEND, ("c2", "c3"))]
    )
    assert await store.lease(first.id, first.nodes) == {}
    assert await store.lease(second.id, second.nodes) == {"c2": first.id}
    assert await store.lease(first.id, first.nodes) == {}, "one may lease again what one holds"
    await store.release(first.id)
    assert await store.lease(second.id, second.nodes) == {}


async def test_an_operation_is_read_as_it_was_saved(store: SqliteStore) -> None:
    (opened,) = await store.open(
        [Operation(0, Kind.RESUME, ("c1", "c2", "c10"), asked_by="root", created_at=5.0)]
    )
    running = replace(
        opened,
        state=OperationState.RUNNING,
        next_step=2,
        fallen={"c2": "no capacity"},
        started_at=6.0,
    )
    await store.progress(running, [Event(6.0, "step done", operation=opened.id)])
    assert await store.operation(opened.id) == running
    assert await store.operations(unfinished=True) == [running]
    await store.progress(replace(running, state=OperationState.DONE, ended_at=7.0))
    assert await store.operations(unfinished=True) == []
    assert [e.what for e in await store.events(operation=opened.id)] == ["step done"]


async def test_a_request_waits_until_an_operation_answers_it(store: SqliteStore) -> None:
    request = Request("abc", "resume", ("c1",), 5.0, ("12",))
    assert await store.receive(request)
    assert not await store.receive(request), "the same request again is no new one"
    assert await store.waiting() == [request]
    await store.open([Operation(0, Kind.RESUME, ("c1",))], ["abc"])
    assert await store.waiting() == []
    assert not await store.receive(request), "answered ones are remembered"
    await store.forget_answered(now=5.0 + 2 * 86_400)
    assert await store.receive(request)


async def test_events_cannot_be_changed(tmp_path: Path) -> None:
    store = SqliteStore(db := connect(tmp_path / "record.db"))
    await store.append([Event(1.0, "node registered", "c1")])
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute("UPDATE events SET what = 'something else'")
    await store.close()


async def test_the_newest_events_are_listed_oldest_first(store: SqliteStore) -> None:
    await store.append([Event(float(n), f"e{n}", "c1") for n in range(5)])
    await store.append([Event(9.0, "other", "c2")])
    assert [e.what for e in await store.events(limit=2)] == ["e4", "other"]
    assert [e.what for e in await store.events(node="c1", limit=2)] == ["e3", "e4"]
    assert [e.what for e in await store.events(after=4)] == ["e4", "other"]


async def test_what_is_committed_survives_a_second_opening(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    first = open_sqlite(path)
    await first.define([Node("c1", "general")])
    await first.put("site", "here")
    await first.close()
    second = open_sqlite(path)
    assert list(await second.nodes()) == ["c1"]
    assert await second.get("site") == "here"
    assert await second.get("nothing") is None
    await second.close()


async def test_a_failed_transaction_changes_nothing(store: SqliteStore) -> None:
    await store.define([Node("c1", "general"), Node("c2", "general")])
    broken = Move(Node("c2", "general"), Node("c2", "general", reason=None))  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="could not be written"):
        await store.move([Node("c1", "general").to(NodeState.REQUESTED), broken], [])
    assert (await store.nodes())["c1"].state is NodeState.OFF


@pytest.mark.parametrize(("id", "kind"), [(10**30, OverflowError), ("\ud800", UnicodeEncodeError)])
async def test_a_value_that_no_database_can_hold_leaves_the_record_usable(
    store: SqliteStore, id: int, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        await store.operation(id)
    await store.put("key", "value")
    assert await store.get("key") == "value"


def test_a_record_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    connect(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 9999")
    db.close()
    with pytest.raises(StoreError, match="newer Springtide"):
        connect(path)


def test_an_unreadable_record_says_which_file(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match=r"record\.db"):
        connect(path)


def test_migrations_are_numbered_without_gaps() -> None:
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))
