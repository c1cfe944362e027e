"""What a story is, how it is cut short, and the words for times, lists and people in it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from springtide import decide
from springtide.model import Operation
from springtide.nodeset import NodeNameError, expand, fold

MOST_TOLD = 15
"""Lines of the past, unless all are wanted."""
SHORT = 200
"""Characters: what a job's comment and a node's reason can take."""
MOST_JOBS = 5
"""Jobs that are named one by one."""
DAY_S = 86400.0
FOR_EVER_S = 365 * DAY_S
ITSELF = "reconcile"
"""Who orders what nobody asked for."""

_PASSING = re.compile(r" \((?:in )?\d+ (?:s|min|h|days)(?: ago)?\)")
_NAMES = {"batch": "Slurm", ITSELF: "Springtide itself"}
_ID = r"[0-9][0-9A-Za-z_+.\[\]-]*"
_JOBS = re.compile(rf", for jobs ({_ID}(?:,{_ID})*)$")


@dataclass(frozen=True, slots=True)
class Story:
    """Why something is as it is."""

    about: str
    now: str
    """How things stand: one sentence."""
    past: tuple[tuple[float, str], ...] = ()
    """What happened and when, newest last."""
    next: str = ""
    """What happens next, when and by whom."""
    do: str = ""
    """What the reader can do now; empty if nothing."""


@dataclass(frozen=True, slots=True)
class Told:
    """The part of a story that is not past."""

    now: str
    next: str = ""
    do: str = ""


def sentence(text: str) -> str:
    """With a full stop. It begins as it does: mostly with a name, which has no capital."""
    return text if not text or text.endswith((".", "…")) else f"{text}."


def in_short(story: Story) -> str:
    """For a place that is read later and has little room: no times that pass, at most SHORT."""
    text = _PASSING.sub("", f"{story.now} {story.next}".strip())
    if len(text) <= SHORT:
        return text
    return f"{text[: SHORT - 1].rsplit(' ', 1)[0]}…"


def setback(names: Sequence[str], why: str) -> str:
    """What is said to a job that waits for nodes which cannot start."""
    return decide.SETBACK.format(fold(names), why)


def loss(names: Sequence[str], why: str) -> str:
    """What is said to a job whose nodes broke."""
    return decide.LOSS.format(fold(names), why)


def not_yet_told(
    letters: Mapping[str, Sequence[str]], told: Mapping[str, str]
) -> dict[str, list[str]]:
    """Of letters, each to some jobs, those to jobs that were told something else last.

    `told` is what each job was told last.
    """
    fresh = {text: [job for job in jobs if told.get(job) != text] for text, jobs in letters.items()}
    return {text: jobs for text, jobs in fresh.items() if jobs}


# --- times -----------------------------------------------------------------------------------


def clock(at: float, now: float) -> str:
    """A time of day, with its date if it is not near; always UTC, as readers may be anywhere."""
    form = "%H:%M:%S UTC" if abs(at - now) < DAY_S / 2 else "%Y-%m-%d %H:%M UTC"
    return datetime.fromtimestamp(at, UTC).strftime(form)


def since(at: float, now: float) -> str:
    return f"since {clock(at, now)} ({lasting(now - at)} ago)"


def by(at: float, now: float) -> str:
    """A time to come, or one that has just passed."""
    return f"at {clock(at, now)} (in {lasting(at - now)})" if at > now else "at any moment"


def lasting(seconds: float) -> str:
    for unit, size in (("days", DAY_S), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


# --- people, jobs and operations -----------------------------------------------------------


def jobs_of(operation: Operation) -> tuple[str, ...]:
    """The jobs that it was asked for; one that was stopped tells only of those of several nodes."""
    match = _JOBS.search(operation.reason)
    return tuple(match[1].split(",")) if match else tuple(operation.options.get("wide", ()))


def jobs_named(ids: Sequence[str]) -> str:
    """`job 17`, or `jobs 17, 18 and 40 more`."""
    if len(ids) == 1:
        return f"job {ids[0]}"
    more = f" and {len(ids) - MOST_JOBS} more" if len(ids) > MOST_JOBS else ""
    return f"jobs {', '.join(ids[:MOST_JOBS])}{more}"


def orderer(operation: Operation) -> str:
    """Who wanted it, and what for."""
    who = _NAMES.get(operation.asked_by, operation.asked_by) or "somebody"
    jobs = jobs_of(operation)
    return f"{who} for {jobs_named(jobs)}" if jobs else who


def named(operation: Operation) -> str:
    return f"operation {operation.id} ({operation.kind} by {orderer(operation)})"


def build(family: str) -> str:
    """What to do where a family has no image yet."""
    return f"`tide image build {family}` makes the image that is lacking"


def held(group: str, why: str, until: float, now: float) -> str:
    """That no node of a group is launched for a while."""
    if until <= now:
        return f"group {group} was held: {why}; now one node is tried, and the others wait for it"
    return _held_until(f"group {group}", why, until, now, "one node")


def held_alone(node: str, why: str, until: float, now: float) -> str:
    """That a node is not launched for a while, though its group is."""
    if until <= now:
        return f"{node} was held: {why}; it is tried again when a job needs it"
    return _held_until(node, why, until, now, "it")


def _held_until(what: str, why: str, until: float, now: float, tried: str) -> str:
    if until - now > FOR_EVER_S:
        return f"{what} is held until somebody lifts that: {why}"
    return f"{what} is held until {clock(until, now)}: {why}; then {tried} is tried"


def causes(operation: Operation) -> dict[str, str]:
    """Why it has each node: what Springtide orders itself lists that by nodes, or once for all."""
    parts = [part.partition(": ") for part in operation.reason.split("; ")]
    listed = [(_names(nodes), why) for nodes, _, why in parts]
    found = {name: why for names, why in listed if why for name in names}
    if operation.asked_by == ITSELF and not found.keys() & set(operation.nodes):
        return dict.fromkeys(operation.nodes, operation.reason)
    return found


def _names(nodes: str) -> list[str]:
    try:
        return expand(nodes)
    except NodeNameError:
        return []
