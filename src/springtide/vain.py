"""Groups whose nodes come up and take no jobs: what breaks them would break others too. Pure.

`scaling` asks. A prolog that fails, or an image that lacks something, has every node of a group in
error soon after it joined; each would be replaced by another that fares no better. After some of
them no more are started for a while, which grows. Then one is tried, and others when it serves.
"""

from collections.abc import Collection
from typing import NamedTuple

from springtide.stuck import pause_s

MANY = 3
"""So many may break, for reasons of their own perhaps, before the group is left alone."""


class Vain(NamedTuple):
    """What is remembered of a group since a node of it served last."""

    broken: frozenset[str] = frozenset()
    """Nodes that take no jobs, and have none."""
    breaks: int = 0
    """So many broke."""
    rest_s: float = 0.0
    """None is started for so much longer."""
    times: int = 0
    """It was left alone so often."""
    tried: bool = False
    """One stood ready for jobs since; nobody knows yet what these do to it."""

    @property
    def is_trying(self) -> bool:
        return self.times > 0 and not self.rest_s and not self.tried


def looked_at(
    before: Vain, broken: Collection[str], serves: bool, works: bool, step_s: float
) -> Vain:
    """What is known after another look, `step_s` after that before.

    One that `serves` could take jobs; one that `works` has some, and stands it.
    """
    if works:
        return Vain()
    now = frozenset(broken)
    if serves:
        return before._replace(broken=now, rest_s=0.0, tried=True) if before.times else Vain()
    rest_s = max(0.0, before.rest_s - step_s)
    if rest_s:
        return before._replace(broken=now, rest_s=rest_s)
    breaks = before.breaks + len(now - before.broken)
    if breaks < MANY:
        return before._replace(broken=now, breaks=breaks, rest_s=0.0)
    rest_s = pause_s(before.times)
    return Vain(now, MANY - 1, rest_s, before.times + 1)  # the next one that breaks is enough
