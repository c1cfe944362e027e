"""The calendar: which entry holds when, until when, and what is said of one that is wrong."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import TZPATH, ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.calendar import Limits, _has, holding, kept_up, limits
from springtide.spec import Cluster, SpecError, calendar, parse
from springtide.spec.calendar import Entry
from springtide.spec.leaving import diff

BERLIN = ZoneInfo("Europe/Berlin")
GROUPS = """
cluster: blue
batch: {kind: fake}
provider: {kind: fake}
groups:
  general: {nodes: "c[1-10]", min: 2}
  gpu: {nodes: "g[1-3]"}
  metal: {nodes: "m[1-2]", provider: {kind: none}}
"""


def spec_of(*entries: str, zone: str = "Europe/Berlin") -> Cluster:
    lines = "".join(f"    - {entry}\n" for entry in entries)
    return parse(f"{GROUPS}calendar:\n  time_zone: {zone}\n  entries:\n{lines}", "c.yaml")


def problems(*entries: str, zone: str = "Europe/Berlin") -> list[str]:
    with pytest.raises(SpecError) as caught:
        spec_of(*entries, zone=zone)
    return [problem.message for problem in caught.value.problems]


def at(text: str) -> datetime:
    """What a clock in Berlin shows."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


def general(spec: Cluster, now: datetime) -> Limits:
    return limits(spec, now)["general"]


def sizes(spec: Cluster, *times: str) -> list[tuple[int, int]]:
    found = [general(spec, at(text)) for text in times]
    return [(one.min, one.max) for one in found]


def test_without_a_calendar_a_group_is_as_its_block_says_for_good() -> None:
    spec = parse(GROUPS, "c.yaml")
    assert limits(spec, datetime.now(UTC)) == {"general": Limits(2, 10), "gpu": Limits(0, 3)}
    assert kept_up(spec, datetime.now(UTC)) == ("c1", "c2")


@pytest.mark.accepts("N19")
def test_the_first_entry_that_fits_a_group_and_a_time_holds() -> None:
    spec = spec_of(
        '{name: holidays, dates: ["2026-12-24..2027-01-02"], max: 1}',
        '{weekly: {days: [mon-fri], hours: "08:00-18:00"}, groups: [general], min: 4, max: 50%}',
        '{daily: "00:00-24:00", max: 3}',
    )
    assert sizes(spec, "2026-11-16 08:00", "2026-11-16 07:59", "2026-12-24 10:00") == [
        (4, 5),
        (2, 3),
        (1, 1),
    ]
    assert limits(spec, at("2026-11-16 08:00"))["gpu"].max == 3
    held = general(spec, at("2026-12-24 10:00"))
    assert held.label == "entry holidays (2026-12-24..2027-01-02)"
    assert (held.until, held.ends(at("2026-12-24 10:00"))) == (
        at("2027-01-03 00:00"),
        "until 2027-01-03 00:00 Europe/Berlin",
    )
    assert kept_up(spec, at("2026-11-16 08:00")) == ("c1", "c2", "c3", "c4")
    assert kept_up(spec, at("2026-12-24 10:00")) == ("c1",)
    assert spec.sometimes_up == ("c1", "c2", "c3", "c4")


def test_hours_over_midnight_belong_to_the_day_that_they_begin_on() -> None:
    spec = spec_of('{weekly: {days: [fri], hours: "22:00-06:00"}, max: 3}')
    days = ["2026-11-20 03:00", "2026-11-20 22:00", "2026-11-21 05:59", "2026-11-21 06:00"]
    assert [most for _, most in sizes(spec, *days)] == [10, 3, 3, 10]
    spec = spec_of('{dates: ["2026-12-31"], hours: "22:00-06:00", max: 3}')
    days = ["2026-12-31 05:00", "2026-12-31 23:00", "2027-01-01 05:00", "2027-01-01 23:00"]
    assert [most for _, most in sizes(spec, *days)] == [10, 3, 3, 10]


def test_days_may_go_over_the_end_of_the_week() -> None:
    spec = spec_of("{weekly: {days: [sat-mon, wed]}, max: 3}")
    week = [f"2026-11-{day} 12:00" for day in range(16, 23)]
    assert [most for _, most in sizes(spec, *week)] == [3, 10, 3, 10, 10, 3, 3]


def test_hours_that_a_clock_never_shows_do_not_hold_and_come_a_week_later() -> None:
    """On 2027-03-28 clocks go from 02:00 to 03:00."""
    spec = spec_of('{weekly: {days: [sun], hours: "02:00-03:00"}, max: 3}')
    held = general(spec, at("2027-03-27 12:00"))
    assert (held.entry, held.until) == (None, at("2027-04-04 02:00"))
    assert general(spec, at("2027-03-28 02:30")).entry is None


