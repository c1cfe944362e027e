"""Nodes of one group on shelves by their free cores, so that one is found without looking at all.

`packing` keeps them. On each shelf they are sorted by free memory. Nodes that many jobs avoid are
of another kind than the rest, and lie apart: who avoids them does not have to look at them.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence

Entry = tuple[int, int]
"""Free memory, and the number of the node."""
Skip = Callable[[int], bool] | None
"""Whether a node is not for who asks; None if all are."""


class Kinds:
    """Nodes that are on the same of a few lists are of one kind, by their number."""

    def __init__(self, avoided: Sequence[frozenset[str]]) -> None:
        lists: dict[str, int] = {}
        for number, names in enumerate(avoided):
            for name in names:
                lists[name] = lists.get(name, 0) | 1 << number
        found = list(dict.fromkeys((0, *lists.values())))
        self._of = {name: found.index(on) for name, on in lists.items()}
        self.count = len(found)
        self.all = range(self.count)
        self._without: dict[frozenset[str], Sequence[int]] = {
            names: [kind for kind, on in enumerate(found) if not on >> number & 1]
            for number, names in enumerate(avoided)
        }
        self._without[frozenset()] = self.all

    def of(self, name: str) -> int:
        return self._of.get(name, 0)

    def without(self, avoid: frozenset[str]) -> Sequence[int] | None:
        """Those whose nodes are not on this list; None if it is none of the few."""
        return self._without.get(avoid)


class Free:
    """Nodes of a group that may start, in their order, those of each kind apart."""

    def __init__(self, names: Sequence[str], kinds: Kinds) -> None:
        self._kinds = kinds
        self._all = names
        self._turn = {name: turn for turn, name in enumerate(names)}
        self._left: list[list[int]] = [[] for _ in kinds.all]
        """By kind: turns below zero, so that the next is at the end."""
        for name in reversed(names):
            self.put_back(name)

    def __len__(self) -> int:
        return sum(map(len, self._left))

    def __contains__(self, name: str) -> bool:
        if name not in self._turn:
            return False
        some, at = self._place(name)
        return at < len(some) and some[at] == -self._turn[name]

    def _place(self, name: str) -> tuple[list[int], int]:
        some = self._left[self._kinds.of(name)]
        return some, bisect_left(some, -self._turn[name])

    def put_back(self, name: str) -> None:
        some, at = self._place(name)
        some.insert(at, -self._turn[name])

    def remove(self, name: str) -> None:
        some, at = self._place(name)
        del some[at]

    def first(self, avoid: frozenset[str]) -> str | None:
        """The next one that is not to be avoided."""
        kinds = self._kinds.without(avoid)
        if kinds is not None:
            found = [self._left[kind][-1] for kind in kinds if self._left[kind]]
        else:
            others = (self._others(some, avoid) for some in self._left)
            found = [turn for some in others if (turn := next(some, None)) is not None]
        return self._all[-max(found)] if found else None

    def _others(self, some: Sequence[int], avoid: frozenset[str]) -> Iterator[int]:
        return (turn for turn in reversed(some) if self._all[-turn] not in avoid)


class Rack:
    """The shelves of one group, for nodes of one rank."""

    def __init__(self, kinds: int, cores: int) -> None:
        self._shelves: list[list[list[Entry]]] = [
            [[] for _ in range(cores + 1)] for _ in range(kinds)
        ]
        """By kind, and by free cores."""
        self._stocked = [0] * kinds
        """By kind: the bits of shelves that are not empty."""

    @property
    def is_stocked(self) -> bool:
        return any(self._stocked)

    def put(self, kind: int, cores: int, entry: Entry) -> None:
        insort(self._shelves[kind][cores], entry)
        self._stocked[kind] |= 1 << cores

    def remove(self, kind: int, cores: int, entry: Entry) -> None:
        self._pop(kind, cores, bisect_left(self._shelves[kind][cores], entry))

    def _pop(self, kind: int, cores: int, at: int) -> int:
        shelf = self._shelves[kind][cores]
        _, number = shelf.pop(at)
        if not shelf:
            self._stocked[kind] ^= 1 << cores
        return number

    def draw(self, kinds: Sequence[int], cores: int, memory: int, skip: Skip) -> Iterator[int]:
        """Take nodes of these kinds that have as much, those first that have the least.

        Nothing may be put here while somebody draws.
        """
        stocked = 0
        for kind in kinds:
            stocked |= self._stocked[kind]
        stocked = stocked >> cores << cores
        while stocked:
            lowest = stocked & -stocked
            stocked ^= lowest
            free, least = lowest.bit_length() - 1, (memory, 0)
            while found := self._first(kinds, free, least, skip):
                least, kind, at = found
                yield self._pop(kind, free, at)

    def _first(
        self, kinds: Sequence[int], cores: int, least: Entry, skip: Skip
    ) -> tuple[Entry, int, int] | None:
        """The first entry of a shelf from there on, its kind, and its place."""
        best: tuple[Entry, int, int] | None = None
        for kind in kinds:
            shelf = self._shelves[kind][cores]
            at = bisect_left(shelf, least) if shelf else 0
            while skip and at < len(shelf) and skip(shelf[at][1]):
                at += 1
            if at < len(shelf) and (best is None or shelf[at] < best[0]):
                best = shelf[at], kind, at
        return best

    def count(self, cores: int, memory: int, one_each: bool) -> int:
        """How often so many cores are free, on nodes with so much memory free."""
        return sum(
            (len(shelf) - bisect_left(shelf, (memory, 0))) * (1 if one_each else free // cores)
            for shelves in self._shelves
            for free, shelf in enumerate(shelves[cores:], cores)
            if shelf
        )
