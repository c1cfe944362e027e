"""Starts nodes that should be up, and tries those again that could not start.

The reconciler calls it in each pass, for the holds also in maintenance: jobs start nodes then too.
"""

from collections.abc import Collection, Sequence

from springtide import repairs, triage
from springtide.drift import BY
from springtide.engine import Engine
from springtide.model import Kind, NodeState
from springtide.ports import Unavailable
from springtide.repairs import World
from springtide.steps import Parts
from springtide.triage import Batch, Drained


class Upkeep:
    """Of one cluster."""

    def __init__(self, parts: Parts, engine: Engine) -> None:
        self.parts = parts
        self.engine = engine

    async def keep_up(self, world: World) -> None:
        """Nodes that are to be always up and are not."""
        held = self.parts.holding.held_back(self.parts.spec)
        missing = [n for n in self._missing(world, self.parts.spec.groups) if n not in held]
        if missing:
            await self.engine.submit(Kind.RESUME, missing, asked_by=BY, reason="to be always up")

    def _missing(self, world: World, groups: Collection[str]) -> list[str]:
        known = self.parts.spec.node_group
        always = (name for name in self.parts.wanted.always_up if known[name] in groups)
        return [name for name in always if _is_off(world, name)]

    async def tend_holds(self, world: World, found: Collection[str]) -> None:
        """Groups that work again are told so; those whose time is over are tried with one node.

        `found` are nodes with a trouble, which prove nothing.
        """
        holding, spec = self.parts.holding, self.parts.spec
        nodes = world.nodes.values()
        well = (n for n in nodes if n.state is NodeState.READY and n.name not in found)
        await holding.proved(well, spec.timing.grace)
        await holding.forget()
        groups, names = holding.due(spec), holding.due_nodes(spec)
        if groups or names:
            wanted = await self._wanted()
            await self._try_groups(world, groups, wanted)
            await self._try_nodes(world, names, wanted)

    async def _wanted(self) -> frozenset[str]:
        """The groups that jobs wait for."""
        try:
            jobs = await self.parts.batch.jobs()
        except Unavailable:
            return frozenset(self.parts.spec.groups)
        return repairs.wanted_groups(jobs, self.parts.spec)

    async def _try_groups(
        self, world: World, groups: Sequence[str], wanted: Collection[str]
    ) -> None:
        for group in groups:
            if group in wanted or self._missing(world, {group}):
                await self._probe(world, self.parts.spec.names(group))
            else:
                await self.parts.holding.give_up_probing(self.parts.spec, group)

    async def _try_nodes(self, world: World, names: Sequence[str], wanted: Collection[str]) -> None:
        always = frozenset(self.parts.wanted.always_up)
        for name in names:
            if self.parts.spec.node_group[name] in wanted or name in always:
                await self._probe(world, [name])
            else:
                await self.parts.holding.open_node(name)

    async def _probe(self, world: World, names: Sequence[str]) -> None:
        """Try one of them, unless one is on its way."""
        off = [name for name in names if _is_off(world, name)]
        if off and not self.engine.at(Kind.RESUME).intersection(names):
            why = "to see whether it starts again"
            await self.engine.submit(
                Kind.RESUME, off[:1], asked_by=BY, reason=why, options={"probe": True}
            )


def _is_off(world: World, name: str) -> bool:
    """By record and batch system, and not by a person's wish."""
    node, seen = world.nodes.get(name), world.seen.get(name)
    off = triage.batch_view(seen) is Batch.OFF
    wished = triage.drained_view(seen) is Drained.PERSON
    return node is not None and node.state is NodeState.OFF and off and not wished
