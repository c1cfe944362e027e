"""What is to be done with the nodes of a polled batch system: one decision for one look. Pure.

`polling` looks, asks here, and acts. A node leaves in steps, with a look between them: idle for
long enough, it is retired; without a job at the next look, it departs; gone from the batch system
at the one after that, its instance is deleted. Time counts only as far as somebody looked.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from springtide import stuck, vain
from springtide.batch.polled import RESTART_S
from springtide.demand import Demand, demand
from springtide.model import NodeState
from springtide.nodeset import fold
from springtide.ports import OURS, Health, JobState, QueueJob
from springtide.scene import Group, Scene, names_of
from springtide.spec import Cluster, NoProvider
from springtide.spec.queues import Polling
from springtide.standing import Standing, Way, usage
from springtide.stuck import Doubts, Idle
from springtide.vain import Vain

LOOKS = 2
"""A time without a look counts as no more than so many of the usual ones."""
SHUT_S = 60.0
"""A node that takes no jobs by itself for so long is no room for any: most alarms pass."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What was seen at former looks: for how long, in seconds."""

    at: float = -inf
    idle: Mapping[str, float] = field(default_factory=dict)
    """Nodes without jobs."""
    silent: Mapping[str, float] = field(default_factory=dict)
    """Nodes that the batch system hears nothing from."""
    shut: Mapping[str, float] = field(default_factory=dict)
    """Nodes that take no new jobs for something of their own."""
    well: Mapping[str, float] = field(default_factory=dict)
    """Nodes that take jobs, or have some."""
    vain: Mapping[str, Vain] = field(default_factory=dict)
    """Groups whose nodes come up and take no jobs."""
    waiting: Mapping[str, float] = field(default_factory=dict)
    """Jobs."""
    doubts: Doubts = field(default_factory=Doubts)
    """Whether more nodes would help those."""

    @property
    def useless(self) -> frozenset[str]:
        """Nodes that are there, and of which no job can be believed to get anything."""
        silent = (name for name, s in self.silent.items() if s >= RESTART_S)
        return frozenset((*silent, *(name for name, s in self.shut.items() if s >= SHUT_S)))

    @property
    def resting(self) -> frozenset[str]:
        """Groups of which no node starts for now: others did, and took no jobs."""
        return frozenset(key for key, known in self.vain.items() if known.rest_s)


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done, by node, and what is to be said."""

    start: tuple[str, ...] = ()
    """Off, and needed."""
    recall: tuple[str, ...] = ()
    """Leaving, and needed."""
    resume: tuple[str, ...] = ()
    """Marked to start, but no operation is at that."""
    retire: tuple[str, ...] = ()
    """Idle for long enough, or too many."""
    depart: tuple[str, ...] = ()
    """Leaving, and without a job since."""
    suspend: tuple[str, ...] = ()
    """Gone from the batch system, but not from the record."""
    release: tuple[str, ...] = ()
    """Leaving, and off already."""
    exhausted: Mapping[str, str] = field(default_factory=dict)
    """Groups that have no node left for jobs that wait, in words."""
    vain: Mapping[str, str] = field(default_factory=dict)
    """Groups whose nodes take no jobs, so that no more start, in words."""
    demand: Demand = field(default_factory=Demand)
    memory: Memory = field(default_factory=Memory)


def polling_of(spec: Cluster) -> Polling:
    """How the batch system is watched."""
    found = getattr(spec.batch, "polling", None)
    return found if isinstance(found, Polling) else Polling()


def preferred(spec: Cluster) -> list[str]:
    """The groups that we manage, those first that are started first.

    By weight, as Slurm does; among those that choose by price the cheapest; then as in the file.
    """
    ours = [key for key in spec.groups if not isinstance(spec.provider_of(key), NoProvider)]
    return sorted(ours, key=lambda key: (spec.groups[key].weight or 1, _price(spec, key)))


def _price(spec: Cluster, key: str) -> float:
    group = spec.groups[key]
    if group.choose != "price":
        return 0.0
    prices = (spec.flavors[flavor].price for flavor in group.flavors)
    return min((inf if price is None else price for price in prices), default=inf)


def decide(scene: Scene, before: Memory) -> Decision:
    """What follows from one look."""
    groups = [Group.of(scene, key) for key in preferred(scene.spec)]
    groups = [group for group in groups if group.nodes]
    memory = _remember(scene, groups, before)
    groups = [group.shut_off if group.key in memory.resting else group for group in groups]
    jobs = memory.doubts.counted(scene.look.reading.jobs)
    early = [job for job, waited_s in memory.waiting.items() if waited_s < scene.polling.patience]
    taken, useless = usage(jobs), memory.useless
    rooms = [room for group in groups for room in group.rooms(taken, useless)]
    pools = [group.pool for group in groups]
    needs = demand(jobs, rooms, pools, frozenset(early), _mixed(scene.spec))
    leaving = [n for group in groups for n in group.at(Way.LEAVING) if not n.claimed]
    going = [n for n in leaving if n.name not in needs.used and not n.jobs]
    on_record = [n for n in going if n.record is not NodeState.OFF]
    return Decision(
        start=_probed(groups, memory, (*needs.start, *_lacking(groups, scene, needs))),
        recall=names_of(n for n in leaving if n.name in needs.used),
        resume=names_of(n for group in groups for n in group.nodes if n.is_forgotten),
        retire=_retired(groups, scene, memory, needs),
        depart=names_of(n for n in on_record if _may_depart(n, memory.silent)),
        suspend=names_of(n for n in on_record if n.health is Health.ABSENT),
        release=names_of(n for n in going if n.record is NodeState.OFF),
        exhausted=_exhausted(groups, needs, scene, memory.resting),
        vain={key: _VAIN.format(key) for key in sorted(memory.resting)},
        demand=needs,
        memory=memory,
    )


def _mixed(spec: Cluster) -> frozenset[str]:
    """Queues that have machines which exist without us."""
    return frozenset(
        key
        for key, partition in spec.partitions.items()
        if any(isinstance(spec.provider_of(group), NoProvider) for group in partition.groups)
    )


# --- memory --------------------------------------------------------------------------------------


def _remember(scene: Scene, groups: Sequence[Group], before: Memory) -> Memory:
    """A clock that jumps, or a batch system that was away, makes nobody idle for longer."""
    step_s = max(0.0, min(scene.now - before.at, LOOKS * scene.polling.every))
    nodes = [node for group in groups for node in group.nodes]
    shut = _grown(before.shut, (n.name for n in nodes if n.is_shut), step_s)
    well = _grown(before.well, (n.name for n in nodes if n.is_well), step_s)
    waiting = (j.id for j in scene.look.reading.jobs if j.state is JobState.WAITING)
    return Memory(
        at=scene.now,
        idle=_grown(before.idle, (n.name for n in nodes if n.is_idle), step_s),
        silent=_grown(before.silent, (n.name for n in nodes if n.is_silent), step_s),
        shut=shut,
        well=well,
        vain={group.key: _vain(group, before, shut, well, step_s) for group in groups},
        waiting=_grown(before.waiting, waiting if scene.polling.patience else (), step_s),
        doubts=_doubts(scene, groups, before.doubts, step_s),
    )


def _doubts(scene: Scene, groups: Sequence[Group], before: Doubts, step_s: float) -> Doubts:
    idle = Idle(
        [room for group in groups for room in group.idle_rooms],
        [group.pool for group in groups],
        {group.key: group.able for group in groups},
    )
    least_s = max(scene.polling.doubt, stuck.LOOKS * scene.polling.every)
    return stuck.doubts(scene.look.reading.jobs, idle, before, step_s, least_s)


def _vain(
    group: Group,
    before: Memory,
    shut: Mapping[str, float],
    well: Mapping[str, float],
    step_s: float,
) -> Vain:
    """A node that has just come up proves nothing: its first job may break it."""
    idle = [n.name for n in group.nodes if not n.jobs and not n.drained]
    broken = [name for name in idle if shut.get(name, 0.0) >= SHUT_S]
    served = [node for node in group.nodes if well.get(node.name, 0.0) >= SHUT_S]
    works = any(node.jobs for node in served)
    return vain.looked_at(before.vain.get(group.key, Vain()), broken, bool(served), works, step_s)


def _grown(before: Mapping[str, float], names: Iterable[str], step_s: float) -> dict[str, float]:
    return {name: before[name] + step_s if name in before else 0.0 for name in names}


# --- what follows --------------------------------------------------------------------------------


def _probed(groups: Iterable[Group], memory: Memory, names: Sequence[str]) -> tuple[str, ...]:
    """Of groups that were left alone one node starts first, and no other until it serves."""
    found = set(names)
    for group in groups:
        if memory.vain[group.key].is_trying:
            mine = [node.name for node in group.nodes if node.name in found]
            found -= set(mine[0 if group.is_unproven(memory.useless) else 1 :])
    return tuple(name for name in names if name in found)


def _lacking(groups: Iterable[Group], scene: Scene, needs: Demand) -> list[str]:
    if scene.resting:
        return []
    return [name for group in groups for name in group.lacking(needs.start)]


def _retired(
    groups: Iterable[Group], scene: Scene, memory: Memory, needs: Demand
) -> tuple[str, ...]:
    groups = list(groups)
    least_s, useless = scene.spec.timing.idle, memory.useless
    awaited = _awaited(groups, scene.look.reading.jobs, needs)
    idle = [
        name
        for group in groups
        for name in group.idle(memory.idle, least_s, needs)
        if group.key not in awaited or name in useless
    ]
    few = idle[:1] if scene.polling.leave == "one" else idle
    surplus = [name for group in groups if not scene.resting for name in group.surplus()]
    again = (n for group in groups for n in group.nodes if n.is_open and not n.claimed)
    left_open = (node.name for node in again if node.name not in needs.used)
    return tuple(dict.fromkeys((*few, *surplus, *left_open)))


def _awaited(groups: Iterable[Group], jobs: Iterable[QueueJob], needs: Demand) -> set[str]:
    """Groups of which jobs lack nodes that they may get yet: what is idle is kept for them."""
    wanted: dict[str, list[str]] = defaultdict(list)
    for key, ids in needs.short.items():
        for id in dict.fromkeys(ids):
            wanted[id].append(key)
    able = {group.key: group.able for group in groups}
    return {
        key
        for job in jobs
        if job.id in wanted and _spread(job) <= sum(able[key] for key in wanted[job.id])
        for key in wanted[job.id]
    }


def _spread(job: QueueJob) -> int:
    """How many nodes it needs at least."""
    return sum(chunk.count for chunk in job.chunks if chunk.spread)


def _may_depart(node: Standing, silent: Mapping[str, float]) -> bool:
    """That a node is down is believed only once it has lasted.

    One that could be given a job, or that a person wants to have as it is, does not go.
    """
    if node.is_open or (node.drained and not node.asked):
        return False
    if node.health is Health.DOWN:
        return silent.get(node.name, 0.0) >= RESTART_S
    return node.health is not Health.ABSENT


def _exhausted(
    groups: Iterable[Group], needs: Demand, scene: Scene, resting: Collection[str]
) -> dict[str, str]:
    """Why nodes are held, or groups are left alone, is said by others."""
    short = [one for one in groups if one.key in needs.short and one.key not in resting]
    return {
        group.key: _few(group, _given_back(group, scene))
        for group in short
        if not any(n.name in scene.held for n in group.at(Way.OFF))
    }


def _given_back(group: Group, scene: Scene) -> list[str]:
    """Nodes that would serve if a person undrained them: what is dead would not, and what was
    closed here is opened here."""
    drained = [node for node in group.nodes if node.drained and not node.is_silent]
    return [node.name for node in drained if scene.look.nodes[node.name].owner != OURS]


_VAIN = (
    "nodes of group {} come up and take no jobs, so no more of them start for a while; the batch "
    "system tells why they do not, and what they all have may be the cause: image, prolog, queue"
)


def _few(group: Group, drained: Collection[str]) -> str:
    """In words that stay the same while it lasts."""
    most = min(group.limits.max, len(group.nodes))
    able = f"jobs wait for more nodes of group {group.key} than the {group.able} that take jobs"
    if drained:
        return f"{able}; drained: {fold(drained)}, which `tide undrain` gives back"
    if group.able < most:
        return f"{able}; `tide nodes` shows what the others do"
    wanted = f"jobs wait for more nodes of group {group.key} than the {most}"
    if most < len(group.nodes):
        return f"{wanted} that the calendar allows now; `tide schedule show` says until when"
    more = f"more names in groups.{group.key}.nodes and `tide apply`"
    return f"{wanted} that it has; they wait for others to end, or for {more}"
