"""What becomes of nodes whose job cannot start, pure: kept for other jobs, or given up.

A job of several nodes starts when all of them are up. If one cannot be made, the batch system
puts the job back into its queue; the other nodes, on their way up by then, are spare.
`steps.whole_jobs` asks here once the instances of an operation were made.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from springtide.nodeset import fold
from springtide.ports import Job

Wide = Mapping[str, Sequence[str]]
"""Jobs of several nodes, and their nodes."""
Lacking = dict[str, list[str]]
"""Jobs that cannot start, and the nodes that they lack."""
Groups = frozenset[str]

LONGEST_LIST = 60
_QUEUED = ("PENDING", "COMPLETING")
_FOR_NODES = ("Resources", "Priority", "Nodes required for job", "Nodes_required_for_job")
"""How the reasons of jobs begin that want nothing but nodes; a fresh job has none yet."""


def starting(told: Wide, jobs: Iterable[Job], held: Wide) -> dict[str, Sequence[str]]:
    """The jobs of several nodes that wait for them, and these.

    `told` is what the batch system said when it asked for nodes: before 23.02 that was only those
    it asked for. `held` are those that its jobs have now; one that goes back to its queue has none.
    """
    states = {job.id: job.state for job in jobs}
    left = {id: names for id, names in told.items() if states.get(id, "PENDING") in _QUEUED}
    now = {id: names for id, names in held.items() if states[id] == "CONFIGURING"}
    return left | {id: names for id, names in now.items() if len(names) > 1}


def incomplete(wide: Wide, fallen: Collection[str]) -> Lacking:
    """The jobs of which nodes fell out."""
    lacking = {job: [name for name in names if name in fallen] for job, names in wide.items()}
    return {job: missing for job, missing in lacking.items() if missing}


def owned(wide: Wide, lacking: Collection[str], taken: Iterable[str]) -> dict[str, str]:
    """The nodes of jobs that lack some, and whose each was; not those of any other job too."""
    owners = Counter(name for names in wide.values() for name in dict.fromkeys(names))
    others = frozenset(taken)
    return {
        name: job
        for job in lacking
        for name in wide[job]
        if owners[name] == 1 and name not in others
    }


# --- jobs that wait ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that only lacks nodes."""

    id: str
    size: int
    groups: Groups
    """Whose nodes it may have."""


def waiting(
    jobs: Iterable[Job], lacking: Mapping[str, Groups], partitions: Mapping[str, Groups]
) -> list[Waiting]:
    """The jobs that could use spare nodes, in the batch system's order.

    `lacking` are those that cannot start, with the groups of the nodes that they got.
    """
    found = [job for job in jobs if _waits(job, job.id in lacking)]
    places = dict(partitions)
    for job in found:  # a partition that is not in the file has at least what its jobs got
        if job.id in lacking and job.partition not in partitions:
            places[job.partition] = places.get(job.partition, Groups()) | lacking[job.id]
    return [Waiting(job.id, job.node_count, _groups(job, places)) for job in found]


def _waits(job: Job, requeued: bool) -> bool:
    """What is put back into the queue begins a little later, and is still shown as before."""
    if job.state != "PENDING":
        return requeued and job.configuring
    if requeued and job.reason == "BeginTime":
        return True
    return not job.reason or job.reason.startswith(_FOR_NODES)


def _groups(job: Job, places: Mapping[str, Groups]) -> Groups:
    """Those of all partitions that it may go to; of one that nobody knows, none."""
    known = places.get(job.partition)
    if known is not None:
        return known
    return Groups().union(*(places.get(name, ()) for name in job.partition.split(",")))


# --- who stays ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spares:
    """What becomes of spare nodes."""

    kept: tuple[str, ...]
    dropped: tuple[str, ...]


def decide_spares(
    spare: Mapping[str, str],
    jobs: Iterable[Waiting],
    whole: Collection[str],
    safe: Collection[str] = (),
) -> Spares:
    """Keep as many as the jobs could use, each taking its nodes in turn if enough are left.

    `spare` are nodes and their groups. Given up are only nodes of the groups in `whole`, and
    none that is `safe`; jobs take first what stays anyway.
    """
    loose: dict[str, list[str]] = defaultdict(list)
    sure: Counter[str] = Counter()
    for name, group in spare.items():
        if group in whole and name not in safe:
            loose[group].append(name)
        else:
            sure[group] += 1
    used = _used(jobs, sure, Counter({group: len(names) for group, names in loose.items()}))
    dropped = [name for group, names in loose.items() for name in names[used[group] :]]
    gone = frozenset(dropped)
    return Spares(tuple(name for name in spare if name not in gone), tuple(dropped))


def _used(jobs: Iterable[Waiting], sure: Counter[str], loose: Counter[str]) -> Counter[str]:
    """How many of the loose nodes of each group the jobs take."""
    used: Counter[str] = Counter()
    left = loose.total()
    for job in jobs:
        if not left:
            break
        if 0 < job.size <= sum(sure[group] + loose[group] for group in job.groups):
            taken = _take(loose, job.groups, job.size - _take(sure, job.groups, job.size).total())
            left -= taken.total()
            used += taken
    return used


def _take(pool: Counter[str], groups: Groups, count: int) -> Counter[str]:
    """As many as there are of so many, out of these groups."""
    taken: Counter[str] = Counter()
    for group in sorted(groups):
        taken[group] = min(pool[group], count - taken.total())
    pool -= taken
    return taken


def explain(job: str, missing: Sequence[str], fallen: Mapping[str, str]) -> str:
    """Why a node is spare. Its kind is before the colon: one call gives back all of a kind."""
    names = fold(missing)
    if len(names) > LONGEST_LIST:
        names = f"{missing[0]} and {len(missing) - 1} others"
    return f"spare: job {job} lacks {names} ({fallen[missing[0]]}) and cannot start"
