"""Where nothing is launched for a while, pure: how long, what is left, and how people are told.

A cloud that is full, at its quota or refuses us is not asked again at once: a `Hold` stops the
launches of a place, a group or a provider. When its time is over it probes: one node may be
launched, whose success lifts the hold and whose failure renews it, for longer. Steps make and
lift holds; the reconciler drains the groups that are held.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from urllib.parse import quote, unquote

from springtide import decide
from springtide.decide import Choice
from springtide.model import Cause, Hold
from springtide.spec import Cluster

Holds = Mapping[str, Hold]

FIRST_S: Mapping[Cause, float] = {
    Cause.CAPACITY: 120.0,  # others give machines back all the time
    Cause.QUOTA: 600.0,  # a human has to ask for more
    Cause.DENIED: 300.0,  # a human has to renew something
    Cause.REJECTED: 315_360_000.0,  # the same request is refused for ever: somebody lifts it
    Cause.BOOTS: 300.0,  # each probe costs a boot
}
LONGEST_S: Mapping[Cause, float] = {
    Cause.CAPACITY: 3600.0,
    Cause.QUOTA: 3600.0,
    Cause.DENIED: 1800.0,  # all waits for it, and a probe costs one call
    Cause.REJECTED: 315_360_000.0,
    Cause.BOOTS: 3600.0,
}
FORGOTTEN_S = 86_400.0
"""So long after its time was over, a hold says nothing about the next failure."""
BOOTS_LIMIT = 3
COUNT = "boots:"


class Stage(StrEnum):
    """How far a hold is."""

    HELD = "held"
    PROBING = "probing"
    OPEN = "open"
    """It works again; kept so that a failure soon after weighs more."""


# --- keys ------------------------------------------------------------------------


@cache
def place_key(provider_kind: str, zone: str | None, flavor: str, market: str | None = None) -> str:
    """Zones and markets are the cloud's words, so what parts them here is quoted in them."""
    place = "/".join(quote(part or "", safe=":") for part in (zone, flavor, market))
    return f"place:{place}@{provider_kind}"


def choice_key(provider_kind: str, choice: Choice) -> str:
    flavor, zone, market = choice
    return place_key(provider_kind, zone, flavor, market)


def group_key(group: str) -> str:
    return f"group:{group}"


def node_key(node: str) -> str:
    return f"node:{node}"


def node_of(key: str) -> str | None:
    """The node that such a key is for."""
    kind, _, name = key.partition(":")
    return name if kind == "node" else None


def boots_key(node: str) -> str:
    """Of the failed boots that are counted, and hold nothing yet."""
    return f"{COUNT}{node}"


def provider_key(provider_kind: str) -> str:
    return f"provider:{provider_kind}"


# --- the life of a hold ------------------------------------------------------------


def renewed(hold: Hold | None, key: str, cause: Cause, reason: str, now: float) -> Hold:
    """The hold after a failure: doubled for each one in a row, however many nodes it befell."""
    if hold is None or _is_forgotten(hold, now):
        return _held(key, cause, reason, 1, now, now)
    if hold.cause is not cause:
        fresh = _held(key, cause, reason, 1, now, now)
        return max(hold, fresh, key=lambda one: one.until)
    if stage(hold, now) is Stage.HELD:  # it was under way when the hold began
        return replace(hold, reason=reason)
    return _held(key, cause, reason, hold.count + 1, hold.since, now)


def _is_forgotten(hold: Hold, now: float) -> bool:
    if hold.until:
        return now > hold.until + FORGOTTEN_S
    return now > hold.since + 2 * lasts_s(hold.cause, hold.count)


def _held(key: str, cause: Cause, reason: str, count: int, since: float, now: float) -> Hold:
    return Hold(key, cause, reason, count, since, now + lasts_s(cause, count))


def lasts_s(cause: Cause, count: int) -> float:
    """How long the n-th hold in a row lasts."""
    doublings = min(count - 1, 16)  # past every LONGEST_S
    return min(FIRST_S[cause] * 2.0**doublings, LONGEST_S[cause])


def stage(hold: Hold, now: float) -> Stage:
    """A time too far away is that of a clock which has been set back since."""
    if not hold.until:
        return Stage.OPEN
    return Stage.HELD if 0 < hold.until - now <= LONGEST_S[hold.cause] else Stage.PROBING


def opened(hold: Hold, now: float) -> Hold:
    """The hold when its cause is gone, as far as is known."""
    return replace(hold, since=now, until=0.0)


def failed_at(hold: Hold) -> float:
    """When it came to this last."""
    return hold.since if not hold.until else hold.until - lasts_s(hold.cause, hold.count)


def allowance(stage: Stage | None) -> int | None:
    """How many nodes may be launched; None, without a hold, is as many as are wanted."""
    return {None: None, Stage.PROBING: 1, Stage.HELD: 0}[stage]


