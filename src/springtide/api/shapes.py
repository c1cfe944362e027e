"""The JSON that leaves the daemon: its shape is a promise, kept by tests and by docs/api.md."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from springtide import __version__
from springtide.api.fingerprint import fingerprint
from springtide.daemon import Answer, Daemon
from springtide.model import PLANS, Event, Node, NodeState, Operation, Step
from springtide.nodeset import fold
from springtide.ports import BatchNode, Instance

Json = dict[str, Any]


def status(daemon: Daemon, operations: Sequence[Operation], batch: Json) -> Json:
    nodes = daemon.parts.record.nodes
    counts = Counter(node.state for name, node in nodes.items() if name in daemon.spec.node_group)
    return {
        "cluster": daemon.spec.cluster,
        "version": __version__,
        "spec": fingerprint(daemon.spec),
        "protected": daemon.spec.protected,
        "state_directory": str(daemon.layout.state),
        "control_address": daemon.parts.site.control_address if daemon.parts.site else None,
        "batch": batch,
        "nodes": {state.value: counts[state] for state in NodeState},
        "operations": [operation_(one) for one in operations],
    }


def node(daemon: Daemon, name: str, batch: BatchNode | None, instances: Iterable[Instance]) -> Json:
    """A node on premises has no record, so its state is null."""
    record = daemon.parts.record.nodes.get(name)
    group = daemon.spec.node_group[name]
    return {
        **(asdict(Node(name, group)) | {"state": None} if record is None else asdict(record)),
        "batch": None
        if batch is None
        else {
            "state": batch.state,
            "flags": sorted(batch.flags),
            "power": batch.power.value,
            "registered": batch.registered,
            "address": batch.address,
            "reason": batch.reason,
        },
        "instances": [
            {"id": one.id, "state": one.state.value, "generation": one.generation}
            for one in instances
        ],
    }


def operation_(one: Operation) -> Json:
    return {
        "id": one.id,
        "kind": one.kind.value,
        "nodes": fold(one.nodes),
        "state": one.state.value,
        "step": one.step.value if one.step and not one.state.finished else None,
        "steps": [step.value for step in PLANS[one.kind]],
        "steps_done": one.next_step,
        "fallen": dict(one.fallen),
        "asked_by": one.asked_by,
        "reason": one.reason,
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


def event(one: Event) -> Json:
    return asdict(one)


def table() -> Json:
    """The operations × steps table."""
    return {
        "steps": [step.value for step in Step],
        "operations": {kind.value: [step.value for step in plan] for kind, plan in PLANS.items()},
    }


def plan(daemon: Daemon, kind: str, steps: Sequence[Step], names: Sequence[str]) -> Json:
    return {
        "operation": kind,
        "nodes": fold(names),
        "count": len(names),
        "steps": [step.value for step in steps],
        "states": _by_state(daemon.parts.record.nodes, names),
        "price_per_hour": _price(daemon, names),
    }


def _by_state(nodes: Mapping[str, Node], names: Iterable[str]) -> dict[str, str]:
    """What the record says of the nodes now, as host lists."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(nodes[name].state.value, []).append(name)
    return {state: fold(members) for state, members in found.items()}


def _price(daemon: Daemon, names: Iterable[str]) -> float | None:
    """What the nodes cost an hour with their first flavor; None if a price is unknown."""
    spec = daemon.spec
    total = 0.0
    for name in names:
        price = spec.flavor(spec.groups[spec.node_group[name]].flavors[0]).price
        if price is None:
            return None
        total += price
    return round(total, 4)
