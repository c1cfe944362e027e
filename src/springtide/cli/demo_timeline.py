"""What `tide demo` shows: moments of nodes and jobs, and the latencies between them. All pure.

Moments come from the daemon's events and from what the jobs themselves write, each with the
time its source gave it; nothing is timed by looking.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from springtide.cli.client import Json
from springtide.nodeset import NodeNameError, expand, fold

TOGETHER_S = 0.1
"""Moments of one kind that are no further apart than this share a line."""


class Phase(StrEnum):
    """What can happen to a node or a job, in the usual order."""

    SUBMITTED = "submitted"
    HOOK = "hook called"
    CREATED = "created"
    JOINED = "joined"
    RUNNING = "running"
    DONE = "done"
    GONE = "gone"
    GIVEN_BACK = "given back"


PHRASES: Mapping[Phase, str] = {
    Phase.SUBMITTED: "",
    Phase.HOOK: "Slurm asks for {nodes}",
    Phase.CREATED: "{nodes}",
    Phase.JOINED: "{nodes}",
    Phase.RUNNING: "on {nodes}",
    Phase.DONE: "on {nodes}",
    Phase.GONE: "{nodes}",
    Phase.GIVEN_BACK: "{nodes}",
}
EVENTS: Mapping[str, Phase] = {
    "instance created": Phase.CREATED,
    "node registered": Phase.JOINED,
    "instance gone": Phase.GONE,
    "node given back": Phase.GIVEN_BACK,
}
RESUME = "resume "
"""How the detail of an operation begins that Slurm's call for nodes opened."""

STEPS: Sequence[tuple[Phase, Phase]] = (
    (Phase.SUBMITTED, Phase.HOOK),
    (Phase.HOOK, Phase.CREATED),
    (Phase.CREATED, Phase.JOINED),
    (Phase.JOINED, Phase.RUNNING),
    (Phase.SUBMITTED, Phase.RUNNING),
    (Phase.DONE, Phase.GONE),
)
"""The rows of the closing table."""
SHORT: Mapping[Phase, str] = {Phase.SUBMITTED: "submit", Phase.HOOK: "hook"}

LAST_COUNTS = frozenset({Phase.DONE, Phase.GONE})
"""A node that runs several tasks begins with its first and is done with its last."""

_STAMP = re.compile(r"(running|done) (\d{1,12}\.\d{1,9}) (\S{1,200})")


@dataclass(frozen=True, slots=True)
class Moment:
    """Something happened to nodes at a time."""

    at: float
    phase: Phase
    nodes: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Burst:
    """What followed a submit, up to the next one."""

    name: str
    submitted_at: float
    moments: tuple[Moment, ...] = ()

    @property
    def paths(self) -> dict[str, dict[Phase, float]]:
        """When each node that ran something of this burst got where."""
        paths: dict[str, dict[Phase, float]] = {}
        for moment in self.moments:
            for node in moment.nodes:
                path = paths.setdefault(node, {Phase.SUBMITTED: self.submitted_at})
                if moment.phase is Phase.GONE and Phase.RUNNING not in path:
                    del paths[node]  # it could not start, and begins anew if it is asked for again
                elif moment.phase in LAST_COUNTS or moment.phase not in path:
                    path[moment.phase] = moment.at
        return {node: path for node, path in paths.items() if Phase.RUNNING in path}


# --- reading -----------------------------------------------------------------------------


def parse_event(event: Json) -> Moment | None:
    """An event of the daemon, if it is one of the story."""
    what, detail = event["what"], event["detail"]
    if what == "operation started" and detail.startswith(RESUME):
        return Moment(event["at"], Phase.HOOK, tuple(expand(detail.removeprefix(RESUME))))
    phase = EVENTS.get(what)
    if phase is None or event["node"] is None:
        return None
    text = detail if phase is Phase.GIVEN_BACK else ""
    return Moment(event["at"], phase, (event["node"],), text)


def parse_output(text: str) -> tuple[list[Moment], list[str]]:
    """What a job has written so far: its stamps, and the other lines."""
    moments, said = [], []
    for line in text.split("\n")[:-1]:
        if moment := _stamp(line):
            moments.append(moment)
        else:
            said.append(line)
    return moments, said


