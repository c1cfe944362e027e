"""The route that tells why a node or a job is as it is: gathers what is known, `story` tells it.

Everybody may ask. Who does not answer in time is named, and the rest is told all the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from springtide import decide, repairs, story, triage
from springtide.api import shapes, starting, troubles, waiting
from springtide.api.asked import daemon_of
from springtide.api.question import Asked
from springtide.daemon import Daemon
from springtide.model import Event, Kind, Node, NodeState, Operation
from springtide.ports import BatchNode, Instance, Job
from springtide.story import Due, Held, JobCase, NodeCase, Rest, Story
from springtide.story.telling import Told
from springtide.triage import Owner, Repair

MOST_EVENTS = 5000
"""That are read of a node or of an operation."""
RECENT = 200
"""Operations among which those for a job are looked for."""
LAST = 5
"""Operations of a job whose events are told."""


async def tell_why(request: Request) -> Response:
    daemon, what = daemon_of(request), request.path_params["what"]
    most = None if request.query_params.get("all") == "1" else story.MOST_TOLD
    asked, voice = Asked(daemon), story.voice_of(daemon.spec)
    if _is_job(daemon, what):
        told = await _job(asked, what, most)
    else:
        told = await _node(asked, what, most)
    return JSONResponse(shapes.story(voice.tell(told), voice.say_all(asked.problems)))


def _is_job(daemon: Daemon, what: str) -> bool:
    """Nodes may be called as jobs of polled batch systems are: 17.server."""
    if not waiting.is_polled(daemon.spec):
        return story.JOB.fullmatch(what) is not None
    return what not in daemon.spec.node_group and story.POLLED_JOB.fullmatch(what) is not None


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
    operation = story.holder(unfinished, node) if node else None
    return NodeCase(
        name,
        node,
        events=events,
        operations=await _named(daemon, events),
        operation=operation,
        seen=seen,
        silent=silent,
        jobs=[job for job in jobs if name in decide.job_nodes(job)],
        instances=[] if is_news else instances,
        unlisted=is_news or len(asked.problems) > before,
        held=asked.held().get(group) or asked.held_alone().get(name),
        outage=outage,
        hindrance=await starting.hindered(daemon, node, events, operation),
        unbuilt=starting.unbuilt(daemon, [group]),
        drift=await _drift(daemon, node, instances),
        closed=asked.closed,
        always_up=name in daemon.parts.kept_up(),
        calendar=asked.calendar().get(group, ""),
        full=node is not None and node.state is NodeState.OFF and asked.is_full(group),
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
    if due and (case.held or case.too_many) and due.rule.repair in (Repair.UNDRAIN, Repair.RELEASE):
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
    jobs = await asked.jobs()
    id = await waiting.known_as(daemon, id, jobs, RECENT)
    job = next((job for job in jobs if job.id == id), None)
    over = None if job else await asked.past_job(id)
    wait = waiting.wait_of(daemon, job, _groups(daemon, job, ()))
    coming = tuple(wait.starting) if wait else ()
    operations = await _operations(daemon, job, id, coming)
    names, shared = _nodes(job, operations, id)
    if coming and not names:
        names, shared = coming, True
    groups = _groups(daemon, job, names)
    silent = "; ".join(asked.problems)
    nodes = record.of(names)
    dues = await _dues(asked, nodes) if job and job.state in _ON_NODES else {}
    case = JobCase(
        id,
        job,
        over=over,
        nodes=nodes,
        shared=shared,
        operations=operations,
        events=await _events(daemon, operations, id, names),
        held=asked.held(),
        held_nodes=_held_nodes(asked, groups, names),
        calendar=asked.calendar(short=True),
        groups=groups,
        pools=_pools(daemon, groups),
        dues=dues,
        rests={name: rest for name in dues if (rest := await _rest(daemon, name))},
        silent=silent,
        outage=await troubles.outage(daemon) if silent else None,
        closed=asked.closed,
        unbuilt=starting.unbuilt(daemon, groups),
        wait=wait,
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


async def _operations(
    daemon: Daemon, job: Job | None, id: str, coming: Iterable[str]
) -> list[Operation]:
    """The last that were for it, and those at its nodes since then; oldest first."""
    record = daemon.parts.record
    unfinished = await record.store.operations(unfinished=True)
    nodes = record.of((*decide.job_nodes(job), *coming)) if job else []
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


def _held_nodes(asked: Asked, groups: Iterable[str], names: Iterable[str]) -> dict[str, Held]:
    """Of the nodes that were asked for; of all that are off, if no other is left to start."""
    held = {n: hold for n, hold in asked.held_alone().items() if _is_off(asked.daemon, n)}
    ours = [name for name in names if name in held]
    known, wanted = asked.daemon.parts.record.nodes.values(), frozenset(groups)
    off = [n.name for n in known if n.group in wanted and n.state is NodeState.OFF]
    if not ours and all(name in held for name in off):
        ours = off
    return {name: held[name] for name in ours}


def _is_off(daemon: Daemon, name: str) -> bool:
    return any(node.state is NodeState.OFF for node in daemon.parts.record.of([name]))


def _pools(daemon: Daemon, groups: Iterable[str]) -> dict[str, int]:
    """The groups of which every node is up, and how many these are."""
    known = daemon.parts.record.nodes
    off = {node.group for node in known.values() if node.state is NodeState.OFF}
    sizes = {group: len(daemon.spec.names(group)) for group in groups if group not in off}
    return {group: size for group, size in sizes.items() if size}


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
