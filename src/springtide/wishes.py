"""What jobs that wait want of nodes: those that want the same are one wish with a count.

So an array costs no more than a job. `demand` serves wishes, `stuck` asks whether nodes help them,
and `never` whether they can be served at all. Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from springtide.packing import Part, Pool, Terms, fits
from springtide.ports import Chunk, JobState, QueueJob

MANY, MOST_LISTS = 20, 3
"""So many wishes that avoid the same nodes are worth it to sort those out, for so many lists."""


@dataclass(slots=True)
class Wish:
    """Jobs that want the same."""

    parts: tuple[Part, ...]
    names: tuple[str, ...]
    opens: bool
    """Whether nodes may start for it."""
    queues: tuple[str, ...]
    pools: Sequence[Pool] = ()
    """The groups of its queues."""
    avoid: frozenset[str] = frozenset()
    sizes: Mapping[str, int] = field(default_factory=dict)
    """How many nodes of each group there are for it, whatever they do now."""
    choices: tuple[tuple[Part, ...], ...] = ()
    """Of alternatives that its nodes may not mix, each by itself; empty if there are none."""
    jobs: list[tuple[str, int]] = field(default_factory=list)
    """With how many tasks each."""

    @property
    def count(self) -> int:
        return sum(tasks for _, tasks in self.jobs)

    @property
    def terms(self) -> Terms:
        return Terms(self.names, self.avoid, self.opens)

    @property
    def is_small(self) -> bool:
        """Whether it fits on a node, any node that is large enough."""
        return len(self.parts) == 1 and self.parts[0][0].count == 1 and not self.names

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(pool.group for _, pools in self.parts for pool in pools))

    @property
    def spread(self) -> int:
        """How many nodes it needs at least."""
        return sum(chunk.count for chunk, _ in self.parts if chunk.spread)

    def last(self, count: int) -> list[str]:
        """The jobs of the last so many tasks."""
        found = []
        for job, tasks in reversed(self.jobs):
            if count <= 0:
                break
            found.append(job)
            count -= tasks
        return found[::-1]


def wishes(
    jobs: Iterable[QueueJob], pools: Sequence[Pool], early: Collection[str] = ()
) -> Iterable[Wish]:
    """Of the jobs that wait for nodes of ours."""
    ours, groups = served(pools), {pool.group: frozenset(pool.names) for pool in pools}
    known = frozenset[str]().union(*groups.values())
    sizes: dict[frozenset[str], Mapping[str, int]] = {}
    lists: dict[frozenset[str], frozenset[str]] = {}  # one object each: such are compared at once
    within: dict[tuple[str, ...], Sequence[Pool]] = {}
    wishes: dict[object, Wish] = {}
    for job in jobs:
        if job.state is not JobState.WAITING or ours.isdisjoint(job.queues):
            continue
        if not known.issuperset(job.names):
            continue
        opens = job.id not in early
        avoid = lists.setdefault(job.avoid, job.avoid)
        key = job.chunks, job.queues, job.names, opens, avoid
        wish = wishes.get(key)
        if wish is None:
            if avoid not in sizes:
                sizes[avoid] = {key: len(n) - len(n & avoid) for key, n in groups.items()}
            if job.queues not in within:
                within[job.queues] = _of_queues(job.queues, pools)
            wish = wishes[key] = _wish(job, within[job.queues], opens, avoid, sizes[avoid])
        wish.jobs.append((job.id, job.tasks))
    return wishes.values()


def _wish(
    job: QueueJob,
    pools: Sequence[Pool],
    opens: bool,
    avoid: frozenset[str],
    sizes: Mapping[str, int],
) -> Wish:
    chunks = sorted(job.chunks, key=_is_shared if job.names else _size)
    parts = tuple((chunk, _able(chunk, pools)) for chunk in chunks)
    choices = _choices(parts, pools)
    return Wish(parts, job.names, opens, job.queues, pools, avoid, sizes, choices)


def common(wanted: Iterable[Wish]) -> list[frozenset[str]]:
    """Lists of nodes that many wishes avoid."""
    times = Counter(wish.avoid for wish in wanted if wish.avoid)
    return [names for names, count in times.most_common(MOST_LISTS) if count >= MANY]


def _size(chunk: Chunk) -> tuple[bool, bool, int, int]:
    """Parts that leave others the least choice are placed first."""
    return not chunk.exclusive, _is_shared(chunk), -chunk.cores, -chunk.memory


def _is_shared(chunk: Chunk) -> bool:
    """Such parts take what others leave; of the rest, names are in the order of the parts."""
    return not chunk.spread


def served(pools: Sequence[Pool]) -> frozenset[str]:
    """The queues that have nodes of ours."""
    return frozenset(queue for pool in pools for queue in pool.queues)


def _able(chunk: Chunk, pools: Sequence[Pool]) -> Sequence[Pool]:
    """Those that have nodes for it."""
    return [pool for pool in pools if chunk.accepts(pool.features) and fits(chunk, pool)]


def _choices(parts: Sequence[Part], pools: Sequence[Pool]) -> tuple[tuple[Part, ...], ...]:
    """Of a job of one part, of several nodes that must be alike."""
    chunk = parts[0][0] if len(parts) == 1 else Chunk()
    if not chunk.alike or chunk.count == 1:
        return ()
    bare = replace(chunk, ways=(), alike=False)
    each = [replace(bare, features=chunk.features | way) for way in chunk.ways]
    return tuple(((one, _able(one, pools)),) for one in each)


def _of_queues(queues: Sequence[str], pools: Sequence[Pool]) -> list[Pool]:
    return [pool for pool in pools if not pool.queues.isdisjoint(queues)]