def test_an_entry_that_would_end_in_hours_that_are_left_out_ends_when_the_clock_is_set() -> None:
    spec = spec_of('{daily: "01:00-02:30", max: 3}')
    assert general(spec, at("2027-03-28 01:30")).until == datetime(2027, 3, 28, 1, tzinfo=UTC)


def test_hours_that_a_clock_shows_twice_hold_twice() -> None:
    """On 2026-10-25 clocks go from 03:00 back to 02:00."""
    spec = spec_of('{daily: "02:30-02:45", max: 3}')
    turns, now = [], datetime(2026, 10, 25, tzinfo=UTC)
    for _ in range(4):
        until = general(spec, now).until
        assert until is not None
        now = until
        turns.append(f"{now.astimezone(UTC):%H:%M}")
    assert turns == ["00:30", "00:45", "01:30", "01:45"]
    spec = spec_of('{daily: "02:00-03:00", max: 3}')
    assert general(spec, at("2026-10-25 02:10")).until == datetime(2026, 10, 25, 2, tzinfo=UTC)


def test_what_holds_at_all_times_has_no_end() -> None:
    held = general(spec_of('{daily: "00:00-24:00", max: 3}'), at("2026-11-16 08:00"))
    assert (held.until, held.ends(at("2026-11-16 08:00"))) == (None, "for good")


def test_a_date_far_away_is_the_next_change() -> None:
    held = general(spec_of('{dates: ["2031-05-01"], max: 3}'), at("2026-11-16 08:00"))
    assert (held.entry, held.until) == (None, at("2031-05-01 00:00"))


