"""Packs what jobs want onto nodes: those there are first, the tightest that will do, then others.

`demand` calls it, with wishes in the order in which they choose.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from springtide.ports import Chunk
from springtide.shelves import Free, Kinds, Rack, Skip


class Rank(IntEnum):
    """Whose room is taken first."""

    UP = 0
    BEGUN = 1
    """Starting, and something has been placed there: so what starts next finds the same places."""
    STARTING = 2
    LEAVING = 3
    """It would have to be called back."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A group: what each of its nodes has, and which of them could start."""

    group: str
    names: tuple[str, ...]
    """All of them, whatever they do now."""
    cores: int
    memory: int
    """MiB."""
    features: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    free: tuple[str, ...] = ()
    """Those that may start now, in this order."""
    left: int = 0
    """So many of them at most."""


@dataclass(frozen=True, slots=True)
class Room:
    """A node that is there or on its way, and what is free of it."""

    name: str
    group: str
    cores: int
    memory: int
    rank: Rank = Rank.UP


RANKS = tuple(Rank)
FEW = 8
"""So many nodes are sooner tried than counted."""
Part = tuple[Chunk, Sequence[Pool]]
"""What a job wants, and the groups that have such nodes, in the order of preference."""


class Terms(NamedTuple):
    """Which nodes a job may have."""

    names: Sequence[str] = ()
    """It gets these, and others only if it wants more nodes than that."""
    avoid: frozenset[str] = frozenset()
    """It gets none of these."""
    opens: bool = True
    """Whether nodes may start for it."""


ANY = Terms()


def fits(chunk: Chunk, pool: Pool) -> int:
    """How many of it an empty node of the group holds."""
    return _quotient(pool.cores, pool.memory, chunk)


