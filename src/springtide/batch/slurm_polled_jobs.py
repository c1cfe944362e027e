"""The jobs of a Slurm that is read: which of them more nodes would help, and what each needs.

Pure; called by `slurm_polled`.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import ceil

from springtide.batch.slurm_polled_features import parse_featured
from springtide.batch.slurm_text import lines_of, parse_time, shorten
from springtide.batch.unread import UnreadableError, told
from springtide.nodeset import NodeNameError, expand
from springtide.ports import Chunk, JobState, QueueJob

FIELDS = (
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "State",
    "UserName",
    "Partition",
    "NumNodes",
    "NumCPUs",
    "NumTasks",
    "cpus-per-task",
    "ntpernode",
    "MinMemory",
    "tres-alloc",
    "Feature",
    "OverSubscribe",
    "ReqNodes",
    "Reason",
    "Dependency",
    "SubmitTime",
    "EligibleTime",
    "NodeList",
)
SEPARATOR = "\x1f"
"""Features have `|` and `&`, reasons commas."""
FORMAT = ",".join(f"{field}:0{SEPARATOR}" for field in FIELDS)
"""For squeue -O; a width of 0 cuts nothing."""

ALWAYS = {
    "": "not looked at yet",
    "None": "not looked at yet",
    "Priority": "others of its partition come first, and they need nodes too",
    "Resources": "the first in the line, and there is no room",
}
"""Reasons for which more nodes help, and why they do. All others are a person's, a date's, a
limit's, another job's or a mistake's: JobHeldUser, BeginTime, QOSMaxCpuPerUserLimit, Licenses,
AssocGrpCpuLimit, Dependency, PartitionNodeLimit, BadConstraints, JobArrayTaskLimit, and so on."""
NEVER = {
    "PartitionConfig": "the partition has no such nodes, or not so many of them",
    "PartitionNodeLimit": "it asks for more nodes than the partition has or allows",
    "PartitionTimeLimit": "it asks for more time than the partition allows",
    "BadConstraints": "no node has the features that it asks for",
}
"""Reasons that only the owner can do something about."""
DOWN = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
"""It counts too: our nodes are down while they are off."""
_UNAVAILABLE = re.compile(r"ReqNodeNotAvail.*?UnavailableNodes:(\S+)\)?")
"""It counts if any of them is ours. Without such nodes a reservation is in the way."""

_NONE = frozenset({"", "(null)", "N/A", "None", "n/a"})
_WAITS = frozenset({"PENDING"})
_HELD = frozenset({"REQUEUE_HOLD", "REQUEUE_FED", "REQUEUED", "REVOKED", "SPECIAL_EXIT"})
_MEMORY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)([KMGTP]?)")
_MIB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_TASKS = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?")
_NUMBERS = ("NumNodes", "NumCPUs", "NumTasks", "cpus-per-task", "ntpernode")
_UNKNOWN: tuple[Chunk, ...] = (Chunk(),)
_NOBODY: tuple[str, ...] = ()
"""In place of what cannot be read of a job."""
MOST_DIGITS, MOST_LONG, MOST_DEEP = 18, 4096, 100
"""Digits of a number, and characters and parentheses of features: what is beyond is not read."""


@dataclass(frozen=True, slots=True)
class Site:
    """What decides about jobs besides themselves."""

    ours: Collection[str]
    """Our nodes."""
    now: float = 0.0
    shares_memory: bool = True
    """Whether memory is given to jobs; if so, one that names none gets all of a node."""
    excluded: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Nodes of ours that jobs must not have, by squeue's JobID."""


def parse_jobs(text: str, site: Site) -> list[QueueJob]:
    """The jobs of squeue in FORMAT; those of an array that wait are one, with so many tasks."""
    rows = [_row(line) for line in lines_of(text) if line]
    run = Counter(row["ArrayJobID"] for row in rows if _has_nodes(row))
    return [_job(row, site, run) for row in rows]


def _row(line: str) -> dict[str, str]:
    values = line.rstrip(" ").split(SEPARATOR)
    if len(values) != len(FIELDS) + 1 or values[-1] or not values[0].isdecimal():
        raise UnreadableError(f"squeue printed {shorten(line)!r} instead of a job")
    row = {field: value.strip() for field, value in zip(FIELDS, values, strict=False)}
    _require_numbers(row)
    return row


