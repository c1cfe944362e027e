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

from springtide import boots, decide, holds, repairs, story, triage
from springtide.api import shapes, troubles
from springtide.api.asked import daemon_of
from springtide.daemon import Daemon
from springtide.holds import Stage
from springtide.model import Event, Kind, Node, NodeState, Operation
from springtide.ports import BatchNode, CloudError, Instance, Job, Unavailable
from springtide.steps.census import FRESH_S
from springtide.story import Due, Held, JobCase, NodeCase, Rest, Story
from springtide.story.telling import Told
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

    async def instances(self, nodes: Iterable[Node]) -> dict[str, list[Instance]]:
        """From a list that all who ask within a moment share: clouds throttle who asks often."""
        parts, names = self.daemon.parts, [node.name for node in nodes]
        found = [parts.providers.get(node.group, parts.home) for node in nodes]
        providers = {id(provider): provider for provider in found}.values()
        lists = [await self.of(parts.census.instances(one), ()) for one in providers]
        return decide.instances_of([one for some in lists for one in some], names)

    def is_news(self, node: Node) -> bool:
        """Whether its record may be younger than the list of its provider, which says nothing."""
        return self.daemon.parts.record.now() - node.changed_at <= FRESH_S

    async def usual_s(self, groups: Iterable[str]) -> float | None:
        """How long nodes of these groups took to start of late, of the slowest group."""
        times = await self.daemon.parts.record.store.boot_times(boots.LOOKED_AT)
        wanted = frozenset(groups)
        known = [one.median_s for one in boots.summarize(times) if one.group in wanted]
        return max(known, default=None)

    def held(self) -> dict[str, Held]:
        """Groups of which no node is launched, or only one to try."""
        found = {
            group: self._hold(group)
            for group in self.daemon.parts.holding.held_groups(self.daemon.spec)
        }
        return {group: hold for group, hold in found.items() if hold}

    def _hold(self, group: str) -> Held | None:
        parts, now = self.daemon.parts, self.daemon.parts.record.now()
        found = holds.of_group(self.daemon.spec, group, parts.holding.known, now)
        shut = [hold for hold in found if holds.stage(hold, now) is not Stage.OPEN]
        last = max(shut, key=lambda hold: hold.until, default=None)
        if last is None:
            return None
        return Held(holds.summary(last), last.until, last.key.removeprefix("group:"))


# --- a node ------------------------------------------------------------------------------------


async def _node(asked: Asked, name: str, most: int | None) -> Story:
    daemon = asked.daemon
    if name not in daemon.spec.node_group:
        daemon.spec.require([name])
    case = await _node_case(asked, name, MOST_EVENTS if most is None else 20 * most)
    if case.node is not None:
        case = replace(case, rest=await _rest(daemon, name), due=_due(asked, case, case.node))
    return story.node_story(daemon.parts.record.now(), case, most)


