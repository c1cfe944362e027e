"""What an operation would do, before it is asked for: nodes, steps, jobs, price. Changes nothing.

The daemon makes a Plan for the API; the part that decides is pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from springtide import decide
from springtide.model import PLANS, STARTS_NODES, Kind, Node, NodeState, Step
from springtide.ports import Job
from springtide.spec import Cluster


class JobFate(StrEnum):
    """What an operation means for a job."""

    AWAITED = "waited for"
    REQUEUED = "put back into the queue"
    LOST = "lost"
    KEPT = "stays in the queue"


@dataclass(frozen=True, slots=True)
class Plan:
    """One operation that has not begun."""

    kind: Kind
    names: tuple[str, ...]
    states: Mapping[str, tuple[str, ...]]
    """The nodes by what the record says of them now."""
    jobs: tuple[tuple[Job, JobFate], ...] = ()
    price: float | None = None
    """What the nodes cost an hour, if all prices are known."""
    price_change: float | None = None
    """By how much an hour of the cluster costs more afterwards, or less."""
    notes: tuple[str, ...] = ()

    @property
    def steps(self) -> Sequence[Step]:
        return PLANS[self.kind]


def make_plan(
    kind: Kind,
    names: Sequence[str],
    spec: Cluster,
    nodes: Mapping[str, Node],
    jobs: Iterable[Job],
    *,
    now: bool = False,
    notes: Iterable[str] = (),
) -> Plan:
    """The plan for these nodes; `now` is for operations that do not wait for jobs."""
    states: dict[str, list[str]] = {}
    for name in names:
        states.setdefault(nodes[name].state.value, []).append(name)
    return Plan(
        kind,
        tuple(names),
        {state: tuple(members) for state, members in states.items()},
        tuple(_touched(kind, names, jobs, now)),
        spec.price(names),
        _price_change(kind, names, spec, nodes),
        tuple(notes),
    )


def _touched(
    kind: Kind, names: Iterable[str], jobs: Iterable[Job], now: bool
) -> Iterable[tuple[Job, JobFate]]:
    """Jobs on the nodes; of what ends the whole cluster, those that wait as well."""
    ours = frozenset(names)
    for job in jobs:
        if ours.intersection(decide.job_nodes(job)):
            if (fate := _fate(kind, now)) is not None:
                yield job, fate
        elif kind is Kind.DESTROY:
            yield job, JobFate.LOST
        elif kind is Kind.STOP:
            yield job, JobFate.KEPT


def _fate(kind: Kind, now: bool) -> JobFate | None:
    if kind in STARTS_NODES:
        return None
    if kind is Kind.DESTROY:
        return JobFate.LOST
    return JobFate.REQUEUED if now else JobFate.AWAITED


def _price_change(
    kind: Kind, names: Iterable[str], spec: Cluster, nodes: Mapping[str, Node]
) -> float | None:
    if kind in (Kind.REBUILD, Kind.UPDATE):
        now, then = _running_price(names, spec, nodes), spec.price(names)
        return None if now is None or then is None else round(then - now, 4)
    starts = kind in STARTS_NODES
    changed = [n for n in names if (nodes[n].state is NodeState.OFF) == starts]
    price = spec.price(changed) if starts else _running_price(changed, spec, nodes)
    return None if price is None else price if starts else 0.0 - price


def _running_price(names: Iterable[str], spec: Cluster, nodes: Mapping[str, Node]) -> float | None:
    """What nodes cost an hour with the flavor that they have; None if one is not known."""
    prices = []
    for name in names:
        flavor = nodes[name].flavor or spec.groups[spec.node_group[name]].flavors[0]
        prices.append(spec.flavors[flavor].price if flavor in spec.flavors else None)
    known = [price for price in prices if price is not None]
    return round(sum(known), 4) if len(known) == len(prices) else None
