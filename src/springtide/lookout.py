"""One look at the world: what batch system and providers say of nodes that no operation is at.

The reconciler looks with it before each pass. Whoever does not answer is told once, and decides
nothing.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from springtide.engine import Engine
from springtide.model import NodeState
from springtide.ports import CloudError, Instance, InstanceState, Provider, Unavailable
from springtide.repairs import World
from springtide.steps import Parts


class Lookout:
    """Sees the world, and tells what is news."""

    def __init__(self, parts: Parts, engine: Engine) -> None:
        self.parts = parts
        self.engine = engine
        self._said: dict[str, str] = {}

    async def say(self, what: str, detail: str) -> None:
        """As an event, when it is news; an empty detail says that it is over."""
        if self._said.get(what, "") == detail:
            return
        self._said[what] = detail
        await self.parts.record.note(what if detail else f"{what} no more", detail=detail)

    async def look(self) -> World | None:
        """The world, as far as it is known and nobody changed it meanwhile."""
        record = self.parts.record
        before = {name: record.nodes[name] for name in self.parts.spec.managed}
        claimed = self.engine.claimed()
        try:
            seen = await self.parts.batch.nodes()
        except Unavailable as error:
            await self.say("batch system away", str(error))
            return None
        await self.say("batch system away", "")
        found, blind = await self._instances()
        claimed |= self.engine.claimed()
        quiet = {
            name: node
            for name, node in before.items()
            if name not in claimed and name not in blind and record.nodes.get(name) is node
        }
        listed: dict[str, list[Instance]] = defaultdict(list)
        for one, _ in found:
            listed[one.node].append(one)
        homes = {one.id: provider for one, provider in found}
        return World(quiet, seen, listed, self._unknown(listed), homes)

    async def _instances(self) -> tuple[list[tuple[Instance, Provider]], set[str]]:
        """All instances; nodes whose provider does not answer are not judged."""
        found: list[tuple[Instance, Provider]] = []
        blind: set[str] = set()
        for provider in self.parts.distinct_providers():
            try:
                found += [(one, provider) for one in await provider.list(self.parts.spec.cluster)]
                await self.say(self._name(provider), "")
            except CloudError as error:
                blind |= self._nodes_of(provider)
                await self.say(self._name(provider), str(error))
        return found, blind

    def _name(self, provider: Provider) -> str:
        """What is said of it: by the groups whose nodes it has."""
        groups = [key for key, one in self.parts.providers.items() if one is provider]
        return f"provider of {', '.join(groups) or 'nothing'} away"

    def _nodes_of(self, provider: Provider) -> set[str]:
        groups = self.parts.spec.node_group
        theirs = {key for key, one in self.parts.providers.items() if one is provider}
        return {name for name, group in groups.items() if group in theirs}

    def _unknown(self, listed: Mapping[str, Sequence[Instance]]) -> tuple[Instance, ...]:
        """Instances of names that are no node's, or of a node that left the file and is off."""
        known, nodes = self.parts.spec.node_group, self.parts.record.nodes
        return tuple(
            one
            for name, instances in listed.items()
            if name not in known and (name not in nodes or nodes[name].state is NodeState.OFF)
            for one in instances
            if one.state is not InstanceState.DELETING
        )