async def _node_case(asked: Asked, name: str, most_events: int) -> NodeCase:
    """The world first: what the record says meanwhile may have followed it."""
    daemon, group = asked.daemon, asked.daemon.spec.node_group[name]
    record, store = daemon.parts.record, daemon.parts.record.store
    seen = (await asked.nodes(name)).get(name)
    silent = "; ".join(asked.problems)
    jobs = () if silent else await asked.jobs()
    outage = await troubles.outage(daemon) if silent else None
    known, before = record.of([name]), len(asked.problems)
    instances = (await asked.instances(known))[name] if known else []
    events = await store.events(node=name, limit=most_events)
    unfinished = await store.operations(unfinished=True)
    node = record.nodes.get(name)
    is_news = node is not None and asked.is_news(node)
    return NodeCase(
        name,
        node,
        events=events,
        operations=await _named(daemon, events),
        operation=story.holder(unfinished, node) if node else None,
        seen=seen,
        silent=silent,
        jobs=[job for job in jobs if name in decide.job_nodes(job)],
        instances=[] if is_news else instances,
        unlisted=is_news or len(asked.problems) > before,
        held=asked.held().get(group),
        outage=outage,
        drift=await _drift(daemon, node, instances),
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
    due = None if asked.is_news(node) else _finding(asked.daemon, node, case.seen, case.instances)
    if due and case.held and due.rule.repair in (Repair.UNDRAIN, Repair.RELEASE):
        return None
    return due


def _finding(
    daemon: Daemon, node: Node, seen: BatchNode | None, instances: Iterable[Instance]
) -> Due | None:
    """What is wrong with a node, unless it is for the batch system to act, and not to be told."""
    view, timing = triage.view(node, seen, instances), daemon.spec.timing
    known, now = daemon.reconciler.findings, daemon.parts.record.now()
    found = repairs.findings({node.name: view}, known, timing, now).get(node.name)
    if found is None:
        return None
    waits = found.rule.owner is Owner.BATCH and found.rule.repair is not Repair.REPORT
    return None if waits else Due(found.rule, found.due_at)


async def _named(daemon: Daemon, events: Iterable[Event]) -> dict[int, Operation]:
    """The operations that events name."""
    ids = dict.fromkeys(event.operation for event in events if event.operation is not None)
    found = [await daemon.parts.record.store.operation(id) for id in ids]
    return {one.id: one for one in found if one is not None}


async def _rest(daemon: Daemon, name: str) -> Rest | None:
    """Why the reconciler does nothing for a node, though it might."""
    return await troubles.resting(daemon) or troubles.brakes(daemon).get(name)


async def _drift(daemon: Daemon, node: Node | None, instances: Sequence[Instance]) -> Told | None:
    if node is None or node.state is not NodeState.READY:
        return None
    return (await troubles.drifted(daemon, [node], instances)).get(node.name)


# --- a job ---------------------------------------------------------------------------------------


async def _job(asked: Asked, id: str, most: int | None) -> Story:
    daemon = asked.daemon
    record, now = daemon.parts.record, daemon.parts.record.now()
    job = next((job for job in await asked.jobs() if job.id == id), None)
    operations = await _operations(daemon, job, id)
    names, shared = _nodes(job, operations, id)
    groups = _groups(daemon, job, names)
    silent = "; ".join(asked.problems)
    nodes = record.of(names)
    dues = await _dues(asked, nodes) if job and job.state in _ON_NODES else {}
    case = JobCase(
        id,
        job,
        nodes=nodes,
        shared=shared,
        operations=operations,
        events=await _events(daemon, operations, id, names),
        held=asked.held(),
        groups=groups,
        dues=dues,
        rests={name: rest for name in dues if (rest := await _rest(daemon, name))},
        silent=silent,
        outage=await troubles.outage(daemon) if silent else None,
        closed=asked.closed,
        usual_s=await asked.usual_s(groups),
        start_s=daemon.spec.timing.start,
    )
    return story.job_story(now, case, most)


_ON_NODES = ("RUNNING", "CONFIGURING")


async def _dues(asked: Asked, nodes: Sequence[Node]) -> dict[str, Due]:
    """What is wrong with the nodes of a job, if all answer; not those that an operation has."""
    claimed = asked.daemon.engine.claimed()
    old = [n for n in nodes if n.name not in claimed and not asked.is_news(n)]
    ready = [n for n in old if n.state is NodeState.READY]
    instances = await asked.instances(ready)
    seen = await asked.nodes(*instances)
    if asked.problems or not instances:
        return {}
    found = {n.name: _finding(asked.daemon, n, seen.get(n.name), instances[n.name]) for n in ready}
    return {name: due for name, due in found.items() if due}


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
    """Those of nodes that had been started for it before."""
    asked = [(start.id, frozenset(story.nodes_asked(start, id)[0])) for start in starts]
    return [
        one
        for one in recent
        if one.kind is Kind.REPAIR
        and any(one.id > start and not names.isdisjoint(one.nodes) for start, names in asked)
    ]


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
    """Of the operations for it, what happened to its nodes; of others, to those that it had."""
    found = []
    had = set(has)
    for one in operations:
        asked = story.nodes_asked(one, id)[0] if story.is_for(one, id) else had
        names = frozenset(asked)
        had |= names
        events = await daemon.parts.record.store.events(operation=one.id, limit=MOST_EVENTS)
        found += [event for event in events if event.node is None or event.node in names]
    return found
