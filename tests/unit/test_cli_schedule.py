"""`tide schedule show`, and what other commands say of the calendar."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from springtide.cli.client import Client, Refused
from springtide.cli.endings import Exit
from springtide.cli.schedule import parse_time
from springtide.model import Node
from springtide.ports import OURS, BatchNode, Job, Power
from springtide.story import JobCase, NodeCase, job_story, node_story
from tests.unit.cli_world import SPEC, World, run, served

CALENDAR = """
calendar:
  time_zone: Europe/Berlin
  entries:
    - {name: holidays, dates: ["2026-12-24..2027-01-02"], max: 1}
    - {weekly: {days: [mon-fri], hours: "08:00-18:00"}, min: 2, max: 50%}
"""
ALL_DAY = 'calendar: {time_zone: UTC, entries: [{daily: "00:00-24:00", min: 1, max: 2}]}\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(SPEC + CALENDAR)
    return path


@pytest.mark.accepts("N19")
def test_what_holds_at_a_time_is_shown_without_a_daemon(file: Path) -> None:
    done = run("schedule", "show", str(file), "--at", "2026-12-23 17:00")
    assert (done.code, done.err) == (
        0,
        f"tide: {file} at 2026-12-23 17:00, by the clock of Europe/Berlin\n",
    )
    assert done.out.splitlines() == [
        "GROUP    MIN  MAX  BY                             UNTIL                 THEN",
        "general  2    2    entry 2 (mon-fri 08:00-18:00)  Wed 2026-12-23 18:00  "
        "0 to 4 by the group's own block",
    ]


@pytest.mark.accepts("N19")
def test_the_same_as_json(file: Path) -> None:
    done = run("schedule", "show", str(file), "--at", "2026-12-24T09:30:00+00:00", "--json")
    assert json.loads(done.out) == {
        "file": str(file),
        "at": "2026-12-24T10:30:00+01:00",
        "time_zone": "Europe/Berlin",
        "groups": [
            {
                "group": "general",
                "min": 0,
                "max": 1,
                "entry": 1,
                "name": "holidays",
                "when": "2026-12-24..2027-01-02",
                "until": "2027-01-03T00:00:00+01:00",
                "next": {"min": 0, "max": 4, "entry": None, "name": None, "when": None},
            }
        ],
    }


@pytest.mark.parametrize("wrong", ["tomorrow", "25:00", "2026-13-01", "0001-01-01", ""])
def test_a_wrong_time_is_refused_with_how_to_write_one(file: Path, wrong: str) -> None:
    done = run("schedule", "show", str(file), "--at", wrong)
    assert (done.code, done.out) == (Exit.WRONG, "")
    assert "is no time: write 18:00" in done.err or "is too far away" in done.err


def test_a_time_of_day_is_that_of_today() -> None:
    now = datetime(2026, 11, 16, 12, 34, 56, tzinfo=UTC)
    assert parse_time("8:05", now) == datetime(2026, 11, 16, 8, 5, tzinfo=UTC)
    assert parse_time("08:05:30", now) == datetime(2026, 11, 16, 8, 5, 30, tzinfo=UTC)
    assert parse_time("2026-12-24", now) == datetime(2026, 12, 24, tzinfo=UTC)


def test_a_day_ends_at_24_00_as_in_the_calendar() -> None:
    now = datetime(2026, 11, 16, 12, 34, 56, tzinfo=UTC)
    assert parse_time("24:00", now) == datetime(2026, 11, 17, tzinfo=UTC)
    assert parse_time("2026-12-31 24:00", now) == datetime(2027, 1, 1, tzinfo=UTC)


def test_a_time_that_the_clock_leaves_out_is_refused_and_one_that_it_shows_twice_is_not(
    file: Path,
) -> None:
    done = run("schedule", "show", str(file), "--at", "2027-03-28 02:30")
    why = "does not come: the clock of Europe/Berlin leaves it out when it is set"
    assert (done.code, f"'2027-03-28 02:30' {why}" in done.err) == (Exit.WRONG, True)
    assert run("schedule", "show", str(file), "--at", "2027-03-28 03:00").code == 0
    for text, which in (
        ("2026-10-25 02:30", "02:30 (CEST, the first of two)"),
        ("2026-10-25T01:30Z", "02:30 (CET, the second of two)"),
        ("2026-10-25 03:00", "03:00"),
    ):
        done = run("schedule", "show", str(file), "--at", text)
        assert (done.code, f" at 2026-10-25 {which}, by the clock" in done.err) == (0, True)


def test_a_wrong_file_is_told_and_one_without_a_calendar_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(SPEC + "calendar: {entries: [{daily: 8-18, max: 1}]}\n")
    done = run("schedule", "show", str(path))
    assert (done.code, "must be two times of a day" in done.err) == (Exit.WRONG, True)
    path.write_text(SPEC)
    done = run("schedule", "show", str(path))
    assert (done.code, "the file has no calendar" in done.err) == (0, True)
    assert "for good" in done.out


# --- with a daemon ------------------------------------------------------------------------------


@pytest.fixture
def world() -> Iterator[World]:
    with served() as world:
        world.file.write_text(SPEC + ALL_DAY)
        done = world.run("apply", "--yes")
        assert done.code == 0, done.err
        yield world


@pytest.mark.accepts("N22")
@pytest.mark.parametrize("size", [0, 2, 3])
def test_a_resize_against_the_calendar_is_refused_with_the_reason(world: World, size: int) -> None:
    before = world.file.read_text()
    for words in (["resize", "--yes"], ["resize", "--dry-run"], ["plan", "resize"]):
        done = world.run(*words[:1], *words[1:], f"general={size}")
        assert done.code == Exit.FAILED
        assert done.err.endswith(
            f"general={size} would not count: the calendar wants 1 to 2 nodes for good, by entry 1 "
            "(daily); change that entry in the cluster file and run `tide apply`\n"
        )
    assert world.file.read_text() == before


@pytest.mark.accepts("N22")
def test_a_resize_beyond_the_group_is_refused_with_parts_of_the_group_as_it_is() -> None:
    halves = 'calendar: {time_zone: UTC, entries: [{daily: "00:00-24:00", min: 25%, max: 50%}]}\n'
    with served(SPEC + halves) as world:
        for words in (["resize", "--yes"], ["resize", "--dry-run"], ["plan", "resize"]):
            done = world.run(*words, "general=40")
            assert done.code == Exit.FAILED
            assert "the calendar wants 1 to 2 nodes for good, by entry 1 (daily)" in done.err


@pytest.mark.accepts("N22")
def test_a_resume_against_the_calendar_is_refused_with_the_reason(world: World) -> None:
    for words in (["resume"], ["resume", "--dry-run"], ["plan", "resume"]):
        done = world.run(*words, "c[2-4]")
        assert done.code == Exit.FAILED
        assert done.err.endswith(
            "c[3-4] may not start: the calendar wants 1 to 2 nodes for good, by entry 1 (daily); "
            "change that entry in the cluster file and run `tide apply`\n"
        )
    assert world.run("resume", "c[1-2]").code == 0, "so many may be up"
    assert world.run("resume", "c[1-2]").code == 0, "they are already"
    assert world.run("resume", "c3").code == Exit.FAILED


@pytest.mark.accepts("N22")
def test_what_the_calendar_wants_anyway_and_another_file_are_not_refused(world: World) -> None:
    assert world.run("resize", "general=1", "--yes").code == 0
    world.file.write_text(world.file.read_text().replace("min: 1, max: 2", "min: 2, max: 2"))
    assert world.run("apply", "--yes").code == 0
    assert world.states("c1", "c2", "c3") == ["ready", "ready", "off"]


def test_status_and_why_tell_of_the_calendar(world: World) -> None:
    status = world.run("status").out
    assert "calendar general  1 to 2 nodes for good, by entry 1 (daily)" in status
    story = world.run("why", "c1").out
    assert "up now by the calendar (1 to 2 nodes for good, by entry 1 (daily))" in story


def test_sizes_that_are_none_are_refused(world: World) -> None:
    body = {"spec": world.file.read_text(), "file": str(world.file), "dry_run": True}
    for wrong in ("general", {"general": "2"}, {"general": True}):
        with pytest.raises(Refused, match="sizes is no JSON object of groups and numbers"):
            Client(world.layout.state).post("/apply", {**body, "sizes": wrong})


# --- stories -------------------------------------------------------------------------------------

HELD = "0 to 2 nodes until 18:00, by entry 1 (daily 08:00-18:00)"


def test_why_tells_that_the_calendar_keeps_a_node_off() -> None:
    seen = BatchNode(
        "c4",
        "IDLE",
        power=Power.DOWN,
        drained=True,
        owner=OURS,
        reason="springtide: calendar: at most 2 until 18:00",
    )
    told = node_story(0.0, NodeCase("c4", Node("c4", "general"), seen=seen, calendar=HELD))
    assert told.now.startswith(
        f"c4 is off, and by the calendar no further node of its group is started ({HELD})"
    )
    assert "it takes jobs again within 30 s" in told.next
    assert "`tide schedule show`" in told.do


def test_why_tells_a_jobs_owner_that_the_calendar_allows_no_more_nodes() -> None:
    job = Job("7", "PENDING", partition="main", reason="Resources")
    told = job_story(0.0, JobCase("7", job, groups=("general",), calendar={"general": HELD}))
    assert f"by the calendar general has {HELD}" in told.now
