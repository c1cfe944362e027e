"""Parameters that commands share, checked before anybody is asked.

All are text or switches: see `Commands`, which passes text on as it is.
"""

import re
from typing import Annotated

import typer

from springtide.cli.endings import Complaint, Exit
from springtide.nodeset import NodeNameError, expand

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
MOST_DIGITS = 12
_NUMBER = re.compile(rf"[1-9][0-9]{{0,{MOST_DIGITS - 1}}}")
_COUNT = re.compile(rf"[0-9]{{1,{MOST_DIGITS}}}")

_HOSTS = "Nodes, such as blue-[000-003,007]."
HostsArgument = Annotated[str, typer.Argument(metavar="HOSTLIST", help=_HOSTS)]
MaybeHosts = Annotated[str | None, typer.Argument(metavar="HOSTLIST", help=_HOSTS)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan; change nothing.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Ask for it and return.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
YesReally = Annotated[
    str | None,
    typer.Option("--yes-really", metavar="NAME", help="Do not ask, though it is protected."),
]
BatchOption = Annotated[
    str | None,
    typer.Option(
        "--batch", metavar="K", help="So many nodes at once; 0 is as many as have no jobs."
    ),
]
PauseOption = Annotated[
    str | None,
    typer.Option("--pause", metavar="TIME", help="Between two batches, such as 90s, 10m."),
]
DeadlineOption = Annotated[
    str | None,
    typer.Option(
        "--deadline",
        metavar="TIME",
        help="Jobs may run so long; nodes that are busy then are given back.",
    ),
]
ServedFile = Annotated[
    str | None,
    typer.Argument(metavar="FILE", help="The cluster's file; left out, the one it was made from."),
]
LimitOption = Annotated[
    str, typer.Option("--limit", "-n", metavar="N", help="The newest so many.", show_default=True)
]


def hosts(text: str) -> list[str]:
    """The names of a host list, each once."""
    try:
        return list(dict.fromkeys(expand(text)))
    except NodeNameError as error:
        raise Complaint(str(error), Exit.WRONG) from None


def number(text: str, what: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise _no_number(text, what, 1)
    return int(text)


def count(text: str | None, what: str) -> int | None:
    """A number of things, of which there may be none; None if nothing was said."""
    if text is None:
        return None
    if not _COUNT.fullmatch(text):
        raise _no_number(text, what, 0)
    return int(text)


def _no_number(text: str, what: str, least: int) -> Complaint:
    if text.isdecimal() and len(text) > MOST_DIGITS:
        return Complaint(f"{what} cannot be so large: {text[:40]}", Exit.WRONG)
    return Complaint(f"{what} is a whole number from {least}, not {text[:40]!r}", Exit.WRONG)


def given(**options: object) -> dict[str, object]:
    """Options that were said, for the daemon; it knows what the others are."""
    return {
        key: value for key, value in options.items() if value is not None and value is not False
    }


def parse_duration(text: str | None) -> float | None:
    """Seconds from 90, 90s, 10m, 1.5h or 1d."""
    if text is None:
        return None
    if not (match := _DURATION.fullmatch(text)):
        raise Complaint(f"{text!r} is no time; write 90s, 10m or 1h", Exit.WRONG)
    return float(match[1]) * _SECONDS[match[2]]
