"""Which nodes said that their boot has failed for good: once only, so it outlasts restarts."""

import json

from springtide.model import STARTING, Node
from springtide.steps import Parts


class GivenUp:
    """Keeps `Parts.gave_up`, on disk first. The daemon's `Joining` has one."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def load(self) -> dict[str, tuple[int, str]]:
        """What nodes on their way said before a restart; answers in which boots they did."""
        record, boots = self._parts.record, {}
        for node in record.of(list(record.nodes), *STARTING):
            kept = await record.store.get(_key(node.name))
            generation, boot, why = json.loads(kept) if kept else (0, "", "")
            if why and generation == node.generation:
                self._parts.gave_up[node.name] = (generation, why)
                boots[node.name] = (generation, boot)
        return boots

    async def keep(self, node: Node, boot: str, why: str) -> None:
        """Whoever waits for it need not wait any longer."""
        if node.state in STARTING:
            said = json.dumps([node.generation, boot, why])
            await self._parts.record.store.put(_key(node.name), said)
            self._parts.gave_up[node.name] = (node.generation, why)

    async def forget(self, name: str) -> None:
        """It boots anew, or came up after all."""
        if name in self._parts.gave_up:
            await self._parts.record.store.put(_key(name), "")
            self._parts.gave_up.pop(name, None)


def _key(name: str) -> str:
    return f"gave up: {name}"
