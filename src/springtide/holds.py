"""Where nothing is launched for a while, pure: how long, what is left, and how people are told.

A cloud that is full, at its quota or refuses us is not asked again at once: a `Hold` stops the
launches of a place, a group or a provider. When its time is over it probes: one node may be
launched, whose success lifts the hold and whose failure renews it, for longer. Steps make and
lift holds; the reconciler drains the groups that are held.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from urllib.parse import quote, unquote

from springtide.decide import Choice, choices
from springtide.model import Cause, Hold
from springtide.spec import Cluster

Holds = Mapping[str, Hold]

FIRST_S: Mapping[Cause, float] = {
    Cause.CAPACITY: 120.0,  # others give machines back all the time
    Cause.QUOTA: 600.0,  # a human has to ask for more
    Cause.DENIED: 300.0,  # a human has to renew something
    Cause.REJECTED: 600.0,  # a human has to mend the request
    Cause.BOOTS: 300.0,  # each probe costs a boot
}
LONGEST_S: Mapping[Cause, float] = {
    Cause.CAPACITY: 3600.0,
    Cause.QUOTA: 3600.0,
    Cause.DENIED: 1800.0,  # all waits for it, and a probe costs one call
    Cause.REJECTED: 3600.0,
    Cause.BOOTS: 3600.0,
}
FORGOTTEN_S = 86_400.0
"""So long after its time was over, a hold says nothing about the next failure."""
BOOTS_LIMIT = 3


class Stage(StrEnum):
    """How far a hold is."""

    HELD = "held"
    PROBING = "probing"


# --- keys ------------------------------------------------------------------------


def place_key(provider_kind: str, zone: str | None, flavor: str, market: str | None = None) -> str:
    """Zones and markets are the cloud's words, so what parts them here is quoted in them."""
    place = "/".join(quote(part or "", safe=":") for part in (zone, flavor, market))
    return f"place:{place}@{provider_kind}"


def choice_key(provider_kind: str, choice: Choice) -> str:
    flavor, zone, market = choice
    return place_key(provider_kind, zone, flavor, market)


def group_key(group: str) -> str:
    return f"group:{group}"


def provider_key(provider_kind: str) -> str:
    return f"provider:{provider_kind}"


# --- the life of a hold ------------------------------------------------------------


def renewed(hold: Hold | None, key: str, cause: Cause, reason: str, now: float) -> Hold:
    """The hold after a failure: doubled for each one in a row, however many nodes it befell."""
    if hold is None or now > hold.until + FORGOTTEN_S:
        return _held(key, cause, reason, 1, now, now)
    if hold.cause is not cause:
        fresh = _held(key, cause, reason, 1, now, now)
        return replace(fresh, until=max(hold.until, fresh.until))
    if stage(hold, now) is Stage.HELD:  # it was under way when the hold began
        return replace(hold, reason=reason)
    return _held(key, cause, reason, hold.count + 1, hold.since, now)


def _held(key: str, cause: Cause, reason: str, count: int, since: float, now: float) -> Hold:
    return Hold(key, cause, reason, count, since, now + lasts_s(cause, count))


def lasts_s(cause: Cause, count: int) -> float:
    """How long the n-th hold in a row lasts."""
    doublings = min(count - 1, 16)  # past every LONGEST_S
    return min(FIRST_S[cause] * 2.0**doublings, LONGEST_S[cause])


def stage(hold: Hold, now: float) -> Stage:
    return Stage.HELD if now < hold.until else Stage.PROBING


def allowance(stage: Stage | None) -> int | None:
    """How many nodes may be launched; None, without a hold, is as many as are wanted."""
    return {None: None, Stage.PROBING: 1, Stage.HELD: 0}[stage]


def boots(failures: int, limit: int = BOOTS_LIMIT) -> bool:
    """Whether so many failed boots of a group in a row are to hold it."""
    return failures >= limit


