"""What Torque and OpenPBS have in common: both descend from PBS."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from springtide.ports import JobState, QueueJob, QueueNode, Reading
from springtide.spec import Cluster, Containers

NO_NODE = "it asks for no node"
"""Of jobs of `nodes=0` or `select=0:...`, which nothing can be started or kept for."""

_TASK = re.compile(r"\[\d+\]")


def renamed(job: QueueJob, called: Mapping[str, str]) -> QueueJob:
    """With the names that we give to nodes."""
    nodes = tuple(called.get(name, name) for name in job.nodes)
    names = tuple(called.get(name, name) for name in job.names)
    return replace(job, nodes=nodes, names=names)


# What a pbs_mom is told


def host_of(server: str) -> str:
    """A server's name may have its port behind it."""
    return server.partition(":")[0]


def shared_of(spec: Cluster) -> tuple[Path, ...]:
    """What all nodes have where everybody has it."""
    provider = spec.provider
    own = provider.mounts if isinstance(provider, Containers) and not spec.remote else ()
    return (*own, *(one.path for one in spec.shared))


def copied(shared: Iterable[Path]) -> tuple[str, ...]:
    """Output of jobs that goes there is copied with cp: scp to the server would need keys."""
    return tuple(f"$usecp *:{path} {path}" for path in shared)


# Two commands, one moment


def merged(nodes: Mapping[str, QueueNode], jobs: Iterable[QueueJob]) -> Reading:
    """One reading of two commands, between which jobs start: whatever either of them has seen
    running runs, and is no demand."""
    on: dict[str, list[str]] = {}
    for node in nodes.values():
        for id in node.jobs:
            on.setdefault(id, []).append(node.name)
    listed = list(jobs)
    known = {job.id for job in listed}
    begun = [id for id in on if id not in known and _TASK.search(id)]
    tasks = Counter(_TASK.sub("[]", id, count=1) for id in begun)
    first = {job.id: job for job in reversed(listed)}
    found: list[QueueJob] = []
    for job in listed:
        if job.state is not JobState.RUNNING and job.id in on:
            found.append(replace(job, state=JobState.RUNNING, nodes=tuple(on[job.id])))
            continue
        fewer = min(tasks[job.id], job.tasks) if job.state is JobState.WAITING else 0
        tasks[job.id] -= fewer
        if fewer < job.tasks:
            found.append(replace(job, tasks=job.tasks - fewer))
    for id in begun:
        if array := first.get(_TASK.sub("[]", id, count=1)):
            runs = replace(array, id=id, state=JobState.RUNNING, tasks=1, nodes=tuple(on[id]))
            found.append(replace(runs, reason=""))
    return Reading(_with_jobs(nodes, found), found)


def _with_jobs(nodes: Mapping[str, QueueNode], jobs: Iterable[QueueJob]) -> dict[str, QueueNode]:
    seen = {name: dict.fromkeys(node.jobs) for name, node in nodes.items()}
    for job in jobs:
        for name in job.nodes:
            seen.get(name, {}).setdefault(job.id)
    return {name: replace(node, jobs=tuple(seen[name])) for name, node in nodes.items()}
