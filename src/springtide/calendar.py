"""How many nodes of each group must be up, and how many may be, at a moment. Pure.

Entries of the calendar are read off a clock on the wall of the calendar's time zone: what it
shows twice, as when summer time ends, holds twice, and what it never shows does not hold at all.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import TypeVar

from springtide.spec import Cluster, NoProvider
from springtide.spec.calendar import Calendar, Entry, amount_of, day_after, machine_zone

One = TypeVar("One")
FAR_DAYS = 16
"""What recurs does so within a week, or two if a clock that is set leaves a day's turn out."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one group."""

    min: int
    max: int
    entry: Entry | None = None
    """That which holds; None if the group is as its own block says."""
    number: int = 0
    """Of the entry, from 1."""
    until: datetime | None = None
    """When another entry holds, or none; None if never. In the calendar's time zone."""

    @property
    def label(self) -> str:
        """What people call the entry."""
        if self.entry is None:
            return ""
        return f"entry {self.entry.name or self.number} ({self.entry.when})"

    def words(self, now: datetime) -> str:
        """For people: `2 to 4 nodes until 18:00, by entry 1 (…)`."""
        size = f"{self.min}" if self.min == self.max else f"{self.min} to {self.max}"
        return f"{size} nodes {self.ends(now)}, by {self.label}"

    def ends(self, now: datetime) -> str:
        """Until when, in words: `until 18:00`, with the date if that is another day, and with the
        time zone if this machine's clock shows another time then."""
        if self.until is None:
            return "for good"
        same_day = self.until.date() == now.astimezone(self.until.tzinfo).date()
        shown = f"{self.until:%H:%M}" if same_day else f"{self.until:%Y-%m-%d %H:%M}"
        ours = _offset(self.until, machine_zone()) == self.until.utcoffset()
        return f"until {shown}" if ours else f"until {shown} {self.until.tzinfo}"


def limits(spec: Cluster, now: datetime) -> Mapping[str, Limits]:
    """What holds at a moment, by group, of all that we manage; `now` has a time zone."""
    found: dict[tuple[int, ...], tuple[int | None, datetime | None]] = {}
    result = {}
    for key in _groups(spec):
        theirs = entries_of(spec.calendar, key)
        if theirs not in found:
            found[theirs] = _turn(spec.calendar, theirs, now)
        result[key] = _limits(spec, key, *found[theirs])
    return result


def _groups(spec: Cluster) -> list[str]:
    ours = (key for key in spec.groups if not isinstance(spec.provider_of(key), NoProvider))
    return [key for key in ours if spec.names(key)]


def _limits(spec: Cluster, key: str, number: int | None, until: datetime | None) -> Limits:
    """An entry that has no min leaves the group its own, as far as its max allows."""
    least, total = spec.groups[key].min, len(spec.names(key))
    if number is None:
        return Limits(least, total, until=until)
    entry = spec.calendar.entries[number]
    most = total if entry.max is None else min(total, amount_of(entry.max, total))
    wanted = least if entry.min is None else amount_of(entry.min, total)
    return Limits(min(wanted, most), most, entry, number + 1, until)


def too_many(
    there: Sequence[One], most: int, may_go: Callable[[One], bool], is_idle: Callable[[One], bool]
) -> list[One]:
    """Which nodes of a group go so that no more than `most` are left; `there` is as in the file.

    Those without jobs first, and of these the last. What is starting counts, and is among them:
    it is let go once it is up, and no other goes in its place.
    """
    able = sorted(filter(may_go, reversed(there)), key=lambda one: not is_idle(one))
    return able[: max(0, len(there) - most)]


def kept_up(spec: Cluster, now: datetime) -> tuple[str, ...]:
    """The nodes that must be up at a moment: the first ones of each group."""
    if not spec.calendar.entries:
        return spec.always_up
    return tuple(
        name for key, at in limits(spec, now).items() for name in spec.names(key)[: at.min]
    )


