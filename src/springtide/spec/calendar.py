"""The calendar of a cluster file: how many nodes of a group are up when. Shape and words only.

What holds at a moment is said by `springtide.calendar`; what must fit the rest of the file is
checked here, for `checks`.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, timedelta, tzinfo
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from springtide.spec.findings import Data, Finding, Loc, readable, section, undefined, words
from springtide.spec.problems import suggest
from springtide.spec.strict import Strict
from springtide.spec.values import Distinct, Name, shown, wrong

LOCAL_TIME = Path("/etc/localtime")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
FIRST_YEAR, LAST_YEAR = 1970, 9000
"""Of dates that we count with."""
ALL_DAY = "00:00-24:00"

_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_SPAN = re.compile(f"({_CLOCK})-({_CLOCK}|24:00)")
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DATES = re.compile(rf"({_DATE})(?:\.\.({_DATE}))?")
_AMOUNT = re.compile(r"([0-9]{1,6})(%)?")


# --- values --------------------------------------------------------------------------------------


def parse_span(value: object) -> str:
    match = _SPAN.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise wrong("two times of a day, such as 08:00-18:00 or 22:00-06:00", value)
    if match[1] == match[2]:
        raise ValueError(f"must not end when it begins, as {match[0]} does; a day is {ALL_DAY}")
    return match[0]


def minutes(span: str) -> tuple[int, int]:
    """Its begin and end, in minutes since midnight; one that ends on the next day ends earlier."""
    begin, end = (60 * int(clock[:2]) + int(clock[3:]) for clock in span.split("-"))
    return begin, end


def parse_days(value: object) -> str:
    text = value.lower() if isinstance(value, str) else ""
    if text and all(day in DAYS for day in text.split("-")) and text.count("-") < 2:
        return text
    near = suggest(text.split("-")[0], DAYS, "days") if text else f"days are {', '.join(DAYS)}"
    raise ValueError(
        f"must be a day or several, such as sat or mon-fri, not {shown(value)}; {near}"
    )


def weekdays(days: str) -> frozenset[int]:
    """As numbers from 0, which is Monday; sat-mon goes over the end of the week."""
    first, _, last = days.partition("-")
    begin, end = DAYS.index(first), DAYS.index(last or first)
    return frozenset((begin + n) % 7 for n in range((end - begin) % 7 + 1))


def parse_dates(value: object) -> str:
    match = _DATES.fullmatch(value) if isinstance(value, str) else None
    try:
        first, last = first_and_last(match[0]) if match else (None, None)
    except ValueError:
        first = last = None
    if match is None or first is None or last is None:
        raise wrong("a date, or two such as 2026-12-24..2027-01-02", value)
    if last < first:
        raise ValueError(f"must not end before it begins, as {match[0]} does")
    if not (first.year >= FIRST_YEAR and last.year <= LAST_YEAR):
        raise wrong(f"within the years {FIRST_YEAR} to {LAST_YEAR}", value)
    return match[0]


def first_and_last(dates: str) -> tuple[date, date]:
    first, _, last = dates.partition("..")
    return date.fromisoformat(first), date.fromisoformat(last or first)


def parse_amount(value: object) -> str:
    """As text, also where it is given as a number."""
    text = "" if isinstance(value, bool) else str(value)
    match = _AMOUNT.fullmatch(text)
    if match is None or (match[2] and int(match[1]) > 100):
        raise wrong("a number of nodes, or a part of the group such as 50%", value)
    return text


def amount_of(text: str, total: int) -> int:
    """How many nodes of so many; parts of a node count as one."""
    number = int(text.rstrip("%"))
    return -(-number * total // 100) if text.endswith("%") else number


def parse_zone(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise wrong("a time zone, such as Europe/Berlin", value)
    try:
        named_zone(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        known = available_timezones()
        if not known:
            raise ValueError(
                f"cannot be {shown(value)}: this machine knows no time zone but UTC; install the "
                "package tzdata, or leave time_zone out"
            ) from None
        near = get_close_matches(value[:60], sorted(known), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "they are the files in /usr/share/zoneinfo"
        expected = "a time zone that this machine knows, such as Europe/Berlin"
        raise ValueError(f"must be {expected}, not {shown(value)}; {hint}") from None
    return value


@cache
def named_zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


@cache
def machine_zone() -> tzinfo:
    """That of this machine, whatever TZ says; UTC, if it has none.

    The daemon and the shells of people have the same clock then.
    """
    try:
        with LOCAL_TIME.open("rb") as file:
            return ZoneInfo.from_file(file, key=_key(LOCAL_TIME))
    except (ValueError, OSError):
        return UTC


def _key(path: Path) -> str:
    """What a link to a file of the time zones calls it."""
    _, found, name = str(path.resolve()).partition("/zoneinfo/")
    return name if found else "local time"


def _text_schema(pattern: re.Pattern[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern.pattern}$"})


def _amount_schema() -> WithJsonSchema:
    text = {"type": "string", "pattern": f"^{_AMOUNT.pattern}$"}
    return WithJsonSchema({"anyOf": [text, {"type": "integer", "minimum": 0}]})


Span = Annotated[str, BeforeValidator(parse_span), _text_schema(_SPAN)]
Days = Annotated[str, BeforeValidator(parse_days)]
Dates = Annotated[str, BeforeValidator(parse_dates), _text_schema(_DATES)]
Amount = Annotated[str, BeforeValidator(parse_amount), _amount_schema()]
Zone = Annotated[str, BeforeValidator(parse_zone)]


# --- the block -----------------------------------------------------------------------------------


class Weekly(Strict):
    """Some days of every week."""

    days: Annotated[tuple[Days, ...], Distinct, Field(min_length=1)]
    """Such as `[mon-fri]` or `[sat, sun]`."""
    hours: Span = ALL_DAY
    """On each of them; `22:00-06:00` goes on until the next morning."""


class Entry(Strict):
    """A time, and how many nodes are up then. It has one of `daily`, `weekly` and `dates`."""

    name: Name | None = None
    """What people are told it is; left out, its number and its time."""
    groups: Annotated[tuple[Name, ...], Distinct] = ()
    """Those that it is for; left out, all that Springtide starts nodes of."""
    daily: Span | None = None
    """Every day, such as `08:00-18:00`; `22:00-06:00` goes on until the next morning."""
    weekly: Weekly | None = None
    """Some days of every week, such as `{days: [mon-fri], hours: "08:00-18:00"}`."""
    dates: Annotated[tuple[Dates, ...], Distinct] = ()
    """Days of one year, such as `["2026-12-24..2027-01-02"]`; the last one is in it."""
    hours: Span | None = None
    """Of each of `dates`; left out, all day."""
    min: Amount | None = None
    """So many nodes are up, or such a part of the group; left out, the group's own `min`."""
    max: Amount | None = None
    """No more than so many are up, or such a part of the group; left out, all of them."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        given = [key for key in ("daily", "weekly", "dates") if getattr(self, key)]
        if not given:
            raise ValueError("must say when: give it `daily`, `weekly` or `dates`")
        if len(given) > 1:
            several = " and ".join(f"`{key}`" for key in given)
            raise ValueError(f"has {several}: give it one of them, and another entry the other")
        if self.hours and not self.dates:
            where = "in `weekly`" if self.weekly else "in `daily` itself"
            beside = f"has `hours` beside `{given[0]}`"
            raise ValueError(f"{beside}: hours go with `dates`; put them {where}")
        if self.min is None and self.max is None:
            raise ValueError("must say how many nodes: give it `min`, `max` or both")
        return self

    @property
    def span(self) -> str:
        """The hours of each of its days."""
        return self.daily or (self.weekly.hours if self.weekly else self.hours) or ALL_DAY

    @property
    def when(self) -> str:
        """In words."""
        hours = "" if self.span == ALL_DAY else f" {self.span}"
        if self.weekly:
            return f"{', '.join(self.weekly.days)}{hours}"
        return f"{', '.join(self.dates) or 'daily'}{hours}"

    @cached_property
    def clock(self) -> tuple[int, int]:
        """Begin and end of its hours, in minutes since midnight."""
        return minutes(self.span)

    @cached_property
    def weekdays(self) -> frozenset[int]:
        days = self.weekly.days if self.weekly else ("mon-sun",)
        return frozenset().union(*map(weekdays, days))

    @cached_property
    def ranges(self) -> tuple[tuple[date, date], ...]:
        """First and last dates."""
        return tuple(map(first_and_last, self.dates))

    def is_for(self, group: str) -> bool:
        return not self.groups or group in self.groups

    def begins_on(self, day: date) -> bool:
        """Whether it has this day; what goes over midnight is of the day that it began on."""
        if self.dates:
            return any(first <= day <= last for first, last in self.ranges)
        return day.weekday() in self.weekdays


class Calendar(Strict):
    """How many nodes are up when. The first entry that fits a group and a time holds."""

    time_zone: Zone | None = None
    """Whose clock the times are read from, such as `Europe/Berlin`; left out, this machine's."""
    entries: tuple[Entry, ...] = ()
    """In the order in which they are looked at."""

    @property
    def zone(self) -> tzinfo:
        return named_zone(self.time_zone) if self.time_zone else machine_zone()


