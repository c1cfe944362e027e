"""Long work, watched: one line that changes on a terminal, a line for each change elsewhere.

The work is the daemon's. It goes on when the watcher is interrupted, and the watcher has some
patience when the daemon is started again meanwhile.
"""

import math
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import typer

from springtide.cli import output
from springtide.cli.client import Away
from springtide.cli.endings import Exit

T = TypeVar("T")

PATIENCE_S = 30.0
"""How long the daemon may be away while it is being watched."""
PAUSE_S = 0.2
SHARE = 5
"""A pause between two looks lasts at least so many times as long as a look."""


class Progress:
    """What is going on, on stderr."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty() and not quiet
        self._now = ""

    def now(self, text: str) -> None:
        """What is being waited for; the next one takes its place."""
        if text == self._now or self._quiet:
            return
        self._now = text
        if self._live:
            self._overwrite(text)
        else:
            output.note(text)

    def past(self, text: str) -> None:
        """Something that stays."""
        if self._quiet:
            return
        if self._live:
            self._overwrite("")
        output.note(text)
        if self._live:
            self._overwrite(self._now)

    def clear(self) -> None:
        if self._live:
            self._overwrite("")
        self._now = ""

    def _overwrite(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        shown = text if len(text) <= width else f"{text[: width - 1]}…"
        sys.stderr.write(f"\r\x1b[2K{shown}")
        sys.stderr.flush()


@contextmanager
def watching(ids: Callable[[], Iterable[int]], *, quiet: bool = False) -> Iterator[Progress]:
    """A place to show progress. Ctrl-C ends the watching, not the work, and says so."""
    progress = Progress(quiet=quiet)
    try:
        yield progress
    except KeyboardInterrupt:
        progress.clear()
        known = " ".join(map(str, ids()))
        see = f"tide operations {known}".rstrip()
        output.note(f"tide: interrupted; the operation goes on in the daemon; see `{see}`")
        raise typer.Exit(Exit.INTERRUPTED) from None
    finally:
        progress.clear()


def looks(timeout_s: float | None = None) -> Iterator[float]:
    """A time to look, again and again until the time is over: the seconds since the first."""
    first = time.monotonic()
    end = math.inf if timeout_s is None else first + timeout_s
    while (began := time.monotonic()) < end:
        yield began - first
        now = time.monotonic()
        time.sleep(max(0, min(max(PAUSE_S, SHARE * (now - began)), end - now)))


def patiently(ask: Callable[[], T], progress: Progress) -> T:
    """The daemon's answer, also if it is away for a while."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except Away:
            if time.monotonic() > end:
                raise
            progress.now("the daemon is away; waiting for it")
        time.sleep(PAUSE_S)