def _require_numbers(row: Mapping[str, str]) -> None:
    """Where Slurm itself prints no numbers nothing can be believed; how large they are is for the
    job to answer for."""
    for name in _NUMBERS:
        if not (_first(row, name) in _NONE or _first(row, name).isdecimal()):
            raise UnreadableError(f"squeue printed {name} {shorten(row[name])!r}, no number")
    for part in _parts(row["ArrayTaskID"]):
        if not _TASKS.fullmatch(part):
            raise UnreadableError(f"squeue printed {shorten(part)!r} instead of an array's tasks")


def _job(row: Mapping[str, str], site: Site, run: Mapping[str, int]) -> QueueJob:
    """What has nodes keeps them, whatever it asked for."""
    runs = _has_nodes(row)
    tasks, uncounted = told(lambda: _tasks(row["ArrayTaskID"], run[row["ArrayJobID"]]), 0)
    chunks, unknown = told(lambda: _chunks(row, site), _UNKNOWN)
    names, unnamed = told(lambda: nodes_of("" if runs else row["ReqNodes"]), _NOBODY)
    unread = "" if runs else uncounted or unknown or unnamed
    state = _state(row, site)
    held = state is JobState.WAITING and (unread or tasks == 0)
    return QueueJob(
        _id(row),
        state=JobState.HELD if held else state,
        user=row["UserName"],
        queues=tuple(row["Partition"].split(",")),
        chunks=chunks,
        tasks=max(1, tasks),
        nodes=nodes_of(row["NodeList"]) if runs else (),
        names=names,
        reason=unread or ("" if row["Reason"] in _NONE else row["Reason"]),
        never=NEVER.get(row["Reason"].strip("()"), "") if state is JobState.HELD else "",
        since=parse_time(row["SubmitTime"]),
        avoid=site.excluded.get(row["JobID"], frozenset()),
        over=row["State"] == "COMPLETING",
    )


def _id(row: Mapping[str, str]) -> str:
    """As people write it; all tasks of an array that wait have the id of the array."""
    task = row["ArrayTaskID"]
    return f"{row['ArrayJobID']}_{task}" if task.isdecimal() else row["JobID"]


def _has_nodes(row: Mapping[str, str]) -> bool:
    """A job that was requeued is shown with the nodes that it had."""
    return row["State"] not in _WAITS | _HELD


def nodes_of(text: str) -> tuple[str, ...]:
    """That squeue printed."""
    try:
        return () if text in _NONE else tuple(expand(text))
    except NodeNameError as error:
        raise UnreadableError(f"squeue printed {shorten(text)!r} instead of nodes") from error


# --- whether it waits ----------------------------------------------------------------------------


def _state(row: Mapping[str, str], site: Site) -> JobState:
    """What has nodes runs, whatever Slurm calls it: CONFIGURING, COMPLETING, SUSPENDED."""
    if row["State"] in _WAITS:
        waits = counts(row["Reason"], site.ours) and _may_start(row, site.now)
        return JobState.WAITING if waits else JobState.HELD
    return JobState.RUNNING if _has_nodes(row) else JobState.HELD


def _may_start(row: Mapping[str, str], now: float) -> bool:
    """Until the scheduler has looked at it, a job that is for later has the reason of others:
    that its nodes are down."""
    eligible_at = parse_time(row["EligibleTime"])
    return row["Dependency"] in _NONE and (eligible_at is None or eligible_at <= now)


def counts(reason: str, ours: Collection[str]) -> bool:
    """Whether a job that waits for this would start if more of our nodes were up."""
    if reason in ALWAYS or reason.strip("()") == DOWN:
        return True
    found = _UNAVAILABLE.match(reason.strip("()"))
    return found is not None and _has_some(found[1], ours)


def _has_some(text: str, ours: Collection[str]) -> bool:
    """Slurm cuts long lists, and what is left may be no list: ours may have been behind the cut.

    A job that our nodes do not help is found out as such by what happens.
    """
    try:
        return any(name in ours for name in expand(text.rstrip(",")))
    except NodeNameError:
        return True