def _stamp(line: str) -> Moment | None:
    found = _STAMP.fullmatch(line)
    if found is None:
        return None
    try:
        return Moment(float(found[2]), Phase(found[1]), tuple(expand(found[3])))
    except NodeNameError:
        return None


# --- putting together --------------------------------------------------------------------


def assemble(submits: Sequence[tuple[str, float]], moments: Iterable[Moment]) -> list[Burst]:
    """The bursts (name and time of each submit, in order) with what belongs to each."""
    story = sorted(moments, key=lambda moment: moment.at)
    ends = [at for _, at in submits[1:]] + [float("inf")]
    return [
        Burst(name, at, tuple(moment for moment in story if at <= moment.at < end))
        for (name, at), end in zip(submits, ends, strict=True)
    ]


def fold_moments(moments: Iterable[Moment]) -> list[Moment]:
    """In order of time, with neighbours that differ only in their nodes put together."""
    folded: list[Moment] = []
    for moment in sorted(moments, key=lambda moment: moment.at):
        last = folded[-1] if folded else None
        if last and _alike(last, moment):
            folded[-1] = Moment(last.at, last.phase, last.nodes + moment.nodes, last.text)
        else:
            folded.append(moment)
    return folded


def _alike(one: Moment, other: Moment) -> bool:
    same = (one.phase, one.text) == (other.phase, other.text)
    return same and other.at - one.at <= TOGETHER_S


def alive(moments: Iterable[Moment]) -> set[str]:
    """The nodes whose instance was created and is not gone."""
    nodes: set[str] = set()
    for moment in sorted(moments, key=lambda moment: moment.at):
        if moment.phase is Phase.CREATED:
            nodes.update(moment.nodes)
        elif moment.phase is Phase.GONE:
            nodes.difference_update(moment.nodes)
    return nodes


def count(moments: Iterable[Moment], phase: Phase) -> int:
    return sum(moment.phase is phase for moment in moments)


# --- rendering ---------------------------------------------------------------------------


def render_moment(moment: Moment, since: float) -> tuple[str, str, str]:
    """When, what, and to what."""
    about = PHRASES[moment.phase].format(nodes=fold(moment.nodes))
    return (
        f"{moment.at - since:+7.2f} s",
        moment.phase.value,
        ": ".join(part for part in (about, moment.text) if part),
    )


def render_reuse(burst: Burst) -> str:
    """Which nodes were there already, and which were made."""
    again, new = _sorted_out(burst)
    parts = [f"{fold(again)} used again"] if again else []
    parts += [f"{fold(new)} created for it"] if new else []
    return ", ".join(parts)


def _sorted_out(burst: Burst) -> tuple[list[str], list[str]]:
    """The nodes of a burst that were there before, and its new ones."""
    paths = burst.paths
    again = [node for node, path in paths.items() if Phase.CREATED not in path]
    return sorted(again), sorted(paths.keys() - set(again))


def render_latencies(bursts: Iterable[Burst]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the closing table: each step from the first node to the last."""
    columns, paths = ["latency"], []
    for burst in bursts:
        again, new = _sorted_out(burst)
        for kind, nodes in (("idle", again), ("new", new)):
            if nodes:
                columns.append(f"{burst.name}, {len(nodes)} {kind}")
                paths.append([burst.paths[node] for node in nodes])
    rows = [
        [_step_name(step), *(render_span(spans(step, group)) for group in paths)] for step in STEPS
    ]
    return columns, rows


def _step_name(step: tuple[Phase, Phase]) -> str:
    return " → ".join(SHORT.get(phase, phase.value) for phase in step)


def spans(step: tuple[Phase, Phase], paths: Iterable[Mapping[Phase, float]]) -> list[float]:
    """How long the step took on each node that made it."""
    start, end = step
    return [path[end] - path[start] for path in paths if start in path and end in path]


def render_span(seconds: Sequence[float]) -> str:
    """From the shortest to the longest, where they differ."""
    if not seconds:
        return ""
    shortest, longest = f"{min(seconds):.2f}", f"{max(seconds):.2f}"
    return f"{shortest} s" if shortest == longest else f"{shortest}–{longest} s"
