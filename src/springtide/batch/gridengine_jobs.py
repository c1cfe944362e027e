"""What Grid Engine's jobs ask for, in the words of `ports.queues`. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from springtide.batch.gridengine_match import matches
from springtide.batch.gridengine_text import (
    STATES,
    Host,
    Limits,
    Listed,
    split_tasks,
)
from springtide.batch.gridengine_where import CLOSING, Site, Where, open_queues, queues_of, where
from springtide.batch.names import named
from springtide.batch.unread import UnreadableError, told
from springtide.batch.wants import divided
from springtide.ports import Chunk, Health, JobState, QueueJob, QueueNode

ONE_NODE = "$pe_slots"
"""The allocation rule of parallel environments whose jobs stay on one host."""
EXCLUSIVE = "EXCL"
"""The relation of resources that have a host for one job alone."""
MEMORY = frozenset(
    ("h_vmem", "s_vmem", "h_rss", "s_rss", "mem_free", "mem_total", "virtual_free", "virtual_total")
)
"""Of what each slot needs, the largest counts."""
LIMITS = frozenset(("h_vmem", "s_vmem", "h_rss", "s_rss"))
"""What of it only limits a job, on whatever host, unless the site has it consumed."""
OTHER = frozenset(
    (
        *("h_rt", "s_rt", "h_cpu", "s_cpu", "h_core", "s_core"),
        *("h_data", "s_data", "h_stack", "s_stack", "h_fsize", "s_fsize"),
        *("arch", "hostname", "qname", "calendar", "cpu", "load_avg"),
        *(
            "load_short",
            "load_medium",
            "load_long",
            "min_cpu_interval",
            "np_load_avg",
            "np_load_short",
        ),
        *("np_load_medium", "np_load_long", "num_proc", "m_core", "m_socket", "m_thread"),
        *("m_topology", "m_topology_inuse", "mem_used", "rerun", "seq_no", "slots"),
        *("swap_free", "swap_rate", "swap_rsvd", "swap_total", "swap_used", "tmpdir"),
        *("virtual_used", "display_win_gui"),
    )
)
"""What every host has, or what only limits a job."""
TRUE, FALSE = frozenset(("1", "true")), frozenset(("0", "false"))
STARTED = "r"
"""The state of jobs that run."""
SHUT = frozenset("aACcdDEosS")
"""The states of a queue instance, each of which keeps new jobs out; whole queues are `closed`."""
_SIZE = re.compile(
    r"(0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([kKmMgGtT]?)", re.ASCII
)
MOST_LONG, MOST = 100, 2.0**63
"""Characters of an amount, and the amount itself: `1e999` is endless, which is none."""
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_BINARY = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_UNLIMITED = "infinity"
UNKNOWN: tuple[Chunk, ...] = (Chunk(),)
NOWHERE: tuple[str, ...] = ()
ANYWHERE: Where = (), frozenset()
"""In place of what cannot be read of a job."""
_TASK = re.compile(r"[0-9]{1,18}")


def node_of(host: Host, closed: Collection[str] = ()) -> QueueNode:
    return QueueNode(
        name=host.name,
        health=_health(host),
        words=frozenset(
            STATES.get(letter, letter) for one in host.queues.values() for letter in one
        ),
        drained=is_drained(host),
        jobs=host.jobs,
        cores_used=host.used,
        shut=_is_shut(host, closed),
    )


def _health(host: Host) -> Health:
    if host.heard:
        return Health.UP
    return Health.DOWN if host.known else Health.JOINING


def is_drained(host: Host) -> bool:
    return bool(host.queues) and all("d" in state for state in host.queues.values())


def _is_shut(host: Host, closed: Collection[str]) -> bool:
    """That it is drained, or its queue closed, is no fault of its own, nor does it hide one."""
    states = SHUT - {"d"} if is_drained(host) else SHUT
    found = {name: states.intersection(letters) for name, letters in host.queues.items()}
    return bool(found) and all(
        letters.difference(CLOSING if name in closed else "") for name, letters in found.items()
    )


def needs_limits(job: Listed) -> bool:
    """Whether there is more to know of it than qstat lists."""
    return bool(job.tasks) or (not job.running and job.idle_priority and "h" not in job.state)


def jobs_of(listed: Iterable[Listed], hosts: Iterable[Host], site: Site) -> list[QueueJob]:
    """All of them; those of an array that wait and are alike are one."""
    placed = _places(hosts)
    found = list(_caught_up(list(listed), placed))
    waiting: dict[str, int] = {}
    running: dict[str, int] = {}
    for job in found:
        tally = running if job.running else waiting
        tally[job.number] = tally.get(job.number, 0) + 1
    jobs = []
    for job in found:
        if job.running:
            jobs.append(_running(job, placed, site))
            continue
        taken, split = running.get(job.number, 0), waiting[job.number] > 1
        jobs.append(_pending(job, site, taken, split))
        if jobs[-1].state is JobState.WAITING:
            running[job.number] = taken + jobs[-1].tasks
    return jobs


def _places(hosts: Iterable[Host]) -> dict[str, tuple[str, ...]]:
    places: dict[str, tuple[str, ...]] = {}
    for host in hosts:
        for job in host.jobs:
            places[job] = (*places.get(job, ()), host.name)
    return places


def _caught_up(listed: Sequence[Listed], placed: Iterable[str]) -> Iterator[Listed]:
    """Hosts are asked after jobs: what one of them has runs, though qstat had it wait."""
    known = {_id(job) for job in listed if job.running}
    begun: dict[str, list[int]] = {}
    for id in placed:
        number, _, task = id.partition(".")
        if id not in known:
            begun.setdefault(number, []).append(int(task) if _TASK.fullmatch(task) else 0)
    for job in listed:
        if job.running or job.number not in begun:
            yield job
        elif job.tasks:
            yield from _split(job, begun[job.number])
        else:
            yield replace(job, running=True, state=STARTED)


def _split(job: Listed, begun: Iterable[int]) -> Iterator[Listed]:
    """Tasks of an array that run, and those that wait."""
    tasks, rest = split_tasks(job.tasks, begun)
    for task in tasks:
        yield replace(job, running=True, state=STARTED, tasks=str(task))
    if rest:
        yield replace(job, tasks=rest)


def _id(job: Listed) -> str:
    return f"{job.number}.{job.tasks}" if job.tasks else job.number


def _running(job: Listed, placed: Mapping[str, tuple[str, ...]], site: Site) -> QueueJob:
    """With all its nodes; qstat lists only the first. It has them, whatever it asked for."""
    id = _id(job)
    queue, _, host = job.instance.partition("@")
    return QueueJob(
        id=id,
        state=JobState.RUNNING,
        user=job.owner,
        queues=(queue,) if queue else told(lambda: queues_of(job, site), NOWHERE)[0],
        chunks=told(lambda: _chunks(job, site), UNKNOWN)[0],
        nodes=placed.get(id) or ((named([host], site.names)[host],) if host else ()),
        reason=job.state,
    )


def _pending(job: Listed, site: Site, running: int, split: bool) -> QueueJob:
    """So many tasks of its array run, or may run before it."""
    limits = site.limits.get(job.number, Limits())
    asked, unread = _asked(job, site)
    room = limits.at_once - running if limits.at_once else job.count
    state, reason = _state(job, limits, room, site.now)
    if unread or (asked.closed and state is JobState.WAITING):
        state, reason = JobState.HELD, unread or asked.closed
    return QueueJob(
        id=_id(job) if split and state is JobState.HELD else job.number,
        state=state,
        user=job.owner,
        queues=asked.queues,
        chunks=asked.chunks,
        tasks=min(job.count, room) if state is JobState.WAITING else job.count,
        names=asked.names,
        reason=reason,
        since=job.since,
        avoid=asked.avoid,
    )


def _state(job: Listed, limits: Limits, room: int, now: float) -> tuple[JobState, str]:
    """hqw is held by a person or for another job, Eqw was tried in vain."""
    if set("hEd") & set(job.state):
        return JobState.HELD, job.state
    if limits.not_before > now:
        return JobState.HELD, f"{job.state}: for later"
    if room <= 0:
        return JobState.HELD, f"{job.state}: {limits.at_once} tasks may run at once"
    return JobState.WAITING, job.state


# --- what it needs ----------------------------------------------------------------------------


class _Asked(NamedTuple):
    """What an owner wrote, read."""

    chunks: tuple[Chunk, ...]
    queues: tuple[str, ...]
    closed: str
    """Why none of its queues starts jobs."""
    names: tuple[str, ...]
    avoid: frozenset[str]


def _asked(job: Listed, site: Site) -> tuple[_Asked, str]:
    """And why some of it cannot be known, if so."""
    chunks, unknown = told(lambda: _chunks(job, site), UNKNOWN)
    (queues, closed), unplaced = told(lambda: open_queues(job, site), (NOWHERE, ""))
    (names, avoid), unnamed = told(lambda: where(job, site, queues), ANYWHERE)
    return _Asked(chunks, queues, closed, names, avoid), unknown or unplaced or unnamed


def _chunks(job: Listed, site: Site) -> tuple[Chunk, ...]:
    """What is consumed is for each slot; other memory must be there, for all slots together."""
    asked = {name: _mebibytes(job.resources[name]) for name in MEMORY & job.resources.keys()}
    sizes = {n: size for n, size in asked.items() if n not in LIMITS or _is_consumed(n, site)}
    each = max((size for name, size in sizes.items() if _is_consumed(name, site)), default=0)
    whole = max(sizes.values(), default=0)
    chunk = Chunk(memory=whole, exclusive=_is_exclusive(job, site))
    if job.environment:
        chunk = _spread(chunk, each, job.slots, _rule(job.environment, site.rules))
    special = {name: value for name, value in job.resources.items() if _is_special(name, site)}
    wanted = (_wanted(name, value, chunk.cores, site) for name, value in special.items())
    features, ways = divided(one for one in wanted if one)
    return (replace(chunk, features=features, ways=ways),)


def _spread(slot: Chunk, memory: int, slots: int, rule: str) -> Chunk:
    """`memory` is what each slot takes of a node, if it takes any."""
    if rule == ONE_NODE:
        return replace(slot, cores=slots, memory=max(slot.memory, memory * slots))
    if rule.isdigit() and int(rule):
        each, count = int(rule), max(1, slots // int(rule))
        return replace(slot, count=count, cores=each, memory=max(slot.memory, memory * each))
    return replace(slot, count=max(1, slots), spread=False)


def _rule(environment: str, rules: Mapping[str, str]) -> str:
    """Of a pattern, that of the first parallel environment that it means."""
    return next((rule for name, rule in rules.items() if matches(name, environment)), "")


def _is_consumed(name: str, site: Site) -> bool:
    return name in site.complexes and site.complexes[name].consumed


def _is_special(name: str, site: Site) -> bool:
    """Whether hosts have it or not; licences and such belong to the cell or to a queue."""
    relation = site.complexes[name].relation if name in site.complexes else ""
    general = name in MEMORY or name in OTHER or name in site.shared
    return not general and relation != EXCLUSIVE


def _is_exclusive(job: Listed, site: Site) -> bool:
    return any(
        value.lower() in TRUE
        and name in site.complexes
        and site.complexes[name].relation == EXCLUSIVE
        for name, value in job.resources.items()
    )


def _wanted(name: str, value: str, slots: int, site: Site) -> frozenset[str]:
    """The features any of which will do, with so many slots on a node; empty if none is needed.

    `big=true` is for nodes with the feature `big`, and `disk=ssd` for those with just that. Of an
    amount, as in `gpu=2`, nodes with as much or more will do, and those with `gpu` itself. That
    several jobs may use up what a node has of it is not counted.
    """
    amount = None if _is_exact(name, site) else _amount(value)
    if value.lower() in FALSE or amount == 0:
        return frozenset()
    if amount is None:
        is_true = value.lower() in TRUE and (value != "1" or _is_boolean(name, site))
        return frozenset({name if is_true else f"{name}={value}"})
    needed = amount * slots if _is_consumed(name, site) else amount
    enough = {one for one in site.features if one == name or _has(one, name, needed)}
    told = value if needed == amount else f"{needed:g}"
    return frozenset(enough or {f"{name}={told}"})


def _is_boolean(name: str, site: Site) -> bool:
    return name in site.complexes and site.complexes[name].type == "BOOL"


def _is_exact(name: str, site: Site) -> bool:
    """Whether a host must have the very value."""
    return name in site.complexes and site.complexes[name].relation not in ("<=", "<")


def _has(feature: str, name: str, needed: float) -> bool:
    key, _, value = feature.partition("=")
    return key == name and (_amount(value) or 0.0) >= needed


def _amount(text: str) -> float | None:
    found = _SIZE.fullmatch(text) if len(text) <= MOST_LONG else None
    if not found:
        return None
    number, unit = found.groups()
    size = _number(number) * (_BINARY[unit] if unit in _BINARY else _UNITS[unit])
    return size if size <= MOST else None


def _mebibytes(text: str) -> int:
    """Rounded up. Small letters are decimal."""
    if text.lower() == _UNLIMITED:
        return 0
    size = _amount(text)
    if size is None:
        raise UnreadableError(f"{text[:80]!r} is no size of memory")
    return -int(-size // 1024**2)


def _number(text: str) -> float:
    """As C reads it: 0x10 is hexadecimal, and 010 octal."""
    if text[:2].lower() == "0x":
        return int(text, 16)
    octal = len(text) > 1 and text[0] == "0" and text.isdigit() and not set(text) & set("89")
    return int(text, 8) if octal else float(text)
