"""Bugs planted on purpose: decisions without their guard. The weeks must notice each of them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from springtide import decide, triage
from springtide.lookout import Lookout
from springtide.ports import BatchNode
from springtide.steps import instances, repair
from springtide.steps.work import Fallen, Work
from springtide.triage import After, Repair, Rule

Patches = list[Any]


def _suspend_without_a_look() -> Patches:
    """Nodes are deleted whose suspend was overtaken: the batch system uses them again."""

    async def nobody(work: Work, names: object) -> Fallen:
        return {}

    return [
        patch.object(decide, "still_wanted", lambda names, batch: {}),
        patch.object(instances, "_used", nobody),
    ]


def _repair_without_a_second_look() -> Patches:
    """Whatever was broken when the operation was opened is given up when its turn comes."""
    broken = next(rule for rule in triage.RULES if rule.repair is Repair.REPAIR)

    async def rules(work: Work, seen: Mapping[str, BatchNode]) -> dict[str, Rule]:
        return dict.fromkeys(work.names, broken)

    return [patch.object(repair, "_rules", rules)]


def _no_grace() -> Patches:
    """One look at a list that lags behind is enough to give up a node."""
    return [patch.object(triage, "limit_s", lambda after, timing: _limits_s.get(after, 0.0))]


_limits_s: Mapping[After, float | None] = {After.ALWAYS: None}


def _strangers_are_welcome() -> Patches:
    """Instances of names that are no node's are left alone."""
    return [patch.object(Lookout, "_is_stranger", lambda self, one, providers: False)]


PLANTS: Mapping[str, Callable[[], Patches]] = {
    "suspend-without-a-look": _suspend_without_a_look,
    "repair-without-a-second-look": _repair_without_a_second_look,
    "no-grace": _no_grace,
    "strangers-are-welcome": _strangers_are_welcome,
}
"""By the names that `--plant` knows."""


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """With this bug, for the length of the block."""
    with ExitStack() as stack:
        for patched in PLANTS[name]() if name else ():
            stack.enter_context(patched)
        yield