# --- which entry holds, and for how long ---------------------------------------------------------


def entries_of(calendar: Calendar, group: str) -> tuple[int, ...]:
    """The places of the entries that are for a group."""
    return tuple(i for i, entry in enumerate(calendar.entries) if entry.is_for(group))


def holding(calendar: Calendar, entries: tuple[int, ...], now: datetime) -> int | None:
    """The place of the first of these entries that has this moment."""
    wall = _wall(calendar, now)
    return next((i for i in entries if _has(calendar.entries[i], wall)), None)


def _wall(calendar: Calendar, now: datetime) -> datetime:
    """What the clock shows; by way of UTC, or a time that it never shows would stay as it is."""
    return now.astimezone(UTC).astimezone(calendar.zone)


def _has(entry: Entry, wall: datetime) -> bool:
    """By what a clock shows."""
    begin, end = entry.clock
    day, at = wall.date(), 60 * wall.hour + wall.minute
    if begin < end:
        return begin <= at < end and entry.begins_on(day)
    if at >= begin:
        return entry.begins_on(day)
    return at < end and entry.begins_on(day - timedelta(days=1))


def _turn(
    calendar: Calendar, entries: tuple[int, ...], now: datetime
) -> tuple[int | None, datetime | None]:
    """The entry that holds, and when that changes."""
    holds = holding(calendar, entries, now)
    today = _wall(calendar, now).date()
    place = bisect_right(_moments(calendar, entries, today), now)
    return holds, _until(calendar, entries, today, place, holds)


@lru_cache(maxsize=256)
def _until(
    calendar: Calendar, entries: tuple[int, ...], today: date, place: int, holds: int | None
) -> datetime | None:
    """The first moment, from the one at that place on, at which another entry holds.

    To find it may take long, and it is the same until that place is reached.
    """
    later = _moments(calendar, entries, today)[place:]
    turn = (moment for moment in later if holding(calendar, entries, moment) != holds)
    until = next(turn, None)
    return until and until.astimezone(calendar.zone)


@lru_cache(maxsize=256)
def _moments(calendar: Calendar, entries: tuple[int, ...], today: date) -> tuple[datetime, ...]:
    """All at which something may change from that day on, in order."""
    known = [calendar.entries[i] for i in entries]
    edges = {edge for entry in known for first, last in entry.ranges for edge in (first, last)}
    begins = (today, *(edge for edge in edges if edge >= today - timedelta(days=1)))
    days = {day + timedelta(days=n) for day in begins for n in range(-1, FAR_DAYS)}
    clocks = {0} | {at % (24 * 60) for entry in known for at in entry.clock}
    shown = (at for day in days for at in _shown(day, clocks, calendar.zone))
    return tuple(sorted(shown)) if known else ()


def _shown(day: date, clocks: set[int], zone: tzinfo) -> Iterator[datetime]:
    """When a clock shows these minutes of a day, and when it is set."""
    for at in clocks:
        wall = datetime.combine(day, time(at // 60, at % 60), zone)
        yield wall.astimezone(UTC)
        yield wall.replace(fold=1).astimezone(UTC)
    first, last = (
        datetime.combine(edge, time(), zone).astimezone(UTC) for edge in (day, day_after(day))
    )
    if _offset(first, zone) != _offset(last, zone):
        yield _set_at(first, last, zone)


def _set_at(first: datetime, last: datetime, zone: tzinfo) -> datetime:
    """When a clock is set between two moments, to the second."""
    before = _offset(first, zone)
    while last - first > timedelta(seconds=1):
        middle = first + timedelta(seconds=(last - first) // timedelta(seconds=2))
        first, last = (middle, last) if _offset(middle, zone) == before else (first, middle)
    return last


def _offset(moment: datetime, zone: tzinfo) -> timedelta | None:
    return moment.astimezone(zone).utcoffset()
