"""One question to the batch system for everybody who waits for nodes to register.

The `wait registered` steps of all running operations share one RollCall.
"""

import asyncio
from collections.abc import Iterable, Mapping

from springtide.ports import BatchNode, BatchSystem, Unavailable

Registered = Mapping[str, BatchNode]


class RollCall:
    """Asks the batch system who has registered, once for everybody who waits."""

    SHORTEST_S = 0.05
    SHARE = 5
    """Between two questions at least this many times as long as one took."""

    def __init__(self, batch: BatchSystem) -> None:
        self._batch = batch
        self._waiting: dict[asyncio.Future[Registered], frozenset[str]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def next(self, names: Iterable[str]) -> Registered:
        """Those of the nodes that had registered at the next question."""
        future: asyncio.Future[Registered] = asyncio.get_running_loop().create_future()
        self._waiting[future] = frozenset(names)
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        try:
            return await future
        finally:
            self._waiting.pop(future, None)

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            began = loop.time()
            asked = dict(self._waiting)
            registered = await self._registered(frozenset().union(*asked.values()))
            for future, names in asked.items():
                if not future.done():
                    heard = {n: node for n, node in registered.items() if n in names}
                    future.set_result(heard)
            await asyncio.sleep(max(self.SHORTEST_S, self.SHARE * (loop.time() - began)))

    async def _registered(self, names: frozenset[str]) -> Registered:
        try:
            nodes = await self._batch.nodes(names)
        except Unavailable:
            return {}
        return {name: node for name, node in nodes.items() if node.registered}