# --- what is left ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """Where nodes may be made now."""

    choices: tuple[Choice, ...]
    """In the order to try."""
    stage: Stage | None = None
    """PROBING: the choices are for one node. HELD: there are none."""
    until: float | None = None
    """If there are none, when there will be."""
    probes: tuple[Choice, ...] = ()
    """Preferred ones whose time is over: one node may try them before the choices.

    Otherwise nobody would find out that the first choice has room again."""


def open_choices(wanted: Sequence[Choice], holds: Holds, provider_kind: str, now: float) -> Open:
    """Those that nothing holds; if all are held, those whose time is over; if none is, none."""
    held = {choice: holds.get(choice_key(provider_kind, choice)) for choice in wanted}
    free = tuple(choice for choice, hold in held.items() if hold is None)
    due = tuple(choice for choice, hold in held.items() if hold and hold.until <= now)
    if free:
        better = wanted[: wanted.index(free[0])]
        return Open(free, probes=tuple(choice for choice in due if choice in better))
    if due:
        return Open(due, Stage.PROBING)
    return Open((), Stage.HELD, min((hold.until for hold in held.values() if hold), default=None))


def held_groups(spec: Cluster, holds: Holds, now: float) -> dict[str, tuple[str, float]]:
    """Groups in which no node may be launched: why, and until when."""
    found = {group: _held_by(spec, group, holds, now) for group in spec.groups}
    return {group: (summary(hold), hold.until) for group, hold in found.items() if hold}


def _held_by(spec: Cluster, group: str, holds: Holds, now: float) -> Hold | None:
    """Of the group's own hold, its provider's and that of its places, the one that lasts."""
    kind = spec.provider_of(group).kind
    own = [holds.get(group_key(group)), holds.get(provider_key(kind))]
    all_of_them = (*own, _soonest(choices(spec, group), holds, kind))
    held = [hold for hold in all_of_them if hold and stage(hold, now) is Stage.HELD]
    return max(held, key=lambda hold: hold.until, default=None)


def _soonest(wanted: Sequence[Choice], holds: Holds, provider_kind: str) -> Hold | None:
    """If all these places are held, the hold that is over first."""
    found = [holds.get(choice_key(provider_kind, choice)) for choice in wanted]
    held = [hold for hold in found if hold]
    return min(held, key=lambda hold: hold.until) if len(held) == len(wanted) else None


# --- words -------------------------------------------------------------------------


def describe(hold: Hold, now: float) -> str:
    """One line for people: what is held, how often it was tried, when it is tried again."""
    if stage(hold, now) is Stage.PROBING:
        return f"{summary(hold)}; the next node tries it again"
    at = datetime.fromtimestamp(hold.until, UTC)
    return f"{summary(hold)}; next try {at:%H:%M} UTC"


def summary(hold: Hold) -> str:
    """The same without the time."""
    times = f", tried {hold.count} times" if hold.count > 1 else ""
    why = f" ({hold.reason})" if hold.reason else ""
    return _WORDS[hold.cause].format(of=_subject(hold.key), why=why) + times


_WORDS: Mapping[Cause, str] = {
    Cause.CAPACITY: "no capacity for {of}",  # what clouds say of it is no more than that
    Cause.QUOTA: "the account's quota is used up for {of}{why}: have it raised",
    Cause.DENIED: "our credentials are refused by {of}{why}: renew them",
    Cause.REJECTED: "requests for {of} are refused{why}: mend the cluster file",
    Cause.BOOTS: "nodes do not start any more in {of}{why}",
}


def _subject(key: str) -> str:
    kind, _, name = key.partition(":")
    return _place(name) if kind == "place" else f"{kind} {name}"


def _place(name: str) -> str:
    zone, flavor, market = map(unquote, name.rpartition("@")[0].split("/"))
    bought = f"{market} {flavor}" if market else flavor
    return f"{bought} in {zone}" if zone else bought
