"""The JSON that leaves the daemon: its shape is a promise, kept by tests and by docs/api.md."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from springtide import __version__, service
from springtide.boots import advise, summarize
from springtide.calendar import limits
from springtide.daemon import Daemon
from springtide.holds import describe
from springtide.maintenance import Maintenance
from springtide.model import PLANS, Event, Node, NodeState, Operation, Step
from springtide.nodeset import fold
from springtide.people import Answer
from springtide.plans import Plan
from springtide.ports import BatchNode, Instance
from springtide.spec.fingerprint import fingerprint
from springtide.spec.leaving import Changes
from springtide.story import Story, Voice, in_short, voice_of

Json = dict[str, Any]

WRITTEN = Voice()
"""Speaks as things are written."""


def status(daemon: Daemon, operations: Sequence[Operation], batch: Json) -> Json:
    nodes, voice = daemon.parts.record.nodes, voice_of(daemon.spec)
    counts = Counter(node.state for name, node in nodes.items() if name in daemon.spec.node_group)
    return {
        "cluster": daemon.spec.cluster,
        "version": __version__,
        "spec": fingerprint(daemon.parts.wanted),
        "applied": daemon.parts.applied.spec == fingerprint(daemon.parts.wanted),
        "stopped": daemon.parts.stopped,
        "attached": daemon.spec.attached,
        "protected": daemon.spec.protected,
        "file": daemon.parts.file or None,
        "state_directory": str(daemon.layout.state),
        "control": daemon.spec.control,
        "control_address": daemon.parts.site.control_address if daemon.parts.site else None,
        "batch": batch,
        "record": {"problem": daemon.parts.record.store.problem or None},
        "nodes": {state.value: counts[state] for state in NodeState},
        "operations": [
            operation_(one, voice, daemon.engine.waits_for(one.id)) for one in operations
        ],
    }


def maintaining(found: Maintenance | None) -> Json:
    about = found and {"by": found.by, "reason": found.reason, "since_at": found.since}
    return {"maintenance": about}


def holds(daemon: Daemon) -> list[Json]:
    """What stops launches, and in which words to say it."""
    now = daemon.parts.record.now()
    return [
        {
            "key": hold.key,
            "cause": hold.cause.value,
            "reason": hold.reason,
            "count": hold.count,
            "since_at": hold.since,
            "until_at": hold.until,
            "text": describe(hold, now),
        }
        for hold in daemon.parts.holding.current
    ]


def held(daemon: Daemon) -> Json:
    """The groups in which nothing is launched, and how many holds there are in all."""
    holding = daemon.parts.holding
    return {"held": dict(holding.held_groups(daemon.spec)), "holds": len(holding.current)}


def calendar(daemon: Daemon) -> list[Json]:
    """The groups for which an entry of the calendar holds now."""
    now = daemon.parts.clock
    return [
        {
            "group": key,
            "min": held.min,
            "max": held.max,
            "entry": held.label,
            "until_at": held.until.timestamp() if held.until else None,
            "text": held.words(now),
        }
        for key, held in limits(daemon.parts.wanted, now).items()
        if held.entry is not None
    ]


def boots(daemon: Daemon, times: Iterable[tuple[str, float]]) -> list[Json]:
    """How long nodes took to start, and what to set if the limit leaves them no room."""
    limit_s = daemon.spec.timing.start
    return [{**asdict(one), "advice": advise(one, limit_s) or None} for one in summarize(times)]


def node(
    daemon: Daemon,
    name: str,
    batch: BatchNode | None,
    instances: Iterable[Instance],
    configs: Mapping[str, str],
) -> Json:
    """A node on premises has no record, so its state is null.

    `configs` are the fingerprints of what nodes of each group would start with now.
    """
    record = daemon.parts.record.nodes.get(name)
    group, found = daemon.spec.node_group[name], list(instances)
    said = {} if record is None else {"reason": voice_of(daemon.spec).say(record.reason)}
    return {
        **(asdict(Node(name, group)) | {"state": None} if record is None else asdict(record)),
        **said,
        "partitions": [
            key for key, partition in daemon.spec.partitions.items() if group in partition.groups
        ],
        "wanted_image": None if record is None else daemon.parts.wanted_image(group),
        "outdated": None if record is None else _outdated(daemon, record, found),
        "unconfigured": None if record is None else _unconfigured(record, configs),
        "batch": None
        if batch is None
        else {
            "state": batch.state,
            "flags": sorted(batch.flags),
            "power": batch.power.value,
            "registered": batch.registered,
            "address": batch.address,
            "reason": batch.reason,
            "busy": batch.busy,
            "drained": batch.drained,
            "owner": batch.owner,
            "boot_at": batch.boot_at,
        },
        "instances": [
            {
                "id": one.id,
                "state": one.state.value,
                "generation": one.generation,
                "image": one.image,
                "flavor": one.flavor,
            }
            for one in found
        ],
    }


def _outdated(daemon: Daemon, record: Node, instances: Sequence[Instance]) -> str | None:
    """In what its instance differs from the file; null if it has none, or is as it should be."""
    if record.state is NodeState.OFF:
        return None
    images = {record.group: daemon.parts.wanted_image(record.group)}
    return service.outdated(daemon.spec, [record], instances, images).get(record.name)


def _unconfigured(record: Node, configs: Mapping[str, str]) -> str | None:
    """That it started with another configuration than the file's of now; null if it did not."""
    if record.state is NodeState.OFF:
        return None
    return service.unconfigured([record], configs).get(record.name)


