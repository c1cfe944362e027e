"""Which repairs one look at the world calls for, and which of them the brakes allow. Pure.

The reconciler reads the world once, asks here, and acts. What is wrong with a single node is
said by `triage`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain

from springtide import decide, triage
from springtide.model import Move, Node, NodeState
from springtide.nodeset import fold
from springtide.ports import HELD, BatchNode, Instance, InstanceState, Job, Provider
from springtide.spec import Cluster, Timing
from springtide.spec.values import share_of
from springtide.triage import After, Batch, Cloud, Repair, Rule, View

FEW = 3
SHARE = "20%"
"""No more running nodes than the larger of these are given up in one pass."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 5, 600

_PARTING = frozenset({Repair.REPAIR, Repair.SUSPEND})
_RUNNING = frozenset({Cloud.RUNNING, Cloud.PENDING, Cloud.TWINS, Cloud.STRANGE})
_HEARD = frozenset({Batch.SERVING, Batch.BUSY})


@dataclass(frozen=True, slots=True)
class World:
    """What batch system and providers said, of nodes that no operation is at."""

    nodes: Mapping[str, Node]
    """By the record; only those of which everything is known."""
    seen: Mapping[str, BatchNode] = field(default_factory=dict)
    instances: Mapping[str, Sequence[Instance]] = field(default_factory=dict)
    strangers: tuple[Instance, ...] = ()
    """Instances with our tag and the name of no node of ours."""
    homes: Mapping[str, Provider] = field(default_factory=dict)
    """The provider that has listed an instance, by its id."""

    def views(self) -> dict[str, View]:
        seen = triage.heard(self.seen, chain.from_iterable(self.instances.values()))
        return {
            name: triage.view(node, seen.get(name), self.instances.get(name, ()))
            for name, node in self.nodes.items()
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be with a node (or a strange instance)."""

    node: str
    view: View
    rule: Rule
    since: float
    due_at: float | None
    """When it is repaired; None is never, by us."""
    looks: int = 1
    """How often in a row it was seen: a clock may jump."""


def findings(
    views: Mapping[str, View], before: Mapping[str, Finding], timing: Timing, now: float
) -> dict[str, Finding]:
    """What is wrong with each node, and since when; one that changes its trouble begins anew."""
    found = {}
    for name, view in views.items():
        rule = triage.rule_of(view)
        if rule.repair is Repair.REST and rule.owner is triage.Owner.NOBODY:
            continue
        known = before.get(name)
        same = known if known and known.rule is rule else None
        since, looks = (min(same.since, now), same.looks + 1) if same else (now, 1)
        limit_s = triage.limit_s(rule.after, timing)
        due_at = None if limit_s is None else since + limit_s
        found[name] = Finding(name, view, rule, since, due_at, looks)
    return found


def lasting(found: Mapping[str, Finding], world: World) -> dict[str, Finding]:
    """Without those of nodes whose record has changed since: they are not the same any more."""
    return {
        name: one
        for name, one in found.items()
        if name in world.nodes and world.nodes[name].changed_at <= one.since
    }


def due(found: Iterable[Finding], now: float) -> dict[Repair, list[Finding]]:
    """What is to be done now, those together that are done alike; nothing at first sight but
    what is due at once."""
    groups: dict[Repair, list[Finding]] = defaultdict(list)
    for one in found:
        looked = one.looks > 1 or one.rule.after is After.AT_ONCE
        if looked and one.due_at is not None and one.due_at <= now:
            groups[one.rule.repair].append(one)
    return groups


# --- brakes --------------------------------------------------------------------------------


def allowance(running: int) -> int:
    """How many that run may be given up in one pass."""
    return max(FEW, share_of(SHARE, running))


class Spent:
    """What was given up of the allowance of a time."""

    def __init__(self) -> None:
        self._spent: list[tuple[float, int]] = []

    def left(self, most: int, now: float, span_s: float) -> int:
        self._spent = [(at, n) for at, n in self._spent if now - span_s < at <= now]
        return max(0, most - sum(n for _, n in self._spent))

    def add(self, now: float, count: int) -> None:
        if count:
            self._spent.append((now, count))


@dataclass(frozen=True, slots=True)
class Braked:
    """What may be given up now, and what a brake keeps."""

    allowed: tuple[Finding, ...]
    kept: tuple[Finding, ...]


def brake(doomed: Iterable[Finding], most: int) -> Braked:
    """Give up few of the nodes that run, idle ones first; as many as one likes of the dead.

    If many nodes seem dead that the batch system still hears from, the list is not believed.
    """
    dead, alive, doubtful = _sorted_out(doomed)
    believed = doubtful if len(doubtful) <= most else []
    left = most - len(believed)
    idle_first = sorted(alive, key=lambda one: one.view[1] is Batch.BUSY)
    allowed = (*dead, *believed, *idle_first[:left])
    kept = [*idle_first[left:], *(doubtful if not believed else ())]
    return Braked(allowed, tuple(kept))


def _sorted_out(
    doomed: Iterable[Finding],
) -> tuple[list[Finding], list[Finding], list[Finding]]:
    """Those that nobody has any more, those that run, and those on which views differ."""
    dead, alive, doubtful = [], [], []
    for one in doomed:
        _, batch, _, cloud = one.view
        if cloud in _RUNNING:
            alive.append(one)
        elif batch in _HEARD:
            doubtful.append(one)
        else:
            dead.append(one)
    return dead, alive, doubtful


def gives_up(repair: Repair) -> bool:
    return repair in _PARTING


def pause_s(tries: int) -> float:
    """How long to wait after so many tries in vain."""
    return float(min(FIRST_PAUSE_S * 2 ** (tries - 1), LONGEST_PAUSE_S))


# --- what single repairs mean ----------------------------------------------------------------


def extras(node: Node, seen: BatchNode | None, instances: Sequence[Instance]) -> list[Instance]:
    """What a node has besides the instance that serves; nothing if it is not clear which does."""
    staying = [one for one in instances if one.state is not InstanceState.DELETING]
    right = [one for one in staying if one.generation == node.generation]
    kept = next((one for one in right if seen and one.address == seen.address), None)
    kept = kept or next((one for one in right if one.id == node.instance), None)
    return [one for one in staying if one.id != kept.id] if kept else []


def learnt(world: World) -> list[Move]:
    """What the record does not know of the instances of nodes that serve: which, and where."""
    moves = []
    for name, node in world.nodes.items():
        seen, found = world.seen.get(name), world.instances.get(name, ())
        if node.state is not NodeState.READY or not seen or not seen.registered or len(found) != 1:
            continue
        (one,) = found
        if (one.id, one.address) == (node.instance, node.address) or not one.address:
            continue
        mine = one.id == node.instance or one.address == seen.address
        if mine and one.generation == node.generation:
            known = replace(node, instance=one.id, address=one.address, flavor=one.flavor)
            moves.append(Move(node, known))
    return moves


def astray(world: World) -> dict[str, str]:
    """Nodes in service that the batch system looks for elsewhere: where they are."""
    heard = [name for name, seen in world.seen.items() if seen.registered and name in world.nodes]
    ready = [world.nodes[name] for name in heard if world.nodes[name].state is NodeState.READY]
    return decide.astray(ready, world.seen)


def lost_drains(world: World, spec: Cluster) -> dict[tuple[str, str], list[str]]:
    """Nodes whose drain went when we let them power down, by its reason and owner.

    Also those that an operation is at: it may take long, and then a job might get the node.
    """
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in spec.managed:
        node = world.seen.get(name)
        if node is not None and triage.has_lost_drain(node):
            found[node.reason, str(node.owner)].append(name)
    return found


def forgotten_drains(world: World) -> list[str]:
    """Nodes that are off, and drained by nobody knows whom: it may have been an operation."""
    off = (name for name, node in world.nodes.items() if node.state is NodeState.OFF)
    seen = (world.seen[name] for name in off if name in world.seen)
    return [node.name for node in seen if triage.has_forgotten_drain(node)]


def because(found: Iterable[Finding]) -> dict[str, list[str]]:
    """The nodes of each trouble."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for one in found:
        reasons[one.rule.why].append(one.node)
    return reasons


def in_words(found: Iterable[Finding]) -> str:
    return "; ".join(f"{fold(names)}: {why}" for why, names in because(found).items())


def braked_words(braked: Braked) -> str:
    """What a brake keeps, and whether that passes by itself."""
    doubtful = {one.node for one in _sorted_out(braked.kept)[2]}
    others = [one.node for one in braked.kept if one.node not in doubtful]
    words = [f"{fold(others)}: too many at once, the next passes go on"] if others else []
    if doubtful:
        words.append(
            f"{fold(doubtful)}: gone by the provider's list, but the batch system hears from them, "
            "so that list is not believed; look at the provider"
        )
    return "; ".join(words)


def wanted_groups(jobs: Iterable[Job], spec: Cluster) -> frozenset[str]:
    """The groups that waiting jobs could use; a job that names no partition of ours, all."""
    waiting = (j for j in jobs if j.state == "PENDING" and not j.reason.startswith(HELD))
    named = {name for job in waiting for name in job.partition.split(",")}
    groups = {name: partition.groups for name, partition in spec.partitions.items()}
    found = (groups.get(name, tuple(spec.groups)) for name in named)
    return frozenset(group for some in found for group in some)


# --- drift ---------------------------------------------------------------------------------


def within(hours: Collection[str], clock: datetime) -> bool:
    """Whether it is one of these times of the day; always, if none is named."""
    now = f"{clock:%H:%M}"
    return not hours or any(_is_within(span, now) for span in hours)


def _is_within(span: str, now: str) -> bool:
    begin, end = span.split("-")
    return begin <= now < end if begin < end else now >= begin or now < end


def replaceable(
    drifted: Iterable[str], busy: Collection[str], share: str, up: int, under_way: int
) -> list[str]:
    """Which drifted nodes may be replaced now: those without jobs first, within the budget."""
    budget = share_of(share, up) - under_way
    idle_first = sorted(drifted, key=lambda name: name in busy)
    return idle_first[: max(0, budget)]


def at_risk(found: Iterable[Finding]) -> int:
    """How many of these run, or may."""
    _, alive, doubtful = _sorted_out(found)
    return len(alive) + len(doubtful)
