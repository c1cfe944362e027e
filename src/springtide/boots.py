"""How long nodes took to start, and whether the limit leaves them room. Pure.

The API tells it, `tide status` and `tide check` warn: a node that is late is given up though it
would have come, and its job starts all over.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from statistics import median

LAST = 100
"""So many boots of a group count."""
LOOKED_AT = 10 * LAST
"""So many of all groups are looked at."""
ROOM = 2
"""How many times the slowest boot the limit should be: clouds have slow days."""
ROUND_S = 10


@dataclass(frozen=True, slots=True)
class Boots:
    """The last boots of a group, from the request to the registration."""

    group: str
    count: int
    median_s: float
    slowest_s: float

    @property
    def needed_s(self) -> float:
        """The least limit that leaves them room."""
        return ROOM * self.slowest_s


def summarize(times: Iterable[tuple[str, float]]) -> list[Boots]:
    """From groups and seconds, newest first."""
    found: dict[str, list[float]] = {}
    for group, seconds in times:
        found.setdefault(group, []).append(seconds)
    kept = {group: some[:LAST] for group, some in sorted(found.items())}
    return [Boots(group, len(s), median(s), max(s)) for group, s in kept.items()]


def advise(boots: Boots, limit_s: float, what: str = "timing.start") -> str:
    """What to set instead of a limit that is too short; empty if it is long enough."""
    if limit_s >= boots.needed_s:
        return ""
    enough = ROUND_S * ceil(boots.needed_s / ROUND_S)
    return (
        f"nodes of {boots.group} took up to {boots.slowest_s:.0f} s to start, and {what} is "
        f"{limit_s:.0f} s: a slow day fails them; set timing.start to {enough}s or more"
    )
