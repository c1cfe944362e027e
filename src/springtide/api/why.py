"""The route that tells why a node or a job is as it is: gathers what is known, `story` tells it.

Everybody may ask. Who does not answer in time is named, and the rest is told all the same.
"""

import asyncio
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from springtide import boots, decide, maintenance, repairs, story, triage
from springtide.api import shapes
from springtide.api.asked import daemon_of
from springtide.daemon import Daemon
from springtide.holds import held_groups
from springtide.model import Event, Kind, Node, Operation
from springtide.ports import BatchNode, CloudError, Instance, Job, Unavailable
from springtide.story import Due, Held, JobCase, NodeCase, Story
from springtide.story.telling import clock
from springtide.triage import Owner, Repair

T = TypeVar("T")

PATIENCE_S = 5.0
"""Slurm's commands wait longer for a slurmctld that is away."""
MOST_EVENTS = 5000
"""That are read of a node or of an operation."""
RECENT = 200
"""Operations among which those for a job are looked for."""
LAST = 5
"""Operations of a job whose events are told."""

_JOB = re.compile(r"[0-9]{1,18}(?:_[0-9]{1,18})?")


async def tell_why(request: Request) -> Response:
    daemon, what = daemon_of(request), request.path_params["what"]
    most = None if request.query_params.get("all") == "1" else story.MOST_TOLD
    asked = Asked(daemon)
    if _JOB.fullmatch(what):
        told = await _job(asked, what, most)
    else:
        told = await _node(asked, what, most)
    return JSONResponse(shapes.story(told, asked.problems))


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, and who did not answer it."""

    daemon: Daemon
    problems: list[str] = field(default_factory=list)

    @property
    def closed(self) -> str:
        """Why nothing is started at all."""
        if self.daemon.parts.site is None:
            return "the cluster is not deployed yet; run `tide deploy`"
        return "the cluster is stopped; run `tide start`" if self.daemon.parts.stopped else ""

    async def of(self, question: Awaitable[T], nothing: T) -> T:
        """An answer, or `nothing` and a problem; a command that hangs is left to its end."""
        asking = asyncio.ensure_future(question)
        await asyncio.wait([asking], timeout=PATIENCE_S)
        if not asking.done():
            asking.cancel()
            self.problems.append(f"no answer within {PATIENCE_S:g} s; see `tide check`")
            return nothing
        try:
            return asking.result()
        except (Unavailable, CloudError) as error:
            self.problems.append(str(error))
            return nothing

    async def nodes(self, *names: str) -> Mapping[str, BatchNode]:
        if self.closed:
            return {}
        return await self.of(self.daemon.parts.batch.nodes(names), {})

    async def jobs(self) -> Sequence[Job]:
        if self.closed:
            return ()
        return await self.of(self.daemon.parts.batch.jobs(), ())

    async def instances(self, name: str, group: str) -> list[Instance]:
        """From a list that all who ask within a moment share: clouds throttle who asks often."""
        provider = self.daemon.parts.providers.get(group, self.daemon.parts.home)
        listed = await self.of(self.daemon.parts.census.instances(provider), ())
        return [one for one in listed if one.node == name]

    async def usual_s(self, groups: Iterable[str]) -> float | None:
        """How long nodes of these groups took to start of late, of the slowest group."""
        times = await self.daemon.parts.record.store.boot_times(boots.LOOKED_AT)
        wanted = frozenset(groups)
        known = [one.median_s for one in boots.summarize(times) if one.group in wanted]
        return max(known, default=None)

    async def held(self) -> dict[str, Held]:
        """Groups of which no node is launched."""
        record = self.daemon.parts.record
        found = held_groups(self.daemon.spec, await record.store.holds(), record.now())
        return {group: Held(why, until) for group, (why, until) in found.items()}


# --- a node ------------------------------------------------------------------------------------


async def _node(asked: Asked, name: str, most: int | None) -> Story:
    daemon = asked.daemon
    if name not in daemon.spec.node_group:
        daemon.spec.require([name])
    case = await _node_case(asked, name, MOST_EVENTS if most is None else 20 * most)
    if case.node is not None:
        case = replace(case, rests=await _rests(daemon, name), due=_due(asked, case, case.node))
    return story.node_story(daemon.parts.record.now(), case, most)


async def _node_case(asked: Asked, name: str, most_events: int) -> NodeCase:
    """The world first: what the record says meanwhile may have followed it."""
    daemon, group = asked.daemon, asked.daemon.spec.node_group[name]
    record, store = daemon.parts.record, daemon.parts.record.store
    seen = (await asked.nodes(name)).get(name)
    silent = "; ".join(asked.problems)
    jobs = () if silent else await asked.jobs()
    instances = await asked.instances(name, group) if name in record.nodes else ()
    events = await store.events(node=name, limit=most_events)
    unfinished = await store.operations(unfinished=True)
    node = record.nodes.get(name)
    return NodeCase(
        name,
        node,
        events=events,
        operations=await _named(daemon, events),
        operation=story.holder(unfinished, node) if node else None,
        seen=seen,
        silent=silent,
        jobs=[job for job in jobs if name in decide.job_nodes(job)],
        instances=instances,
        held=(await asked.held()).get(group),
        closed=asked.closed,
        always_up=name in daemon.parts.wanted.always_up,
        usual_s=await asked.usual_s([group]),
        timing=daemon.spec.timing,
    )


def _due(asked: Asked, case: NodeCase, node: Node) -> Due | None:
    """What the reconciler will do, as it would decide now; of what it cannot see, nothing.

    What is the batch system's turn is left to it, and a node of a held group to the hold.
    """
    if case.closed or case.operation or asked.problems:
        return None
    daemon, view = asked.daemon, triage.view(node, case.seen, case.instances)
    known, now = daemon.reconciler.findings, daemon.parts.record.now()
    found = repairs.findings({node.name: view}, known, daemon.spec.timing, now).get(node.name)
    if found is None or found.rule.owner is Owner.BATCH:
        return None
    if case.held and found.rule.repair in (Repair.UNDRAIN, Repair.RELEASE):
        return None
    return Due(found.rule.why, found.rule.repair.value, found.due_at)


async def _named(daemon: Daemon, events: Iterable[Event]) -> dict[int, Operation]:
    """The operations that events name."""
    ids = dict.fromkeys(event.operation for event in events if event.operation is not None)
    found = [await daemon.parts.record.store.operation(id) for id in ids]
    return {one.id: one for one in found if one is not None}


async def _rests(daemon: Daemon, name: str) -> str:
    """Why the reconciler does nothing for a node, though it might."""
    record = daemon.parts.record
    if found := await maintenance.read(record.store):
        since = clock(found.since, record.now())
        return f"maintenance since {since} by {found.by} ({found.reason})"
    return "as it gives up only few nodes at once" if name in daemon.reconciler.braked else ""


# --- a job ---------------------------------------------------------------------------------------


async def _job(asked: Asked, id: str, most: int | None) -> Story:
    daemon = asked.daemon
    record, now = daemon.parts.record, daemon.parts.record.now()
    job = next((job for job in await asked.jobs() if job.id == id), None)
    operations = await _operations(daemon, job, id)
    names, shared = _nodes(job, operations, id)
    groups = _groups(daemon, job, names)
    case = JobCase(
        id,
        job,
        nodes=record.of(names),
        shared=shared,
        operations=operations,
        events=await _events(daemon, operations, id, names),
        held=await asked.held(),
        groups=groups,
        silent="; ".join(asked.problems),
        closed=asked.closed,
        usual_s=await asked.usual_s(groups),
        start_s=daemon.spec.timing.start,
    )
    return story.job_story(now, case, most)


async def _operations(daemon: Daemon, job: Job | None, id: str) -> list[Operation]:
    """The last that were for it, and those at its nodes since then; oldest first."""
    record = daemon.parts.record
    unfinished = await record.store.operations(unfinished=True)
    nodes = record.of(decide.job_nodes(job)) if job else []
    holders = [one for node in nodes if (one := story.holder(unfinished, node))]
    recent = await record.store.operations(limit=RECENT)
    starts = [one for one in recent if story.is_for(one, id)][:LAST]
    known = {one.id: one for one in (*starts, *_repairs(recent, starts, id), *holders)}
    return [known[key] for key in sorted(known)]


def _repairs(recent: Iterable[Operation], starts: Sequence[Operation], id: str) -> list[Operation]:
    """Those of nodes that were started for it last."""
    if not starts:
        return []
    names = frozenset(story.nodes_asked(starts[0], id)[0])
    later = [one for one in recent if one.kind is Kind.REPAIR and one.id > starts[0].id]
    return [one for one in later if not names.isdisjoint(one.nodes)]


def _nodes(job: Job | None, operations: Sequence[Operation], id: str) -> tuple[Sequence[str], bool]:
    """Those that it has, or that were asked for last; and whether some may be other jobs'."""
    if job and (names := decide.job_nodes(job)):
        return names, False
    starts = [one for one in operations if story.is_for(one, id)]
    return story.nodes_asked(starts[-1], id) if starts else ((), False)


def _groups(daemon: Daemon, job: Job | None, names: Iterable[str]) -> list[str]:
    """Where it may run: the groups of its partitions, or else of its nodes."""
    partitions = job.partition.split(",") if job else []
    known = [daemon.spec.partitions[key] for key in partitions if key in daemon.spec.partitions]
    groups = [group for partition in known for group in partition.groups]
    nodes = daemon.parts.record.of(names)
    return list(dict.fromkeys(groups or [node.group for node in nodes]))


async def _events(
    daemon: Daemon, operations: Sequence[Operation], id: str, has: Sequence[str]
) -> list[Event]:
    """Of the operations for it, what happened to its nodes."""
    found = []
    for one in operations:
        names = frozenset(story.nodes_asked(one, id)[0] if story.is_for(one, id) else has)
        events = await daemon.parts.record.store.events(operation=one.id, limit=MOST_EVENTS)
        found += [event for event in events if event.node is None or event.node in names]
    return found