def _quotient(cores: int, memory: int, chunk: Chunk) -> int:
    by_cores = cores // _cores(chunk)
    return min(by_cores, memory // chunk.memory) if chunk.memory else by_cores


def _cores(chunk: Chunk) -> int:
    return max(1, chunk.cores)


@dataclass(slots=True)
class _Bin:
    name: str
    pool: Pool
    rank: Rank
    cores: int
    memory: int
    shelved: bool = False
    used: bool = False


@dataclass(slots=True)
class _Job:
    """What is being placed: what it touched, so that it can be undone."""

    first_new: int
    terms: Terms
    before: list[tuple[int, int, int, bool]] = field(default_factory=list)
    """Nodes, and what was free and used of them."""
    out: list[int] = field(default_factory=list)
    """Nodes that it shall not be given twice."""

    @property
    def first(self) -> dict[int, tuple[int, int]]:
        """Its nodes, and what was free of them before it came."""
        found: dict[int, tuple[int, int]] = {}
        for number, cores, memory, _ in self.before:
            found.setdefault(number, (cores, memory))
        return found


class Packing:
    """Nodes that fill up."""

    def __init__(
        self,
        rooms: Iterable[Room],
        pools: Sequence[Pool],
        avoided: Sequence[frozenset[str]] = (),
    ) -> None:
        """`avoided` are few lists of nodes that many jobs avoid: those cost less then."""
        self._bins: list[_Bin] = []
        self._numbers: dict[str, int] = {}
        self._kinds = Kinds(avoided)
        kinds = self._kinds.count
        self._racks = {
            (pool.group, rank): Rack(kinds, pool.cores) for pool in pools for rank in Rank
        }
        self._free = {pool.group: Free(pool.free, self._kinds) for pool in pools}
        self._left = {pool.group: pool.left for pool in pools}
        known = {pool.group: pool for pool in pools}
        for room in rooms:
            self._add(_Bin(room.name, known[room.group], room.rank, room.cores, room.memory))
        self._rooms = len(self._bins)
        for number in range(self._rooms):
            self._shelve(number)

    @property
    def used(self) -> frozenset[str]:
        """Rooms that something was placed in."""
        return frozenset(one.name for one in self._bins[: self._rooms] if one.used)

    @property
    def opened(self) -> int:
        return len(self._bins) - self._rooms

    @property
    def started(self) -> tuple[str, ...]:
        return tuple(one.name for one in self._bins[self._rooms :])

    def place_each(self, part: Part, count: int, terms: Terms = ANY) -> int:
        """Place jobs of one chunk each, that name no nodes; answers how many found no room."""
        job = _Job(len(self._bins), terms)
        left = self._fill(job, part, count, part[0].exclusive)
        self._close(job)
        return left

    def place_whole(self, parts: Sequence[Part], terms: Terms = ANY) -> tuple[str, ...]:
        """Place one job; answers its nodes, or none if it cannot have all that it wants."""
        job = self._place(parts, terms)
        return tuple(self._bins[number].name for number in job.first) if job else ()

    def place_alike(self, parts: Sequence[Part], count: int, terms: Terms = ANY) -> int:
        """Place so many jobs, each of them whole; answers how many found no room.

        What one takes of its nodes is taken as often as they have it, so that the work is that of
        the nodes that fill up, however many jobs there are.
        """
        left = count
        while left and (job := self._place(parts, terms)):
            left -= 1 + self._repeat(job, left - 1)
        return left

    def holds(self, parts: Sequence[Part], terms: Terms = ANY) -> bool:
        """Whether one job would find room where there is some; nothing is placed."""
        job = self._place(parts, terms._replace(opens=False))
        if job:
            self._undo(job)
        return job is not None

    # --- whole jobs --------------------------------------------------------------------------

    def _place(self, parts: Sequence[Part], terms: Terms) -> _Job | None:
        names = terms.names
        if not terms.avoid.isdisjoint(names):
            return None
        many = [part for part in parts if part[0].count > FEW]
        if not names and not all(self._could(part, terms.opens) for part in many):
            return None
        job = _Job(len(self._bins), terms)
        elsewhere = sum(chunk.count for chunk, _ in parts) > len(names)
        for part in parts:
            alone = part[0].spread
            if not alone:
                self._close(job)
            left = self._fill_named(job, part) if names else part[0].count
            if left and elsewhere:
                left = self._fill(job, part, left, alone)
            if left:
                self._undo(job)
                return None
            if not alone:
                self._close(job)
        self._close(job)
        return job

    def _repeat(self, job: _Job, most: int) -> int:
        """Place others like it on the same nodes; answers how many."""
        rooms = {number: self._bins[number] for number in job.first}
        took = {n: (c - rooms[n].cores, m - rooms[n].memory) for n, (c, m) in job.first.items()}
        for number, (cores, memory) in took.items():
            room = rooms[number]
            most = min(most, room.cores // cores, room.memory // memory if memory else most)
        for number, (cores, memory) in took.items() if most else ():
            self._unshelve(number)
            rooms[number].cores -= most * cores
            rooms[number].memory -= most * memory
            self._shelve(number)
        return most

    # --- filling -----------------------------------------------------------------------------

    def _fill(self, job: _Job, part: Part, count: int, alone: bool) -> int:
        """Place as many as there is room for; answers how many are left.

        `alone`: one on each node.
        """
        chunk, pools = part
        left = count
        for rank in RANKS:
            for pool in pools:
                if not left:
                    return 0
                if self._racks[pool.group, rank].is_stocked:
                    left = self._take(job, pool, rank, chunk, left, alone)
        for pool in pools if job.terms.opens else ():
            while left and (number := self._open_any(pool, job.terms.avoid)) is not None:
                left -= self._use(job, number, chunk, left, alone)
        return left

    def _take(self, job: _Job, pool: Pool, rank: Rank, chunk: Chunk, left: int, one: bool) -> int:
        whole, avoid = chunk.exclusive, job.terms.avoid
        cores, memory = (pool.cores, pool.memory) if whole else (_cores(chunk), chunk.memory)
        kinds = self._kinds.without(avoid)
        skip = self._avoids(avoid) if kinds is None else None
        drawn = self._racks[pool.group, rank].draw(kinds or self._kinds.all, cores, memory, skip)
        while left and (number := next(drawn, None)) is not None:
            self._bins[number].shelved = False
            left -= self._use(job, number, chunk, left, one)
        return left

    def _avoids(self, avoid: frozenset[str]) -> Skip:
        bins = self._bins
        return lambda number: bins[number].name in avoid

    def _could(self, part: Part, opens: bool) -> bool:
        """Whether there is enough for a chunk, at best: cheaper than to try in vain."""
        chunk, pools = part
        cores, left = _cores(chunk), chunk.count
        for pool in pools:
            new = min(self._left[pool.group], len(self._free[pool.group])) if opens else 0
            left -= new * (1 if chunk.spread else pool.cores // cores)
            for rank in RANKS:
                if left <= 0:
                    return True
                left -= self._racks[pool.group, rank].count(cores, chunk.memory, chunk.spread)
        return left <= 0

    def _fill_named(self, job: _Job, part: Part) -> int:
        chunk, pools = part
        left, groups = chunk.count, {pool.group: pool for pool in pools}
        for name in job.terms.names:
            if not left:
                break
            number = self._called(name, groups.values() if job.terms.opens else ())
            if number is None or self._bins[number].pool.group not in groups:
                continue
            if number not in job.out and self._holds(number, chunk):
                self._unshelve(number)
                left -= self._use(job, number, chunk, left, chunk.spread)
        return left

    def _called(self, name: str, pools: Iterable[Pool]) -> int | None:
        if name in self._numbers:
            return self._numbers[name]
        for pool in pools:
            if name in self._free[pool.group] and self._left[pool.group] > 0:
                return self._open(pool, name)
        return None

    def _holds(self, number: int, chunk: Chunk) -> bool:
        one = self._bins[number]
        if chunk.exclusive:
            return (one.cores, one.memory) == (one.pool.cores, one.pool.memory)
        return _quotient(one.cores, one.memory, chunk) > 0

    def _use(self, job: _Job, number: int, chunk: Chunk, left: int, one: bool) -> int:
        """Put as many as fit on a node that lies on no shelf; answers how many."""
        room = self._bins[number]
        many = 1 if one else min(left, _quotient(room.cores, room.memory, chunk))
        job.before.append((number, room.cores, room.memory, room.used))
        job.out.append(number)
        room.used = True
        if chunk.exclusive:
            room.cores = room.memory = 0
        else:
            room.cores -= many * _cores(chunk)
            room.memory -= many * chunk.memory
        return many

    def _open_any(self, pool: Pool, avoid: frozenset[str]) -> int | None:
        """Another node, if the group has one."""
        if self._left[pool.group] <= 0:
            return None
        name = self._free[pool.group].first(avoid)
        return self._open(pool, name) if name is not None else None

    def _open(self, pool: Pool, name: str) -> int:
        self._free[pool.group].remove(name)
        self._left[pool.group] -= 1
        return self._add(_Bin(name, pool, Rank.STARTING, pool.cores, pool.memory))

    def _undo(self, job: _Job) -> None:
        """As if it had never been."""
        for number, cores, memory, used in reversed(job.before):
            self._unshelve(number)
            one = self._bins[number]
            one.cores, one.memory, one.used = cores, memory, used
        for number in dict.fromkeys(number for number, *_ in job.before):
            if number < job.first_new:
                self._shelve(number)
        for one in reversed(self._bins[job.first_new :]):
            del self._numbers[one.name]
            self._free[one.pool.group].put_back(one.name)
            self._left[one.pool.group] += 1
        del self._bins[job.first_new :]

    # --- shelves -------------------------------------------------------------------------------

    def _add(self, one: _Bin) -> int:
        self._numbers[one.name] = len(self._bins)
        self._bins.append(one)
        return len(self._bins) - 1

    def _close(self, job: _Job) -> None:
        """What it did not take of its nodes is for others."""
        for number in job.out:
            self._shelve(number)
        job.out.clear()

    def _shelve(self, number: int) -> None:
        one = self._bins[number]
        if one.cores > 0 and not one.shelved:
            self._rack(one).put(self._kinds.of(one.name), one.cores, (one.memory, number))
            one.shelved = True

    def _unshelve(self, number: int) -> None:
        one = self._bins[number]
        if one.shelved:
            self._rack(one).remove(self._kinds.of(one.name), one.cores, (one.memory, number))
            one.shelved = False

    def _rack(self, one: _Bin) -> Rack:
        begun = one.used and one.rank is Rank.STARTING
        return self._racks[one.pool.group, Rank.BEGUN if begun else one.rank]
