"""One question to the batch system for everybody who waits for nodes to register.

The `wait registered` steps of all running operations share one RollCall.
"""

import asyncio
from collections.abc import Iterable, Mapping

from springtide.ports import BatchNode, BatchSystem, Unavailable

Registered = Mapping[str, BatchNode]


SHORTEST_S, LONGEST_S = 0.02, 0.5
SHARE = 2
PATIENCE = 0.1


def decide_pause_s(question_s: float, quiet_s: float) -> float:
    """How long to wait before the next question.

    The longer a question takes the fewer are asked, for the batch system's sake; and the
    longer nobody has come the less does another moment matter.
    """
    return max(SHORTEST_S, SHARE * question_s, min(LONGEST_S, PATIENCE * quiet_s))


class RollCall:
    """Asks the batch system who has registered, once for everybody who waits."""

    def __init__(self, batch: BatchSystem) -> None:
        self._batch = batch
        self._waiting: dict[asyncio.Future[Registered], frozenset[str]] = {}
        self._asked: frozenset[str] = frozenset()
        self._newcomers = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None

    async def next(self, names: Iterable[str]) -> Registered:
        """Those of the nodes that had registered at the next question."""
        future: asyncio.Future[Registered] = asyncio.get_running_loop().create_future()
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
            if await self._ask_once():
                quiet_since = loop.time()
            now = loop.time()
            if await self._pause(decide_pause_s(now - began, now - quiet_since)):
                quiet_since = now

    async def _ask_once(self) -> Registered:
        self._newcomers.clear()
        asked = dict(self._waiting)
        self._asked = frozenset().union(*asked.values())
        registered = await self._registered(self._asked)
        for future, names in asked.items():
            if not future.done():
                future.set_result({n: node for n, node in registered.items() if n in names})
        return registered

    async def _pause(self, seconds: float) -> bool:
        """True if it was cut short by nodes that nobody has asked for yet."""
        try:
            async with asyncio.timeout(seconds):
                return await self._newcomers.wait()
        except TimeoutError:
            return False

    async def _registered(self, names: frozenset[str]) -> Registered:
        try:
            nodes = await self._batch.nodes(names)
        except Unavailable:
            return {}
        return {name: node for name, node in nodes.items() if node.registered}
