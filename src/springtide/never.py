"""What can never be: jobs that could not start even if all nodes of our queues were up and empty.

`demand` tells their owners and starts nothing for them; `stuck` keeps nothing for them. Pure.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from springtide.nodeset import fold
from springtide.packing import Packing, Part, Pool, Room, fits
from springtide.ports import Chunk, JobState, QueueJob
from springtide.wishes import Wish, wishes


class Bare:
    """All nodes of some groups, as if they were up and empty."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._pools = pools
        self._packing: Packing | None = None

    def holds(self, wish: Wish) -> bool:
        """Whether we would find places for all parts of a job; of one part, sums tell that.

        If not, no node starts for it however many there are, and none is kept for it either.
        """
        if len(wish.parts) == 1 or wish.names:
            return True
        if self._packing is None:
            rooms = (
                Room(name, pool.group, pool.cores, pool.memory)
                for pool in self._pools
                for name in pool.names
            )
            self._packing = Packing(rooms, self._pools)
        return self._packing.holds(wish.parts, wish.terms)


def impossible(wish: Wish) -> str:
    """Why it could not start even if all nodes were there and empty; empty if it perhaps could."""
    ours = wish.pools
    for part in wish.parts:
        if why := _unfit(part, ours, wish):
            return _said(wish.queues, why)
    for able in (ours, *(pools for _, pools in wish.parts)) if len(wish.parts) > 1 else ():
        if why := _too_much(wish, able):
            return _said(wish.queues, f"{why}{_besides(wish)}")
    if wish.choices and all(_unfit(part, ours, wish) for (part,) in wish.choices):
        return _said(wish.queues, f"{_of_one_kind(wish.parts[0][0])}{_besides(wish)}")
    return ""


def _of_one_kind(chunk: Chunk) -> str:
    kinds = _features(chunk)
    return f"it asks for {chunk.count} nodes of one kind, {kinds}, and there are not so many of any"


def _too_much(wish: Wish, able: Sequence[Pool]) -> str:
    """What only these groups have may be too much for them together, though each part is not."""
    among = frozenset(pool.group for pool in able)
    chunks = [chunk for chunk, pools in wish.parts if among.issuperset(p.group for p in pools)]
    sizes = [(wish.sizes[pool.group], pool) for pool in able]
    asked = {
        "nodes": _apart(chunks, able),
        "cores": sum(chunk.count * max(1, chunk.cores) for chunk in chunks),
        "MiB": sum(chunk.count * chunk.memory for chunk in chunks),
    }
    there = {
        "nodes": sum(size for size, _ in sizes),
        "cores": sum(size * pool.cores for size, pool in sizes),
        "MiB": sum(size * pool.memory for size, pool in sizes),
    }
    for what, most in there.items():
        if asked[what] > most:
            where = ", ".join(sorted(among))
            return f"it asks for {asked[what]} {what} at once, and there are {most} in {where}"
    return ""


def _apart(chunks: Sequence[Chunk], able: Sequence[Pool]) -> int:
    """So many nodes at least: of parts that need more than half of a node, no two share one."""
    cores = max((pool.cores for pool in able), default=0)
    memory = max((pool.memory for pool in able), default=0)
    return max(
        sum(chunk.count for chunk in chunks if chunk.spread),
        sum(chunk.count for chunk in chunks if 2 * chunk.cores > cores),
        sum(chunk.count for chunk in chunks if 2 * chunk.memory > memory),
    )


def _besides(wish: Wish) -> str:
    return f" without {fold(wish.avoid)}, which it may not use" if wish.avoid else ""


def _unfit(part: Part, pools: Sequence[Pool], wish: Wish) -> str:
    chunk, able = part
    if able:
        sizes = [(wish.sizes[one.group], fits(chunk, one)) for one in able]
        most = sum(size * (1 if chunk.spread else each) for size, each in sizes)
        if chunk.count <= most:
            return ""
        each = "node" if chunk.count == 1 else "nodes"
        what = each if chunk.spread else f"times {_amount(chunk)}"
        return f"it asks for {chunk.count} {what} at once, and there can be {most}{_besides(wish)}"
    right = [pool for pool in pools if chunk.accepts(pool.features)]
    if not right:
        return f"no node there has {_features(chunk)}"
    cores, memory = (max(pool.cores for pool in right), max(pool.memory for pool in right))
    if chunk.cores > cores:
        return f"it asks for {chunk.cores} cores on a node, and none has more than {cores}"
    if chunk.memory > memory:
        return f"it asks for {chunk.memory} MiB on a node, and none has more than {memory} MiB"
    return f"no node there has {_amount(chunk)} together"


def _features(chunk: Chunk) -> str:
    """In words: big and fast; fast or slow; big and (fast or slow); (a and c) or (b and c)."""
    several = len(chunk.ways) > 1
    each = [
        f"({_both(way)})" if several and len(way) > 1 else _both(way) for way in chunk.ways if way
    ]
    either = " or ".join(dict.fromkeys(each))
    bound = bool(chunk.features) and several
    return " and ".join(filter(None, (_both(chunk.features), f"({either})" if bound else either)))


def _both(features: Iterable[str]) -> str:
    return " and ".join(sorted(features))


def _amount(chunk: Chunk) -> str:
    cores = f"{chunk.cores} core{'s' if chunk.cores != 1 else ''}"
    return f"{cores} and {chunk.memory} MiB" if chunk.memory else cores


def is_lost(job: QueueJob, served: Collection[str]) -> bool:
    """Whether the batch system says so, of one in our queues alone."""
    return bool(job.never) and job.state is JobState.HELD and set(job.queues) <= set(served)


def lost(job: QueueJob, pools: Sequence[Pool]) -> str:
    """Why, in figures if these pools are all that there is and the figures show it."""
    wish = next(iter(wishes([replace(job, state=JobState.WAITING)], pools)), None)
    return (wish and impossible(wish)) or _said(job.queues, job.never)


def _said(queues: Iterable[str], why: str) -> str:
    return f"it can never start in {', '.join(queues)}: {why}; ask for less, or delete the job"
