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

CONFIGURES = frozenset(k for k, plan in PLANS.items() if Step.CONFIGURE_SOFTWARE in plan)


class JobFate(StrEnum):
    """What an operation means for a job."""

    AWAITED = "waited for"
    REQUEUED = "put back into the queue"
    LOST = "lost"
    KEPT = "kept in the queue"


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
        tuple(_touched(kind, names, spec, jobs, now)),
        spec.price(names),
        _price_change(kind, names, spec, nodes),
        (*notes, *_software(kind, names, spec)),
    )


def _software(kind: Kind, names: Sequence[str], spec: Cluster) -> Iterable[str]:
    """What Ansible would do to them."""
    if spec.ansible is None or kind not in CONFIGURES or not names:
        return
    wanted = spec.ansible
    playbooks = [path.name for path in (*wanted.before, *wanted.after)]
    parts = [f"roles {', '.join(wanted.roles)}"] if wanted.roles else []
    parts += [f"playbooks {', '.join(playbooks)}"] if playbooks else []
    if parts:
        yield f"Ansible configures nodes that run: {'; '.join(parts)}"


def _touched(
    kind: Kind, names: Iterable[str], spec: Cluster, jobs: Iterable[Job], now: bool
) -> Iterable[tuple[Job, JobFate]]:
    """Jobs on the nodes; of what ends the whole cluster, those that wait for it as well."""
    ours = frozenset(names)
    for job in jobs:
        if ours.intersection(decide.job_nodes(job)):
            fate = _fate(kind, spec, now)
            over = fate is JobFate.REQUEUED and job.state == "COMPLETING"
            if fate is not None and not over:
                yield job, fate
        elif kind in (Kind.DESTROY, Kind.STOP) and _is_for(spec, job):
            lost = kind is Kind.DESTROY and not spec.polled
            yield job, JobFate.LOST if lost else JobFate.KEPT


def _is_for(spec: Cluster, job: Job) -> bool:
    """Whether a job that is on none of our nodes ends with the cluster: of a batch system that is
    there without us, those that wait in our partitions."""
    if not (spec.polled or spec.attached):
        return True
    return not job.nodes and not spec.partitions.keys().isdisjoint(job.partition.split(","))


def _fate(kind: Kind, spec: Cluster, now: bool) -> JobFate | None:
    if kind in STARTS_NODES:
        return None
    if kind is Kind.DESTROY:
        return JobFate.REQUEUED if spec.polled else JobFate.LOST
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