def boots(failures: int, limit: int = BOOTS_LIMIT) -> bool:
    """Whether so many failed boots of a node in a row are to hold it."""
    return failures >= limit


def group_boots(failures: Collection[int], limit: int = BOOTS_LIMIT) -> bool:
    """Whether a group is to be held, by the failed boots of each of its nodes since one worked.

    One node that fails over and over is its own trouble.
    """
    return len(failures) > 1 and sum(failures) >= limit


# --- what is left ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """Where nodes may be made now."""

    choices: tuple[Choice, ...]
    """In the order to try."""
    stage: Stage | None = None
    """PROBING: the choices are for one node. HELD: there are none."""
    probes: tuple[Choice, ...] = ()
    """Preferred ones whose time is over: one node may try them before the choices.

    Otherwise nobody would find out that the first choice has room again."""


def open_choices(choices: Sequence[Choice], holds: Holds, provider_kind: str, now: float) -> Open:
    """Those that nothing holds; if all are held, those whose time is over; if none is, none."""
    known = {choice: holds.get(choice_key(provider_kind, choice)) for choice in choices}
    stages = {choice: stage(hold, now) if hold else Stage.OPEN for choice, hold in known.items()}
    free = tuple(choice for choice, at in stages.items() if at is Stage.OPEN)
    due = tuple(choice for choice, at in stages.items() if at is Stage.PROBING)
    if free:
        better = choices[: choices.index(free[0])]
        return Open(free, probes=tuple(choice for choice in due if choice in better))
    return Open(due, Stage.PROBING) if due else Open((), Stage.HELD)


def held_groups(spec: Cluster, holds: Holds, now: float) -> dict[str, tuple[str, float]]:
    """Groups in which no node may be launched: why, and until when."""
    return _groups_at(Stage.HELD, spec, holds, now)


def due_groups(spec: Cluster, holds: Holds, now: float) -> dict[str, tuple[str, float]]:
    """Groups whose time is over: one node may be tried, and the others wait for that."""
    held = held_groups(spec, holds, now)
    due = _groups_at(Stage.PROBING, spec, holds, now)
    return {group: why for group, why in due.items() if group not in held}


def _groups_at(
    wanted: Stage, spec: Cluster, holds: Holds, now: float
) -> dict[str, tuple[str, float]]:
    """By themselves, by their provider or by all their places; the longest is the reason."""
    found = {}
    for group in spec.groups:
        at = [hold for hold in of_group(spec, group, holds, now) if stage(hold, now) is wanted]
        if longest := max(at, key=lambda hold: hold.until, default=None):
            found[group] = summary(longest), longest.until
    return found


def of_group(spec: Cluster, group: str, holds: Holds, now: float) -> list[Hold]:
    """The holds that keep a group from being launched; of all its places, the first to end."""
    kind, choices = spec.provider_name(group), decide.choices(spec, group)
    found = [holds.get(group_key(group)), holds.get(provider_key(kind))]
    if open_choices(choices, holds, kind, now).stage is not None:
        places = [holds[choice_key(kind, choice)] for choice in choices]
        found.append(min(places, key=lambda hold: hold.until))
    return [hold for hold in found if hold]


# --- words -------------------------------------------------------------------------


def describe(hold: Hold, now: float) -> str:
    """One line for people: what is held, how often it was tried, when it is tried again."""
    if stage(hold, now) is Stage.PROBING:
        return f"{summary(hold)}; the next node tries it again"
    if hold.cause is Cause.REJECTED:
        return summary(hold)
    at = datetime.fromtimestamp(hold.until, UTC)
    return f"{summary(hold)}; next try {at:%H:%M} UTC"


def summary(hold: Hold) -> str:
    """The same without the time."""
    times = f", tried {hold.count} times" if hold.count > 1 else ""
    why = f" ({hold.reason})" if hold.reason else ""
    words = _OF_ONE if hold.key.startswith("node:") else _WORDS
    return words[hold.cause].format(of=_subject(hold.key), why=why, key=hold.key) + times


_WORDS: dict[Cause, str] = {
    Cause.CAPACITY: "no capacity for {of}",  # what clouds say of it is no more than that
    Cause.QUOTA: "the account's quota is used up for {of}{why}: have it raised",
    Cause.DENIED: "our credentials are refused by {of}{why}: renew them",
    Cause.REJECTED: (
        "requests for {of} are refused{why}: mend the cluster file, or the cause and run "
        "`tide holds --lift {key}`"
    ),
    Cause.BOOTS: "nodes do not start any more in {of}{why}",
}


_OF_ONE = _WORDS | {Cause.BOOTS: "{of} does not start any more{why}"}


def _subject(key: str) -> str:
    kind, _, name = key.partition(":")
    return _place(name) if kind == "place" else f"{kind} {name}"


def _place(name: str) -> str:
    zone, flavor, market = map(unquote, name.rpartition("@")[0].split("/"))
    bought = f"{market} {flavor}" if market else flavor
    return f"{bought} in {zone}" if zone else bought
