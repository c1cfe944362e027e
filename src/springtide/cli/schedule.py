"""`tide schedule`: what the calendar of a cluster file says, now or at another time."""

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from springtide.cli import output
from springtide.cli.check import read_spec
from springtide.cli.client import Json
from springtide.cli.endings import Complaint, Exit
from springtide.cli.output import JsonOption
from springtide.cli.place import Choice, ClusterOption, FileArgument, StateOption, spec_file
from springtide.cli.text import Command, Group

if TYPE_CHECKING:
    from springtide.calendar import Limits
    from springtide.spec import Cluster

COLUMNS = ("group", "min", "max", "by", "until", "then")
GROUP = "the group's own block"
NO_CALENDAR = "the file has no calendar: groups are the same at all times"
_CLOCK = re.compile("([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_MIDNIGHT = re.compile("(.*[ T])?24:00")
FIRST_YEAR, LAST_YEAR = 1970, 9000

schedule = typer.Typer(name="schedule", cls=Group, no_args_is_help=True, rich_markup_mode=None)


@schedule.callback()
def schedules() -> None:
    """The calendar: how many nodes are up when.

    It stands in the cluster file, as `calendar`.
    """


@schedule.command(cls=Command)
def show(
    file: FileArgument = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Such as '2026-12-24 18:00', 2026-12-24T17:00Z, or 18:00 of today.",
        ),
    ] = None,
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """What holds for each group, by which entry, until when, and what comes then.

    Needs no daemon and changes nothing. Times are read by the calendar's clock.
    """
    path = spec_file(file, Choice(cluster, state))
    spec = read_spec(path)
    now = datetime.now(UTC).astimezone(spec.calendar.zone)
    moment = now if at is None else parse_time(at, now)
    groups = look(spec, moment)
    if json:
        zone = str(moment.tzinfo)
        output.put_json(
            {"file": str(path), "at": moment.isoformat(), "time_zone": zone, "groups": groups}
        )
        return
    output.note(f"tide: {path} at {render_time(moment)}, by the clock of {moment.tzinfo}")
    if not spec.calendar.entries:
        output.note(f"tide: {NO_CALENDAR}")
    output.put_table(COLUMNS, [render_row(one) for one in groups])


def parse_time(text: str, now: datetime) -> datetime:
    """A time that a person wrote, by the clock of `now` unless it has an offset of its own."""
    found = _parse(text, now)
    if found.astimezone(UTC).astimezone(found.tzinfo) != found:
        left_out = f"the clock of {found.tzinfo} leaves it out when it is set"
        raise Complaint(f"{text[:60]!r} does not come: {left_out}", Exit.WRONG)
    return found


def render_time(moment: datetime) -> str:
    """By its clock; with its offset if that shows it twice."""
    ways = [moment.replace(fold=fold).utcoffset() for fold in (0, 1)]
    which = ("the first", "the second")[moment.fold]
    twice = f" ({moment:%Z}, {which} of two)" if ways[0] != ways[1] else ""
    return f"{moment:%Y-%m-%d %H:%M}{twice}"


def _parse(text: str, now: datetime) -> datetime:
    if match := _MIDNIGHT.fullmatch(text):
        return _parse(f"{match[1] or ''}00:00", now) + timedelta(days=1)
    if match := _CLOCK.fullmatch(text):
        hour, minute, second = (int(part or 0) for part in match.groups())
        return now.replace(hour=hour, minute=minute, second=second, microsecond=0, fold=0)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Complaint(
            f"{text[:60]!r} is no time: write 18:00, 2026-12-24 or '2026-12-24 18:00'", Exit.WRONG
        ) from None
    if not FIRST_YEAR <= found.year <= LAST_YEAR:
        years = f"the years {FIRST_YEAR} to {LAST_YEAR}"
        raise Complaint(f"{text[:60]!r} is too far away: the calendar knows {years}", Exit.WRONG)
    return found.astimezone(now.tzinfo) if found.tzinfo else found.replace(tzinfo=now.tzinfo)


def look(spec: "Cluster", moment: datetime) -> list[Json]:
    """What holds for each group at a moment, and what comes after it."""
    from springtide.calendar import limits

    return [
        {
            "group": key,
            **_told(held),
            "until": held.until.isoformat() if held.until else None,
            "next": _told(limits(spec, held.until)[key]) if held.until else None,
        }
        for key, held in limits(spec, moment).items()
    ]


def _told(held: "Limits") -> Json:
    entry = held.entry
    return {
        "min": held.min,
        "max": held.max,
        "entry": held.number or None,
        "name": entry.name if entry else None,
        "when": entry.when if entry else None,
    }


def render_row(one: Json) -> list[str]:
    until, then = one["until"], one["next"]
    return [
        one["group"],
        str(one["min"]),
        str(one["max"]),
        _entry(one),
        f"{datetime.fromisoformat(until):%a %Y-%m-%d %H:%M}" if until else "for good",
        f"{then['min']} to {then['max']} by {_entry(then)}" if then else "",
    ]


def _entry(told: Json) -> str:
    if told["entry"] is None:
        return GROUP
    return f"entry {told['name'] or told['entry']} ({told['when']})"
