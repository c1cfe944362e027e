"""One look at the world: what batch system and providers say of nodes that no operation is at.

The reconciler looks with it before each pass. Whoever does not answer is told once, and decides
nothing.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from springtide.engine import Engine
from springtide.model import Node, NodeState
from springtide.ports import (
    BatchNode,
    CloudError,
    Instance,
    InstanceState,
    Provider,
    Unavailable,
)
from springtide.repairs import World
from springtide.steps import Parts

Listed = tuple[Instance, tuple[Provider, ...]]
"""An instance, and who lists it: providers that differ may show the same."""
PATIENCE_S = 30.0


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

    def standing(self, *whats: str) -> dict[str, str]:
        """What of these was said and is not over."""
        return {what: self._said[what] for what in whats if self._said.get(what)}

    async def look(self) -> World | None:
        """The world, as far as it is known and nobody changed it meanwhile."""
        record = self.parts.record
        before = {name: record.nodes[name] for name in self.parts.spec.managed}
        claimed = self._claimed()
        found, blind = await self._instances()
        try:
            seen = await self.parts.batch.nodes()
        except Unavailable as error:
            await self.say("batch system away", str(error))
            return None
        await self.say("batch system away", "")
        claimed |= self._claimed()
        quiet = {
            name: node
            for name, node in before.items()
            if name not in claimed and name not in blind and record.nodes.get(name) is node
        }
        return self._sorted(quiet, seen, found)

    def _claimed(self) -> frozenset[str]:
        """Nodes that somebody is at."""
        return self.engine.claimed() | self.parts.gallery.claimed | self.parts.taken

    def _sorted(
        self, nodes: Mapping[str, Node], seen: Mapping[str, BatchNode], found: Sequence[Listed]
    ) -> World:
        """Instances of nodes, and strangers: nobody's, or not where those of their group are."""
        instances: dict[str, list[Instance]] = defaultdict(list)
        strangers = []
        for one, providers in found:
            if self._is_stranger(one, providers):
                strangers.append(one)
            else:
                instances[one.node].append(one)
        unused = [one for one in strangers if not _is_used(one, seen)]
        homes = {one.id: self._home(one, providers) for one, providers in found}
        return World(nodes, seen, instances, tuple(unused), homes)

    async def _instances(self) -> tuple[list[Listed], set[str]]:
        """All instances, each once, with who lists it; who does not answer leaves nodes unjudged.

        All are asked side by side, and not for long: one that is slow must not hold up others.
        """
        providers = self.parts.distinct_providers()
        answers = await asyncio.gather(*map(self._list, providers))
        listed: dict[str, Listed] = {}
        blind: set[str] = set()
        for provider, answer in zip(providers, answers, strict=True):
            if answer is None:
                blind |= self._nodes_of(provider)
            for one in answer or ():
                _, known = listed.get(one.id, (one, ()))
                listed[one.id] = one, (*known, provider)
        return list(listed.values()), blind

    async def _list(self, provider: Provider) -> Sequence[Instance] | None:
        what = f"provider of {', '.join(self._groups_of(provider)) or 'nothing'} away"
        try:
            async with asyncio.timeout(max(PATIENCE_S, self.parts.spec.timing.reconcile)):
                found = await provider.list(self.parts.spec.cluster)
        except CloudError as error:
            await self.say(what, str(error))
            return None
        except TimeoutError:
            await self.say(what, "it does not answer in time")
            return None
        await self.say(what, "")
        return found

    def _groups_of(self, provider: Provider) -> list[str]:
        return [key for key, one in self.parts.providers.items() if one is provider]

    def _nodes_of(self, provider: Provider) -> set[str]:
        theirs = frozenset(self._groups_of(provider))
        return {name for name, group in self.parts.spec.node_group.items() if group in theirs}

    def _is_stranger(self, one: Instance, providers: Sequence[Provider]) -> bool:
        """Of a name that is no node's, or of a node that left the file and is off; or elsewhere."""
        if one.state is InstanceState.DELETING or one.node in self.parts.gallery.builders:
            return False
        group = self.parts.spec.node_group.get(one.node)
        if group is not None:
            return self.parts.providers.get(group, self.parts.home) not in providers
        node = self.parts.record.nodes.get(one.node)
        return node is None or node.state is NodeState.OFF

    def _home(self, one: Instance, providers: Sequence[Provider]) -> Provider:
        """Who is asked to delete it."""
        group = self.parts.spec.node_group.get(one.node, "")
        right = self.parts.providers.get(group, self.parts.home)
        return right if right in providers else providers[0]


def _is_used(one: Instance, seen: Mapping[str, BatchNode]) -> bool:
    """Whether the batch system has it in service, whoever made it."""
    node = seen.get(one.node)
    return node is not None and node.registered and (node.busy or node.address == one.address)
