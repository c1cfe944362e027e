"""Starts nodes that should be up, lets go of those that should not, and tries again what failed.

The reconciler calls it in each pass, for the holds also in maintenance: jobs start nodes then too.
"""

from collections.abc import Collection, Mapping, Sequence

from springtide import bounds, repairs, triage
from springtide.batch.polled_look import refusals
from springtide.bounds import Bounds, Scene
from springtide.calendar import limits
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
        self._idle_since: dict[str, float] = {}
        """Nodes that the calendar keeps up at other times."""

    async def keep_up(self, world: World) -> None:
        """Nodes that are to be up, always or by the calendar, and are not."""
        held, always = self.held_back(world), frozenset(self.parts.wanted.always_up)
        missing = [n for n in self._missing(world, self.parts.spec.groups) if n not in held]
        reasons = {True: "to be always up", False: "to be up by the calendar"}
        for is_always, why in reasons.items():
            if names := [name for name in missing if (name in always) is is_always]:
                await self.engine.submit(self._kind(names), names, asked_by=BY, reason=why)

    # --- the calendar --------------------------------------------------------------------------

    def held_back(self, world: World) -> Mapping[str, str]:
        """Nodes that are not to be started now, because they could not or by the calendar."""
        return {**self._bounds(world).held, **self.parts.holding.held_back(self.parts.spec)}

    def _bounds(self, world: World) -> Bounds:
        parts, now = self.parts, self.parts.clock
        if not parts.spec.calendar.entries:
            return Bounds()
        stuck = parts.holding.held_back(parts.spec)
        known = limits(parts.spec, now)
        scene = Scene(parts.spec, known, parts.record.nodes, world.seen, stuck)
        return bounds.bounds(scene, now)

    async def let_go(self, world: World) -> None:
        """Nodes that are too many by the calendar, and idle ones that it needs no more.

        The batch system itself lets none of the latter go: it is told to leave them alone.
        """
        found, now = self._bounds(world), self.parts.record.now()
        known = {name: self._idle_since.get(name, now) for name in found.spare}
        self._idle_since = {n: max(at, world.seen[n].busy_at or at) for n, at in known.items()}
        idle_s = self.parts.spec.timing.idle
        idle = [name for name, since in self._idle_since.items() if now - since >= idle_s]
        free = [n for n in dict.fromkeys((*found.surplus, *idle)) if n in world.nodes]
        batch = self.parts.batch
        # What is refused is found again by the next pass.
        refused = await refusals(free, batch.power_down, batch.nodes)
        if told := {name: "by the calendar" for name in free if name not in refused}:
            await self.parts.record.note("suspend asked of the batch system", nodes=told)

    def _kind(self, names: Collection[str]) -> Kind:
        """What is always up is configured before it serves, if the file wants that."""
        always = frozenset(self.parts.wanted.always_up)
        configured = self.parts.software is not None and always.issuperset(names)
        return Kind.ENLARGE if configured else Kind.RESUME

    def _missing(self, world: World, groups: Collection[str]) -> list[str]:
        known = self.parts.spec.node_group
        theirs = (name for name in self._wanted_up() if known[name] in groups)
        return [name for name in theirs if _is_off(world, name)]

    def _wanted_up(self) -> Sequence[str]:
        """Of a polled batch system the poller starts what the calendar wants besides."""
        up = self.parts.kept_up()
        if not self.parts.spec.polled:
            return up
        return [name for name in self.parts.wanted.always_up if name in up]

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
        up = frozenset(self._wanted_up())
        for name in names:
            if self.parts.spec.node_group[name] in wanted or name in up:
                await self._probe(world, [name])
            else:
                await self.parts.holding.open_node(name)

    async def _probe(self, world: World, names: Sequence[str]) -> None:
        """Try one of them, unless one is on its way."""
        off = [name for name in names if _is_off(world, name)]
        if off and not self.engine.at(Kind.RESUME, Kind.ENLARGE).intersection(names):
            kind, why = self._kind(off[:1]), "to see whether it starts again"
            await self.engine.submit(
                kind, off[:1], asked_by=BY, reason=why, options={"probe": True}
            )


def _is_off(world: World, name: str) -> bool:
    """By record and batch system, and not by a person's wish."""
    node, seen = world.nodes.get(name), world.seen.get(name)
    off = triage.batch_view(seen) is Batch.OFF
    wished = triage.drained_view(seen) is Drained.PERSON
    return node is not None and node.state is NodeState.OFF and off and not wished
