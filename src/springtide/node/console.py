"""What the agent says, and how it waits.

The console shows a line for each phase, `springtide: phase NAME at EPOCH took SECONDS`, and behind
that ` failed: WHY` if it did not succeed. All that is said is kept for the report of a failure.
"""

import random
import sys
import time
from contextlib import suppress
from typing import Callable, List, Set

LOG_CHARACTERS = 64 << 10
SAY_AGAIN_S = 600.0
LOG: List[str] = []


class Failed(Exception):
    """The boot has failed; somebody has to do something."""


class Unfit(Failed):
    """This machine can never be the node."""


class Waiting(Exception):
    """Something is not there yet."""


class Early(Waiting):
    """The batch system does not expect this machine yet, as it should be; nobody need do anything,
    however long it takes."""


class Later(Waiting):
    """Something has to wait for the next boot; until then all is as it was, and works."""


def say(text: str) -> None:
    for line in text.splitlines():
        LOG.append(line)
        _print("springtide: " + line)
    while sum(map(len, LOG)) > 2 * LOG_CHARACTERS:
        del LOG[: len(LOG) // 2 + 1]


def _print(line: str) -> None:
    """As far as the console can show it; a boot goes on without one."""
    encoding = sys.stdout.encoding or "ascii"
    with suppress(OSError):
        print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def log() -> str:
    """The end of what was said."""
    return "\n".join(LOG)[-LOG_CHARACTERS:]


def render_phase(name: str, at: float, took_s: float, failed: str = "") -> str:
    line = f"phase {name} at {at:.3f} took {took_s:.3f}"
    return line + (" failed: " + failed if failed else "")


class Patience:
    """Waits longer each time. Says what for once, and then every ten minutes."""

    def __init__(self, most_s: float = 30.0) -> None:
        self.pause_s, self.most_s = 1.0, most_s
        self.said: Set[str] = set()
        self.said_at = time.monotonic()

    def wait(self, text: str) -> None:
        if text not in self.said or time.monotonic() > self.said_at + SAY_AGAIN_S:
            self.said.add(text)
            self.said_at = time.monotonic()
            say(text)
        time.sleep(self.pause_s * random.uniform(0.7, 1.0))  # noqa: S311 - not all at once
        self.pause_s = min(2 * self.pause_s, self.most_s)


def holds_within(limit_s: float, is_so: Callable[[], bool]) -> bool:
    ends = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True
