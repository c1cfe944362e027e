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
_NUMBER = re.compile(r"[1-9][0-9]{0,11}")

_HOSTS = "Nodes, such as blue-[000-003,007]."
HostsArgument = Annotated[str, typer.Argument(metavar="HOSTLIST", help=_HOSTS)]
MaybeHosts = Annotated[str | None, typer.Argument(metavar="HOSTLIST", help=_HOSTS)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan; change nothing.")]
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
        raise Complaint(f"{what} is a whole number from 1, not {text!r}", Exit.WRONG)
    return int(text)


def parse_duration(text: str | None) -> float | None:
    """Seconds from 90, 90s, 10m, 1.5h or 1d."""
    if text is None:
        return None
    if not (match := _DURATION.fullmatch(text)):
        raise Complaint(f"{text!r} is no time; write 90s, 10m or 1h", Exit.WRONG)
    return float(match[1]) * _SECONDS[match[2]]
