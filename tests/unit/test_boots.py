"""How long nodes took to start, from events, and a limit that leaves them no room."""

import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

import pytest

from springtide.boots import LAST, Boots, advise, summarize
from springtide.cli.boot_checks import decide_limits, look_at_boots
from springtide.cli.client import Client, Json
from springtide.cli.subject import Subject
from springtide.model import Event, Node
from springtide.spec import parse
from springtide.store import SqliteStore, open_sqlite
from tests.unit.cli_world import served


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


# --- `tide check` and `tide status` ------------------------------------------------------------


def a_subject(boots: Boots, more: str = "") -> Subject:
    text = f"cluster: blue\nstate: /nowhere\ngroups: {{gpu: {{nodes: 'g[1-2]'}}}}\n{more}"
    status = {"boots": [asdict(boots), asdict(Boots("left", 1, 1e6, 1e6))]}
    return Subject(parse(text, "cluster.yaml"), Client(Path("/nowhere")), status)


@pytest.mark.accepts("B11")
def test_a_check_warns_of_a_limit_that_leaves_no_room() -> None:
    [line] = look_at_boots(a_subject(Boots("gpu", 3, 200.0, 400.0)))
    assert (line.ok, line.todo) == (None, "set timing.start to 800s or more")
    assert "took up to 400 s to start, and timing.start is 600 s: a slow day" in line.text


def test_a_check_tells_how_long_boots_take() -> None:
    [line] = look_at_boots(a_subject(Boots("gpu", 3, 2.0, 4.04)))
    said = "gpu: median 2.0 s, slowest 4.0 s of the last 3; timing.start is 600 s"
    assert (line.ok, line.text, line.todo) == (True, said, "")


def test_nothing_is_said_without_a_daemon_or_boots() -> None:
    known = a_subject(Boots("gpu", 3, 2.0, 4.0))
    statuses: list[Json | None] = [None, {"boots": []}, {}]
    for status in statuses:
        assert list(look_at_boots(Subject(known.spec, known.daemon, status))) == []


@pytest.mark.accepts("B11")
def test_of_an_existing_slurm_the_shortest_real_limit_counts() -> None:
    partitions = "partitions: {long: {groups: [gpu]}, short: {groups: [gpu]}}\n"
    spec = a_subject(Boots("gpu", 1, 1.0, 1.0), partitions).spec
    shown = (
        "PartitionName=long State=UP SuspendTime=600 ResumeTimeout=630\n"
        "PartitionName=theirs State=UP ResumeTimeout=1\n"
        "PartitionName=short State=UP TotalNodes=2\n"
    )
    assert decide_limits(spec, shown, "60 sec") == {"gpu": ("short", 60.0)}
    assert decide_limits(spec, shown, "INFINITE") == {"gpu": ("long", 630.0)}
    assert decide_limits(spec, "", "60 sec") == {}


@pytest.mark.accepts("B11")
def test_the_status_warns_too_from_what_was_measured() -> None:
    with served() as world:
        boot = told("c1", (0.0, "node requested"), (400.0, "node registered"))
        world.call(lambda: world.daemon.parts.record.store.append(boot))
        done = world.run("status")
        words = "tide: nodes of general took up to 400 s to start, and timing.start is 600 s"
        assert words in done.err
        assert "set timing.start to 800s or more" in done.err
        shown = json.loads(world.run("status", "--json").out)["boots"]
        assert [(one["group"], one["count"]) for one in shown] == [("general", 1)]
    with served() as world:
        assert world.run("resume", "c1").code == 0
        assert world.run("status").err == ""
