"""One question to the batch system for everybody who waits for nodes to register.

The `wait registered` steps of all running operations share one RollCall.
"""

import asyncio
from collections.abc import Iterable, Mapping

from springtide.ports import BatchNode, BatchSystem, Unavailable

Seen = Mapping[str, BatchNode]


SHORTEST_S, LONGEST_S = 0.02, 0.5
SHARE, SLOWEST_S = 2, 5.0
PATIENCE = 0.1


def decide_pause_s(question_s: float, quiet_s: float) -> float:
    """How long to wait before the next question.

    The longer a question takes the fewer are asked, for the batch system's sake; and the
    longer nobody has come the less does another moment matter.
    """
    considerate_s = min(SLOWEST_S, SHARE * question_s)
    return max(SHORTEST_S, considerate_s, min(LONGEST_S, PATIENCE * quiet_s))


class RollCall:
    """Asks the batch system who has registered, once for everybody who waits."""

    def __init__(self, batch: BatchSystem) -> None:
        self._batch = batch
        self._waiting: dict[asyncio.Future[Seen], frozenset[str]] = {}
        self._asked: frozenset[str] = frozenset()
        self._newcomers = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None

    async def next(self, names: Iterable[str]) -> Seen:
        """What the batch system says of these nodes when next asked; nothing, if it is away."""
        future: asyncio.Future[Seen] = asyncio.get_running_loop().create_future()
        self._waiting[future] = wanted = frozenset(names)
        if not wanted <= self._asked:
            self._newcomers.set()
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        try:
            return await future
        finally:
            self._waiting.pop(future, None)

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        quiet_since = loop.time()
        while self._waiting:
            began = loop.time()
            seen = await self._ask_once()
            if any(node.registered for node in seen.values()):
                quiet_since = loop.time()
            now = loop.time()
            if await self._pause(decide_pause_s(now - began, now - quiet_since)):
                quiet_since = now

    async def _ask_once(self) -> Seen:
        self._newcomers.clear()
        asked = dict(self._waiting)
        self._asked = frozenset().union(*asked.values())
        seen = await self._seen(self._asked)
        for future, names in asked.items():
            if not future.done():
                future.set_result({n: node for n, node in seen.items() if n in names})
        return seen

    async def _pause(self, seconds: float) -> bool:
        """True if it was cut short by nodes that nobody has asked for yet."""
        try:
            async with asyncio.timeout(seconds):
                return await self._newcomers.wait()
        except TimeoutError:
            return False

    async def _seen(self, names: frozenset[str]) -> Seen:
        """A batch system that fails in whatever way must not leave everybody waiting."""
        try:
            return await self._batch.nodes(names)
        except Unavailable:
            return {}
        except Exception as error:
            for future in self._waiting:
                if not future.done():
                    future.set_exception(error)
            return {}
