"""One list of a provider for everybody who wants to know it within a moment.

The death watches of all running operations share one Census.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from springtide.ports import Instance, Provider

FRESH_S = 2.0


class Census:
    """The last list of each provider, and when it was asked for."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._known: dict[int, tuple[float, Sequence[Instance]]] = {}
        self._asking: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def instances(self, provider: Provider) -> Sequence[Instance]:
        """A list of the last moment, or a new one; raises CloudError."""
        loop = asyncio.get_running_loop()
        async with self._asking[id(provider)]:
            at, known = self._known.get(id(provider), (0.0, ()))
            if not at or loop.time() - at > FRESH_S:
                at, known = loop.time(), await provider.list(self._cluster)
                self._known[id(provider)] = at, known
        return known
