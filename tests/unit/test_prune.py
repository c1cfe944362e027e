"""What is too old goes from the record, a little at a time; what may still be asked for stays."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from springtide import prune
from springtide.model import Event, Kind, Node, Operation, OperationState, Request
from springtide.record import Record
from springtide.store import SqliteStore, open_sqlite
from springtide.store.past import LAST_EVENTS

DAY = 86_400.0
NOW = 1000 * DAY
KEEP = 90 * DAY
EVENTS = 100_000
NODES = 100


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteStore]:
    monkeypatch.setattr(prune, "PAUSE_S", 0.0)
    opened = open_sqlite(tmp_path / "record.db")
    yield opened
    await opened.close()


def of_node(number: int, at: float) -> Event:
    return Event(at, "node registered", f"c{number % NODES}", None, str(number))


async def test_of_100_000_events_the_young_ones_and_the_last_of_each_node_stay(
    store: SqliteStore,
) -> None:
    """A node (c99) that rests since long ago keeps its last events beside the young ones."""
    day = EVENTS // 200
    old = [of_node(number, NOW - 200 * DAY + number / day * DAY) for number in range(EVENTS)]
    sleepy = [event for event in old if event.node != "c99" or event.at < NOW - KEEP]
    await store.append(sleepy)
    gone = await prune.prune(store, NOW, KEEP)
    left = await store.events(limit=EVENTS)
    assert gone == prune.Gone(events=len(sleepy) - len(left))
    ancient = [event for event in left if event.at < NOW - KEEP]
    assert Counter(event.node for event in ancient) == {"c99": LAST_EVENTS}
    assert ancient == list(await store.events(node="c99"))[-LAST_EVENTS:]
    young = [event for event in sleepy if event.at >= NOW - KEEP]
    assert len(left) == len(young) + LAST_EVENTS
    assert await prune.prune(store, NOW, KEEP) == prune.Gone()


async def test_others_get_their_turn_while_100_000_events_go(store: SqliteStore) -> None:
    await store.append([of_node(number, number / EVENTS) for number in range(EVENTS)])
    pruning = asyncio.create_task(prune.prune(store, NOW, KEEP))
    longest_s, asked = 0.0, 0
    while not pruning.done():
        began = time.process_time()
        await store.put("key", "value")
        longest_s, asked = max(longest_s, time.process_time() - began), asked + 1
    assert (await pruning).events == EVENTS - NODES * LAST_EVENTS
    assert asked > EVENTS / prune.BATCH / 2
    assert longest_s < 1.0


async def test_events_without_a_node_go_but_not_those_of_an_operation_under_way(
    store: SqliteStore,
) -> None:
    over, running = await store.open(
        [Operation(0, Kind.RESUME, ("c1",), created_at=1.0) for _ in range(2)]
    )
    await store.progress(replace(over, state=OperationState.DONE, ended_at=2.0))
    await store.append([Event(1.0, "operation started", None, id) for id in (over.id, running.id)])
    await store.append([Event(1.0, "maintenance began")])
    assert await prune.prune(store, NOW, KEEP) == prune.Gone(events=2, operations=1)
    assert [event.operation for event in await store.events()] == [running.id]


async def test_only_operations_that_ended_long_ago_go(store: SqliteStore) -> None:
    ends = {"long ago": 2.0, "lately": NOW - DAY, "not yet": None}
    opened = await store.open(
        [Operation(0, Kind.RESUME, ("c1",), reason=word, created_at=1.0) for word in ends]
    )
    for one in opened:
        done = OperationState.RUNNING if ends[one.reason] is None else OperationState.DONE
        await store.progress(replace(one, state=done, ended_at=ends[one.reason]))
    assert await prune.prune(store, NOW, KEEP) == prune.Gone(operations=1)
    left = await store.operations()
    assert [one.reason for one in left] == ["not yet", "lately"]


async def test_an_operation_that_still_has_leases_stays(store: SqliteStore) -> None:
    (one,) = await store.open([Operation(0, Kind.RESUME, ("c1",), created_at=1.0)])
    await store.lease(one.id, one.nodes)
    await store.progress(replace(one, state=OperationState.DONE, ended_at=2.0))
    assert await prune.prune(store, NOW, KEEP) == prune.Gone()


async def test_requests_go_when_they_are_answered_and_no_copy_can_come(
    store: SqliteStore,
) -> None:
    times = {"old": 1.0, "waiting": 1.0, "recent": NOW - DAY / 2}
    for id, at in times.items():
        await store.receive(Request(id, "resume", ("c1",), at))
    await store.open([], ["old", "recent"])
    assert await prune.prune(store, NOW, keep_s=1.0) == prune.Gone(requests=1)
    assert [request.id for request in await store.waiting()] == ["waiting"]
    assert not await store.receive(Request("recent", "resume", ("c1",), NOW))


async def test_the_daemon_prunes_when_it_has_settled_and_says_so(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "FIRST_S", 0.01)
    await store.define([Node("c1", "general")])
    await store.append([Event(1.0, "site prepared")])
    record = Record(store, lambda: NOW)
    task = asyncio.create_task(prune.daily(record, lambda: KEEP))
    try:
        async with asyncio.timeout(200):
            while [event.what for event in await store.events()] != ["old records deleted"]:
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    (said,) = await store.events()
    assert said.detail == "1 events, 0 operations, 0 requests"
