"""All or nothing for jobs of several nodes: what is spare and of no use is given up at once.

`create instances` ends with it. Nodes that fall out later leave spares that are up already, or
nearly: those stay until they were idle for long enough.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from springtide import decide, spares
from springtide.model import STARTING, Kind, Node, NodeState
from springtide.nodeset import expand
from springtide.ports import Job, Unavailable
from springtide.steps.telling import tell
from springtide.steps.work import Fallen, Work


async def give_up_spares(work: Work, fallen: Fallen) -> Fallen:
    """Nodes of jobs that lack others and cannot start, if no job that waits could use them."""
    if not fallen or work.operation.kind is not Kind.RESUME:
        return {}
    try:
        return await _sort_out(work, fallen, await work.parts.batch.jobs())
    except Unavailable as error:
        await work.record.note(
            "spare nodes kept",
            operation=work.operation.id,
            detail=f"the batch system does not tell who could use them: {error}",
        )
        return {}


async def _sort_out(work: Work, fallen: Fallen, jobs: Sequence[Job]) -> Fallen:
    held = {job.id: decide.job_nodes(job) for job in jobs if job.nodes}
    wide = spares.starting(_told(work), jobs, held)
    lacking = spares.incomplete(wide, fallen)
    taken = (name for id, names in held.items() if id not in lacking for name in names)
    owners = spares.owned(wide, lacking, taken)
    found = [node for node in _there(work, owners) if node.name not in fallen]
    if not found:
        return {}
    stuck = {name for job in jobs if job.id in lacking and job.configuring for name in held[job.id]}
    waiting = spares.waiting(jobs, _got(work, wide, lacking), _places(work))
    decided = _decide(work, found, waiting, await _safe(work, found, stuck))
    why = {name: spares.explain(id, lacking[id], fallen) for name, id in owners.items()}
    await _tell_kept(work, decided.kept, why)
    if not decided.dropped:
        return {}
    await _tell_owners(work, jobs, fallen)
    return await _give_back(work, {name: why[name] for name in decided.dropped})


def _told(work: Work) -> spares.Wide:
    return {job: expand(text) for job, text in work.operation.options.get("wide", {}).items()}


def _there(work: Work, names: Iterable[str]) -> list[Node]:
    """Those that are up or on their way, also if that is another operation's doing."""
    return work.record.of(names, *STARTING, NodeState.READY)


def _got(work: Work, wide: spares.Wide, lacking: Iterable[str]) -> dict[str, spares.Groups]:
    """The groups of the nodes that these jobs were given."""
    groups = work.parts.spec.node_group
    return {job: frozenset(groups[n] for n in wide[job] if n in groups) for job in lacking}


def _places(work: Work) -> dict[str, spares.Groups]:
    """The groups of each partition; a job that names none may have any node."""
    spec = work.parts.spec
    found = {name: frozenset(partition.groups) for name, partition in spec.partitions.items()}
    return {"": frozenset(spec.groups)} | found


async def _safe(work: Work, found: Sequence[Node], stuck: Collection[str]) -> frozenset[str]:
    """Those that stay in any case: in service, always to be so, or up and free for other jobs.

    What a job that cannot start still holds is nobody else's, up or not.
    """
    ready = (node.name for node in found if node.state is NodeState.READY)
    free = [n.name for n in found if n.state in STARTING and n.name not in stuck]
    seen = await work.parts.batch.nodes(free) if free else {}
    up = frozenset(free).difference(decide.waited_for(free, seen))
    return up.union(ready, work.parts.kept_up())


def _decide(
    work: Work, found: Iterable[Node], jobs: Iterable[spares.Waiting], safe: Collection[str]
) -> spares.Spares:
    groups = work.parts.spec.groups
    whole = frozenset(name for name, group in groups.items() if group.start == "whole")
    return spares.decide_spares({node.name: node.group for node in found}, jobs, whole, safe)


async def _tell_kept(work: Work, kept: Iterable[str], why: Mapping[str, str]) -> None:
    starting = [node.name for node in work.record.of(kept) if node.state in STARTING]
    told = {name: f"{why[name]}; it starts for whoever needs it" for name in starting}
    if told:
        await work.record.note("spare node kept", nodes=told, operation=work.operation.id)


async def _tell_owners(work: Work, jobs: Sequence[Job], fallen: Fallen) -> None:
    """While the batch system still shows which nodes they wait for; a nicety, no condition."""
    with suppress(Unavailable):
        await tell(work, decide.news(jobs, fallen))


async def _give_back(work: Work, dropped: Mapping[str, str]) -> Fallen:
    """At once: as long as the job that lacks nodes holds these, they can be given to no other.

    Those of other operations fall out there, when the batch system is seen to power them down.
    """
    for names in decide.alike(dropped, dropped):
        await work.parts.batch.give_back(names, dropped[names[0]])
    await work.record.note("node given back", nodes=dropped, operation=work.operation.id)
    ours = frozenset(work.names)
    return {name: why for name, why in dropped.items() if name in ours}