def day_after(day: date) -> date:
    return day + timedelta(days=1)


# --- what must fit the groups --------------------------------------------------------------------


def check_calendar(data: Data, names: Mapping[str, list[str]]) -> Iterator[Finding]:
    """Of plain data, also such as is wrong in places."""
    entries = section(data, "calendar").get("entries")
    for i, entry in enumerate(entries if isinstance(entries, list | tuple) else ()):
        if isinstance(entry, dict):
            yield from _check_entry(data, names, ("calendar", "entries", i), entry)


def _check_entry(
    data: Data, names: Mapping[str, list[str]], loc: Loc, entry: Data
) -> Iterator[Finding]:
    who, groups = f"item {int(loc[-1]) + 1} of the calendar", list(section(data, "groups"))
    named = words(entry.get("groups"))
    for i, name in named:
        yield from undefined((*loc, "groups", i), who, "group", name, groups)
        if name in groups and _is_foreign(data, name):
            message = f"Springtide starts no nodes of group {name!r}, whose provider is 'none'"
            yield Finding((*loc, "groups", i), f"{message}; leave it out of the calendar")
    chosen = [name for _, name in named] or [key for key in groups if not _is_foreign(data, key)]
    for key in chosen:
        if members := names.get(key):
            yield from _check_amounts(loc, entry, who, key, len(members))


def _is_foreign(data: Data, group: str) -> bool:
    own = readable(data, "groups").get(group, {}).get("provider") or data.get("provider")
    return isinstance(own, dict) and own.get("kind") == "none"


def _check_amounts(loc: Loc, entry: Data, who: str, key: str, total: int) -> Iterator[Finding]:
    """Each alone, then both together."""
    least, most = _amount(entry.get("min"), total), _amount(entry.get("max"), total)
    has = f"group {key!r} has {total} node{'s' * (total != 1)}"
    if least is not None and least > total:
        hint = "" if entry.get("groups") else "; name the groups that it is for with `groups`"
        yield Finding((*loc, "min"), f"min of {who} is {least}, but {has}{hint}")
    elif least is not None and most is not None and most < least:
        message = f"max of {who} is {most} for group {key!r}, less than its min, which is {least}"
        yield Finding((*loc, "max"), message)


def _amount(value: Any, total: int) -> int | None:
    try:
        return None if value is None else amount_of(parse_amount(value), total)
    except ValueError:
        return None