def operation_(one: Operation, voice: Voice = WRITTEN, waits_for: str = "") -> Json:
    return {
        "id": one.id,
        "kind": one.kind.value,
        "nodes": fold(one.nodes),
        "state": one.state.value,
        "step": one.step.value if one.step and not one.state.finished else None,
        "steps": [step.value for step in PLANS[one.kind]],
        "steps_done": one.next_step,
        "fallen": {name: voice.say(why) for name, why in one.fallen.items()},
        "done": fold(name for name in one.done if name not in one.fallen),
        "later": fold(one.later),
        "waits_for": waits_for,
        "options": dict(one.options),
        "asked_by": one.asked_by,
        "reason": voice.say(one.reason),
        "created_at": one.created_at,
        "started_at": one.started_at,
        "ended_at": one.ended_at,
    }


def answer(one: Answer) -> Json:
    return {
        "operations": [operation_(each) for each in one.operations],
        "asked": fold(one.asked),
        "settled": fold(one.settled),
    }


def event(one: Event, voice: Voice = WRITTEN) -> Json:
    return asdict(one) | {"what": voice.say(one.what), "detail": voice.say(one.detail)}


def story(one: Story, problems: Sequence[str]) -> Json:
    return {
        "about": one.about,
        "now": one.now,
        "past": [{"at": at, "text": text} for at, text in one.past],
        "next": one.next,
        "do": one.do,
        "short": in_short(one),
        "problems": list(problems),
    }


def table() -> Json:
    """The operations × steps table."""
    return {
        "steps": [step.value for step in Step],
        "operations": {kind.value: [step.value for step in plan] for kind, plan in PLANS.items()},
    }


def plan(one: Plan) -> Json:
    return {
        "operation": one.kind.value,
        "nodes": fold(one.names),
        "count": len(one.names),
        "steps": [step.value for step in one.steps],
        "states": {state: fold(names) for state, names in one.states.items()},
        "jobs": [
            {
                "id": job.id,
                "user": job.user,
                "state": job.state,
                "nodes": job.nodes,
                "fate": fate.value,
            }
            for job, fate in one.jobs
        ],
        "price_per_hour": one.price,
        "price_change_per_hour": one.price_change,
        "notes": list(one.notes),
    }


def applying(changes: Changes, plans: Iterable[Plan], warnings: Sequence[str]) -> Json:
    """What another cluster file changes, and the operations that follow."""
    return {
        "changes": list(changes.lines),
        "refusals": list(changes.refusals),
        "plans": [plan(one) for one in plans],
        "warnings": list(warnings),
    }