def test_the_next_change_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long calendars are asked at every look, and nobody else is served meanwhile."""
    asked: list[Entry] = []

    def has(entry: Entry, wall: datetime) -> bool:
        asked.append(entry)
        return _has(entry, wall)

    monkeypatch.setattr("springtide.calendar._has", has)
    spec = spec_of(*(f'{{dates: ["{year}-05-01"], max: 3}}' for year in range(2027, 2057)))
    until = general(spec, at("2026-11-16 08:00")).until
    asked.clear()
    assert general(spec, at("2026-11-16 09:00")).until == until == at("2027-05-01 00:00")
    assert len(asked) == len(spec.calendar.entries)
    assert general(spec, at("2027-05-01 00:00")).until == at("2027-05-02 00:00")


def test_a_part_of_a_group_is_rounded_up() -> None:
    spec = spec_of('{groups: [gpu], daily: "00:00-24:00", min: 50%, max: 50%}')
    held = limits(spec, at("2026-11-16 08:00"))["gpu"]
    assert (held.min, held.max) == (2, 2)


# --- any calendar --------------------------------------------------------------------------------

_times = st.integers(0, 95).map(lambda quarter: f"{quarter // 4:02d}:{quarter % 4 * 15:02d}")
_spans = st.tuples(_times, _times).filter(lambda pair: pair[0] != pair[1]).map("-".join)
_dates = st.integers(0, 400).map(lambda n: str(date(2026, 9, 1) + timedelta(days=n)))
_ranges = st.tuples(_dates, _dates).map(lambda pair: "..".join(sorted(pair)))
_days = st.sampled_from(["mon", "sun", "sat-mon", "mon-fri", "wed-tue"])
_when: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(lambda span: {"daily": span}, _spans),
    st.builds(lambda days, span: {"weekly": {"days": [days], "hours": span}}, _days, _spans),
    st.builds(lambda dates: {"dates": dates}, st.lists(_ranges, min_size=1, unique=True)),
    st.builds(lambda dates, span: {"dates": [dates], "hours": span}, _ranges, _spans),
)
_entry = st.builds(lambda when, most: {**when, "max": most}, _when, st.integers(0, 9))
_entries = st.lists(_entry, max_size=4)
_zones = st.sampled_from(["Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "UTC"])
_moments = st.integers(0, 500 * 24 * 60).map(
    lambda n: datetime(2026, 8, 20, tzinfo=UTC) + timedelta(minutes=n)
)


def any_spec(entries: Sequence[Any], zone: str) -> Cluster:
    block = {"time_zone": zone, "entries": entries}
    return parse(GROUPS, "c.yaml").but(calendar=block)


@pytest.mark.accepts("N19")
@settings(deadline=None)
@given(_entries, _zones, _moments)
def test_every_moment_has_one_limit_that_lasts_until_it_really_changes(
    entries: list[Any], zone: str, now: datetime
) -> None:
    spec = any_spec(entries, zone)
    held = general(spec, now)
    assert 0 <= held.min <= held.max <= 10
    alone = [i for i in range(len(entries)) if holding(spec.calendar, (i,), now) is not None]
    assert held.number == (alone[0] + 1 if alone else 0)
    last = held.until or now + timedelta(days=30)
    if held.until:
        assert held.until > now
        assert general(spec, held.until).number != held.number
    for part in range(1, 40):
        between = now + (last - now) * part / 40
        assert general(spec, between).number == held.number, between


# --- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ('{daily: "08:00-18:00", mix: 3}', "unknown key 'mix' in item 1 of entries"),
        ('{daily: "8-18", max: 3}', "daily must be two times of a day, such as 08:00-18:00"),
        ('{daily: "08:00-08:00", max: 3}', "daily must not end when it begins"),
        ("{max: 3}", "item 1 of entries must say when"),
        ('{daily: "08:00-18:00"}', "item 1 of entries must say how many nodes"),
        ('{daily: "08:00-18:00", dates: ["2026-01-01"], max: 1}', "`daily` and `dates`"),
        ('{daily: "08:00-18:00", hours: "09:00-10:00", max: 1}', "hours go with `dates`"),
        ("{weekly: {days: [monday]}, max: 1}", "did you mean 'mon'?"),
        ("{weekly: {days: []}, max: 1}", "days must be a list with something in it"),
        ('{dates: ["2026-02-30"], max: 1}', "item 1 of dates must be a date, or two"),
        ('{dates: ["2026-05-02..2026-05-01"], max: 1}', "must not end before it begins"),
        ('{daily: "08:00-18:00", max: 101%}', "max must be a number of nodes, or a part"),
        ('{daily: "08:00-18:00", min: 4, max: 3, groups: [general]}', "less than its min, which"),
        ('{daily: "08:00-18:00", min: 4}', "min of item 1 of the calendar is 4, but group 'gpu'"),
        ('{daily: "08:00-18:00", min: 1, groups: [gpus]}', "did you mean 'gpu'?"),
        ('{daily: "08:00-18:00", min: 1, groups: [metal]}', "whose provider is 'none'"),
    ],
)
def test_what_is_wrong_with_an_entry_is_told_in_one_sentence(entry: str, told: str) -> None:
    (problem,) = problems(entry)
    assert told in problem


def test_an_unknown_time_zone_is_refused_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = '{daily: "08:00-18:00", max: 3}'
    assert "did you mean 'Europe/Berlin'?" in problems(entry, zone="Europe/Berln")[0]
    assert "must be a time zone" in problems(entry, zone="Europe")[0]
    assert "must be a time zone" in problems(entry, zone="../../etc/passwd")[0]
    monkeypatch.setattr(calendar, "available_timezones", set)
    assert "install the package tzdata" in problems(entry, zone="Mars/Olympus")[0]


def test_without_a_time_zone_the_clock_is_this_machines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = parse(f"{GROUPS}calendar: {{entries: [{{daily: '08:00-18:00', max: 3}}]}}", "c.yaml")
    local = tmp_path / "localtime"
    monkeypatch.setattr(calendar, "LOCAL_TIME", local)
    local.symlink_to(_zone_file("Asia/Tokyo"))
    for value in ("", "America/New_York", ":Europe/Berlin", "CET-1CEST,M3.5.0,M10.5.0/3"):
        calendar.machine_zone.cache_clear()
        monkeypatch.setenv("TZ", value)
        assert general(spec, datetime(2026, 11, 16, 0, tzinfo=UTC)).max == 3
        assert str(spec.calendar.zone) == "Asia/Tokyo"
    for broken in ("none", __file__):
        local.unlink()
        local.symlink_to(broken)
        calendar.machine_zone.cache_clear()
        assert general(spec, datetime(2026, 11, 16, 8, tzinfo=UTC)).max == 3
        assert spec.calendar.zone is UTC
    calendar.machine_zone.cache_clear()


def test_a_time_is_told_with_its_zone_if_this_machines_clock_shows_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec, now = spec_of('{daily: "22:00-06:00", max: 3}'), at("2026-11-16 23:00")
    held = general(spec, now)
    assert held.words(now) == (
        "2 to 3 nodes until 2026-11-17 06:00 Europe/Berlin, by entry 1 (daily 22:00-06:00)"
    )
    monkeypatch.setattr("springtide.calendar.machine_zone", lambda: ZoneInfo("Europe/Rome"))
    assert held.ends(at("2026-11-17 01:00")) == "until 06:00"


def _zone_file(key: str) -> Path:
    places = (Path(place, key) for place in TZPATH)
    return next(place for place in places if place.exists())


def test_another_calendar_is_told_of_by_the_number_of_its_entry() -> None:
    before, after = (spec_of(f'{{daily: "08:00-18:00", max: {n}}}') for n in (3, 4))
    assert [str(one) for one in diff(before, after).settings] == ["calendar.entries.1.max: 3 → 4"]