def _tasks(text: str, run: int) -> int:
    """How many tasks wait and may run beside those that do: 1,3,5-9:2%4."""
    parts, limit = _parts(text), text.partition("%")[2]
    count = sum(map(_counted, parts)) if parts else 1
    return min(count, max(0, _integer(limit.strip("]")) - run)) if parts and limit else count


def _parts(text: str) -> list[str]:
    """Of an array of which tasks wait."""
    listed = text.partition("%")[0]
    alone = listed in _NONE or listed.isdecimal()
    return [] if alone else listed.strip("[]").split(",")


def _counted(part: str) -> int:
    match = _TASKS.fullmatch(part)
    assert match, "its shape was looked at"
    first, last, step = match.groups()
    tasks = range(_integer(first), _integer(last or first) + 1, max(1, _integer(step or "1")))
    return len(tasks)


# --- what it needs -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Size:
    """How many nodes, and cores on each; or so many tasks wherever there is room."""

    count: int
    cores: int
    spread: bool = True


def _chunks(row: Mapping[str, str], site: Site) -> tuple[Chunk, ...]:
    cpus, total = _number(row, "NumCPUs"), _trackable(row["tres-alloc"])
    least = max(1, int(total.get("node", 1)))
    memory = _mib(row["MinMemory"])
    by_core = _is_by_core(memory, cpus, least, total.get("mem", 0.0))
    size = _size(row, cpus, least, packs=by_core or not memory)
    whole = row["OverSubscribe"] == "NO" or (memory == 0 and site.shares_memory)
    each = memory * size.cores if by_core else memory
    return tuple(
        Chunk(
            one.count,
            size.cores,
            ceil(each),
            one.features,
            exclusive=whole,
            spread=size.spread,
            ways=one.ways,
            alike=one.alike,
        )
        for one in parse_featured(_wanted(row), size.count)
    )


def _size(row: Mapping[str, str], cpus: int, least: int, *, packs: bool) -> _Size:
    """`least` is the number of nodes that it was submitted with; Slurm's estimate counts cores.

    Tasks of a job that names no nodes `pack` as they will, unless each node costs memory too.
    """
    tasks, each = _number(row, "NumTasks"), max(1, _number(row, "cpus-per-task"))
    per_node, estimate = _number(row, "ntpernode"), max(1, _number(row, "NumNodes"))
    if per_node:
        return _Size(max(least, ceil(tasks / per_node)), per_node * each)
    if estimate == 1 or least > 1:
        return _Size(least, ceil(cpus / least))
    if packs and tasks > 1:
        return _Size(tasks, each, spread=False)
    return _Size(estimate, ceil(cpus / estimate)) if cpus >= estimate else _Size(1, cpus)


def _number(row: Mapping[str, str], field: str) -> int:
    """`N/A` is nothing that was asked for."""
    text = _first(row, field)
    return 0 if text in _NONE else _integer(text)


def _first(row: Mapping[str, str], field: str) -> str:
    """Ranges begin with what is needed."""
    return row[field].partition("-")[0]


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise UnreadableError(f"a number of {len(text)} digits")
    return int(text)


def _wanted(row: Mapping[str, str]) -> str:
    """The features."""
    asked = "" if row["Feature"] in _NONE else row["Feature"]
    if len(asked) > MOST_LONG or asked.count("(") + asked.count("[") > MOST_DEEP:
        raise UnreadableError(f"features in {len(asked)} characters")
    return asked


def _trackable(text: str) -> dict[str, float]:
    """cpu=4,mem=1400M,node=2,billing=4: of the whole job."""
    pairs = (part.partition("=") for part in text.split(","))
    return {key: _mib(value) for key, _, value in pairs if key in ("node", "mem")}


def _mib(text: str) -> float:
    match = _MEMORY.match(text)
    return float(match[1]) * _MIB[match[2]] if match else 0.0


def _is_by_core(memory: float, cpus: int, nodes: int, total: float) -> bool:
    """squeue prints --mem and --mem-per-cpu alike; the sum tells. In doubt it is the same."""
    return abs(memory * cpus - total) < abs(memory * nodes - total)
