"""How long nodes took to start, from events, and a limit that leaves them no room."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from springtide.boots import LAST, Boots, advise, summarize
from springtide.model import Event, Node
from springtide.store import SqliteStore, open_sqlite


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = open_sqlite(tmp_path / "record.db")
    await opened.define([Node("c1", "general"), Node("c2", "general"), Node("g1", "gpu")])
    yield opened
    await opened.close()


def told(node: str, *story: tuple[float, str]) -> list[Event]:
    return [Event(at, what, node) for at, what in story]


@pytest.mark.accepts("B11")
async def test_a_boot_lasts_from_its_own_request_to_the_registration(store: SqliteStore) -> None:
    await store.append(
        [
            *told("c1", (0.0, "node requested"), (5.0, "node failed"), (90.0, "node requested")),
            *told("g1", (91.0, "node requested"), (95.0, "address known")),
            *told("c1", (100.0, "node registered")),
            *told("g1", (151.0, "node registered")),
        ]
    )
    assert await store.boot_times(10) == [("gpu", 60.0), ("general", 10.0)]
    assert await store.boot_times(1) == [("gpu", 60.0)]


@pytest.mark.accepts("B11")
async def test_a_reboot_in_place_is_no_boot(store: SqliteStore) -> None:
    first = told("c1", (0.0, "node requested"), (7.0, "node registered"))
    again = told("c1", (500.0, "reboot requested"), (501.0, "node registered"))
    await store.append([*first, *again, *told("c2", (600.0, "node registered"))])
    assert await store.boot_times(10) == [("general", 7.0)]


@pytest.mark.accepts("B11")
def test_each_group_has_its_own_last_boots() -> None:
    times = [("general", 10.0), ("gpu", 300.0), ("general", 20.0), ("general", 60.0)]
    assert summarize(times) == [Boots("general", 3, 20.0, 60.0), Boots("gpu", 1, 300.0, 300.0)]


def test_what_was_slow_long_ago_is_forgotten() -> None:
    assert summarize([("general", 1.0)] * LAST + [("general", 900.0)])[0].slowest_s == 1.0
    assert summarize([]) == []


@pytest.mark.accepts("B11")
@pytest.mark.parametrize(("limit_s", "warned"), [(599.0, True), (600.0, False), (1e9, False)])
def test_a_limit_below_twice_the_slowest_boot_is_warned_of(limit_s: float, warned: bool) -> None:
    said = advise(Boots("gpu", 3, 200.0, 300.0), limit_s)
    assert bool(said) is warned


def test_the_warning_says_what_to_set() -> None:
    said = advise(Boots("gpu", 3, 200.0, 302.4), 600.0)
    assert "nodes of gpu took up to 302 s to start, and timing.start is 600 s" in said
    assert said.endswith("set timing.start to 610s or more")
