"""Bugs planted on purpose: decisions without their guard. The weeks must notice each of them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from springtide import decide, repairs, triage
from springtide.lookout import Lookout
from springtide.repairs import Finding
from springtide.steps import instances
from springtide.steps.work import Fallen, Work
from springtide.triage import After, Repair, Rule, View

Patches = list[Any]


def _suspend_without_a_look() -> Patches:
    """Nodes are deleted whose suspend was overtaken: the batch system uses them again."""

    async def nobody(work: Work, names: object) -> Fallen:
        return {}

    return [
        patch.object(decide, "still_wanted", lambda names, batch: {}),
        patch.object(instances, "_used", nobody),
    ]


def _believe_the_first_list() -> Patches:
    """Nodes are given up, with their jobs, when one list does not show them; lists lag behind."""
    known = {rule.name: rule for rule in triage.RULES}
    look_up = triage.rule_of

    def rule_of(view: View) -> Rule:
        rule = look_up(view)
        return known["vanished"] if rule is known["unlisted"] else rule

    return [
        patch.object(triage, "rule_of", rule_of),
        patch.object(triage, "limit_s", lambda after, timing: _LIMITS_S.get(after, 0.0)),
        patch.object(repairs, "due", _due),
    ]


_LIMITS_S: Mapping[After, float | None] = {After.ALWAYS: None}


def _due(found: Iterable[Finding], now: float) -> dict[Repair, list[Finding]]:
    groups: dict[Repair, list[Finding]] = defaultdict(list)
    for one in found:
        if one.due_at is not None:
            groups[one.rule.repair].append(one)
    return groups


def _strangers_are_welcome() -> Patches:
    """Instances of names that are no node's are left alone."""
    return [patch.object(Lookout, "_is_stranger", lambda self, one, providers: False)]


PLANTS: Mapping[str, Callable[[], Patches]] = {
    "suspend-without-a-look": _suspend_without_a_look,
    "believe-the-first-list": _believe_the_first_list,
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
