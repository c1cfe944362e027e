"""Who goes first on a node: operations queue per node, in the order they were opened.

The engine asks here before it runs an operation. Operations on different nodes never wait
for each other; one operation waits until it is first on all that it claims.
"""

import asyncio
from collections import deque
from collections.abc import Iterable


class Turns:
    """Queues of operation ids, one per claimed name."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[int]] = {}
        self._behind: dict[int, int] = {}
        """For each operation, at how many names it is not first."""
        self._claims: dict[int, tuple[str, ...]] = {}
        self._turn: dict[int, asyncio.Event] = {}

    def join(self, operation: int, claims: Iterable[str]) -> None:
        """Queue up for all the names at once."""
        self._claims[operation] = tuple(claims)
        self._turn[operation] = asyncio.Event()
        behind = 0
        for name in self._claims[operation]:
            queue = self._queues.setdefault(name, deque())
            behind += bool(queue)
            queue.append(operation)
        self._behind[operation] = behind
        self._call(operation)

    async def wait(self, operation: int) -> None:
        """Until it is first everywhere."""
        await self._turn[operation].wait()

    def leave(self, operation: int) -> None:
        """Give up all places, and let the next ones go."""
        self.let_go(operation, self._claims[operation])
        del self._claims[operation], self._behind[operation], self._turn[operation]

    def let_go(self, operation: int, names: Iterable[str]) -> None:
        """Give up some places of an operation that has its turn, or all."""
        gone = frozenset(names)
        for name in (name for name in self._claims[operation] if name in gone):
            queue = self._queues[name]
            first = queue[0] == operation
            queue.remove(operation)
            if not queue:
                del self._queues[name]
            elif first:
                self._behind[queue[0]] -= 1
                self._call(queue[0])
        kept = (name for name in self._claims[operation] if name not in gone)
        self._claims[operation] = tuple(kept)

    def firsts(self, operation: int) -> tuple[str, ...]:
        """Where it is first."""
        return tuple(n for n in self._claims[operation] if self._queues[n][0] == operation)

    def is_split(self, operation: int) -> bool:
        """Whether it is first at some of its names, and waits for others."""
        claims = self._claims.get(operation, ())
        return bool(claims) and 0 < self._behind[operation] < len(claims)

    def hand_over(self, operation: int, to: int, names: Iterable[str]) -> None:
        """Another one takes its places where it is first, and so has its turn at once."""
        taken = frozenset(names)
        for name in taken:
            self._queues[name][0] = to
        claims = self._claims[operation]
        self._claims[to] = tuple(name for name in claims if name in taken)
        self._claims[operation] = tuple(name for name in claims if name not in taken)
        self._behind[to], self._turn[to] = 0, asyncio.Event()
        self._call(to)

    def claimed(self) -> frozenset[str]:
        """All names that somebody queues for."""
        return frozenset(self._queues)

    def ahead(self, name: str) -> int | None:
        """The last operation that queues for a name, behind which a new one would wait."""
        queue = self._queues.get(name)
        return queue[-1] if queue else None

    def holders(self, operation: int) -> dict[str, int]:
        """Who is first where this operation is not."""
        firsts = {name: self._queues[name][0] for name in self._claims[operation]}
        return {name: first for name, first in firsts.items() if first != operation}

    def _call(self, operation: int) -> None:
        if self._behind[operation] == 0:
            self._turn[operation].set()
