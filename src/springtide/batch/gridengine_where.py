"""Where jobs of Grid Engine may run: in which queues, and on which hosts. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf

from springtide.batch.gridengine_conf import ClusterQueue, Complex, parse_duration
from springtide.batch.gridengine_match import hosts_of, matches, matches_host
from springtide.batch.gridengine_text import STATES, Host, Limits, Listed


@dataclass(frozen=True, slots=True)
class Site:
    """What jobs must be read with."""

    queues: Mapping[str, ClusterQueue]
    complexes: Mapping[str, Complex]
    rules: Mapping[str, str] = field(default_factory=dict)
    """The allocation rules of parallel environments."""
    names: frozenset[str] = frozenset()
    """Our nodes."""
    ours: tuple[str, ...] = ()
    """Our queues."""
    others: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of queues, the hosts that are not ours."""
    features: frozenset[str] = frozenset()
    """Those of our groups."""
    shared: frozenset[str] = frozenset()
    """Resources of the whole cell, or of queues, and not of hosts."""
    limits: Mapping[str, Limits] = field(default_factory=dict)
    """Of arrays, and of jobs that the scheduler does not look at."""
    closed: Mapping[str, str] = field(default_factory=dict)
    """Queues in which nothing starts on any host, and why in words."""
    now: float = 0.0


CLOSING = "CDs"
"""States that keep new jobs out, and that a calendar or a person gives to whole queues."""


def closed_queues(placeholder: Mapping[str, str]) -> dict[str, str]:
    """By the states that a host has which never serves: nobody closes a queue for it alone."""
    found = {name: set(CLOSING) & set(state) for name, state in placeholder.items()}
    return {
        name: " and ".join(STATES[letter] for letter in sorted(letters))
        for name, letters in found.items()
        if letters
    }


def queues_of(job: Listed, site: Site) -> tuple[str, ...]:
    """All cluster queues that it may run in.

    Who asks for none may run in any; but as long as hosts of others could take such a job, it
    waits for those: nobody has asked for ours.
    """
    found = [
        queue.name
        for queue in site.queues.values()
        if not job.queues or any(_asks(pattern, queue) for pattern in job.queues)
        if matches(queue.name, job.resources.get("qname", "*"))
        if _serves(queue, job)
    ]
    if not job.queues and "qname" not in job.resources:
        return tuple(name for name in found if _is_elsewhere(name, job, site)) or tuple(found)
    patterns = [_split(pattern)[0] for pattern in job.queues]
    return tuple(sorted(found, key=lambda name: _place(name, patterns)))


def open_queues(job: Listed, site: Site) -> tuple[tuple[str, ...], str]:
    """Those of its queues that start jobs; if none does, all of them, and why.

    No other node would start it then: what joins a closed queue is closed.
    """
    queues = queues_of(job, site)
    found = tuple(name for name in queues if name not in site.closed)
    if found or not queues:
        return found, ""
    return queues, f"queue {queues[0]} is {site.closed[queues[0]]}"


def hosts_of_others(hosts: Iterable[Host], ours: Collection[str]) -> dict[str, frozenset[str]]:
    """Of each queue, those hosts that are not ours."""
    found: dict[str, frozenset[str]] = {}
    for host in hosts:
        if host.name not in ours:
            found |= {name: found.get(name, frozenset()) | {host.name} for name in host.queues}
    return found


def _is_elsewhere(name: str, job: Listed, site: Site) -> bool:
    """Whether it is a queue of others, with a host that the job may have."""
    wanted = job.resources.get("hostname", "*")
    hosts = site.others.get(name, ())
    return name not in site.ours and any(matches_host(host, wanted) for host in hosts)


def _asks(pattern: str, queue: ClusterQueue) -> bool:
    """`*@@cloud` means only queues whose list of hosts has that hostgroup."""
    name, host = _split(pattern)
    over = not host.startswith("@") or host in queue.hosts or name == queue.name
    return over and matches(queue.name, name)


def _split(pattern: str) -> tuple[str, str]:
    """The queue, and the host or hostgroup."""
    name, _, host = pattern.partition("@")
    return name or "*", host


def _serves(queue: ClusterQueue, job: Listed) -> bool:
    wanted = job.resources.get("h_rt", "")
    if wanted and queue.longest_s < parse_duration(wanted) < inf:
        return False
    if job.environment:
        return any(matches(name, job.environment) for name in queue.environments)
    return "BATCH" in queue.kinds or "INTERACTIVE" in queue.kinds


def _place(name: str, patterns: list[str]) -> int:
    """In the order in which it asks for them."""
    found = [at for at, pattern in enumerate(patterns) if matches(name, pattern)]
    return found[0] if found else len(patterns)


Where = tuple[tuple[str, ...], frozenset[str]]
"""Hosts that a job insists on, and hosts of ours that it may not use."""


def where(job: Listed, site: Site, queues: Iterable[str]) -> Where:
    """By the hosts or patterns of hosts that it asks for, in these queues."""
    hosts = [one.partition("@")[2] for one in job.queues]
    patterns = [] if "" in hosts else [one for one in hosts if not one.startswith("@")]
    if len(patterns) < len(hosts):
        patterns = []
    if wanted := job.resources.get("hostname"):
        patterns = [wanted]
    if not patterns:
        return (), frozenset()
    found = _where(tuple(patterns), site.names, bool(job.environment))
    if found[0] == (patterns[0],) and _leaves_none(patterns, site, queues):
        return (), site.names
    return found


def _leaves_none(patterns: Iterable[str], site: Site, queues: Iterable[str]) -> bool:
    """Whether it excludes hosts, and with them all that there are in these queues."""
    hosts = site.names.union(*(site.others.get(name, ()) for name in queues))
    return all("!" in one and not hosts_of(one, hosts) for one in patterns)


@lru_cache(maxsize=512)
def _where(patterns: Sequence[str], ours: frozenset[str], parallel: bool) -> Where:
    """One answer for all jobs that ask alike. A host that is named would be one of several for a
    parallel job, which is to have no other."""
    fitting = frozenset[str]().union(*(hosts_of(one, ours) for one in patterns))
    if not fitting:
        return (patterns[0],), frozenset()
    if len(fitting) == 1 and not parallel:
        return tuple(fitting), frozenset()
    return (), ours - fitting
