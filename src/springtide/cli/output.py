"""What people and programs see: tables, times and states. The `render_` functions are pure.

On a terminal tables are rich's; elsewhere they are plain columns that grep and awk can take.
"""

import io
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, in the shape of docs/api.md.")]

NOTHING = "-"
STYLES: Mapping[str, str] = {
    "ready": "green",
    "done": "green",
    "off": "dim",
    "requested": "cyan",
    "booting": "cyan",
    "joining": "cyan",
    "running": "cyan",
    "draining": "yellow",
    "deleting": "yellow",
    "partly done": "yellow",
    "cancelled": "yellow",
    "failed": "red",
}
"""Colours of states; no other cell has one."""

_UNITS = (("d", 86400), ("h", 3600), ("m", 60))


def spare_old_terminals() -> None:
    """Where there is no UTF-8, a sign that cannot be shown is a question mark, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def put(text: str) -> None:
    """A result, to stdout."""
    typer.echo(text)


def note(text: str) -> None:
    """Something beside the result, to stderr."""
    typer.echo(text, err=True)


def put_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def put_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    shown = [[printable(cell) or NOTHING for cell in row] for row in rows]
    if sys.stdout.isatty():
        _put_rich(columns, shown)
    else:
        put(render_plain(columns, shown))


def _put_rich(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in row))
    Console().print(table)


def render_plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart; the last one is not padded."""
    lines = [[column.upper() for column in columns], *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )
    return "\n".join(line.rstrip() for line in padded)


def render_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, a line each."""
    known = [(name, printable(value) or NOTHING) for name, value in pairs]
    width = max(len(name) for name, _ in known)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in known)


LONGEST = 160
"""Characters of a reason in a table; `--json` has all of it."""


def brief(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def printable(text: str, *, spaces: bool = False) -> str:
    """Text from outside (reasons, details) on one line and without control characters.

    With `spaces` those that it has stay, tabs too, as in lines of a log.
    """
    if text.isprintable():
        return text
    words = text.expandtabs() if spaces else " ".join(text.split())
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in words)


def render_duration(seconds: float) -> str:
    """How long, in the unit that fits: 0.4s, 12s, 3m, 5h, 2d."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f}s"
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def render_age(at: float | None, now: float) -> str:
    return f"{_whole(now - at)} ago" if at else ""


def render_ages(times: Iterable[float], now: float) -> str:
    """The ages of several things: one, or from the youngest to the oldest."""
    known = sorted((at for at in times if at), reverse=True)
    if not known:
        return ""
    youngest, oldest = _whole(now - known[0]), _whole(now - known[-1])
    return f"{youngest} ago" if youngest == oldest else f"{youngest}–{oldest} ago"


def _whole(seconds: float) -> str:
    return render_duration(seconds) if seconds >= 10 else f"{max(seconds, 0):.0f}s"


def render_time(at: float | None) -> str:
    """Local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else ""
