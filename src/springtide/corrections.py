"""Has the batch system put right what it has wrong of nodes that no operation is at.

The reconciler calls it in each pass. Each thing takes one call for all nodes, and stands by itself:
what is refused for one node is told of that node, and keeps nothing else from being done and told.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from springtide import bounds, repairs, triage
from springtide.batch.polled_look import Change, in_words, refusals
from springtide.engine import Engine
from springtide.model import NodeState
from springtide.ports import ITSELF, BatchNode
from springtide.repairs import Finding, World
from springtide.steps import Parts, unready
from springtide.triage import Batch, Drained, Repair
from springtide.upkeep import Upkeep

REFUSED = "refused by the batch system"
Todo = Mapping[Repair, Sequence[Finding]]


class Corrections:
    """Of one cluster."""

    def __init__(self, parts: Parts, engine: Engine, upkeep: Upkeep) -> None:
        self.parts = parts
        self.engine = engine
        self._upkeep = upkeep
        self._refused: dict[str, str] = {}
        """What the batch system did not do in the last pass, and why, by node."""
        self.lasting: Mapping[str, str] = {}
        """The same, of what it refused twice: that was told."""

    async def make(self, world: World, todo: Todo) -> None:
        """All that are due now, before anything is done that takes an operation."""
        before, self._refused = self._refused, {}
        held = self._upkeep.held_back(world)
        kept = self.engine.claimed().union(held)
        await self._drain_again(world)
        await self._have("undrain", repairs.forgotten_drains(world), self._open_up)
        closed = await self._hold_back(world, held)
        await self._give(todo, kept, closed)
        await self._tell_addresses(world)
        await self._complain(before)

    @property
    def in_words(self) -> str:
        """What lasts, and what to do about it; empty if all was done."""
        do = "the batch system answers, so see in its log why; each pass tries again"
        return f"{in_words(self.lasting)}; {do}" if self.lasting else ""

    # --- nodes that are not to take jobs -------------------------------------------------------

    async def _drain_again(self, world: World) -> None:
        for (reason, owner), names in repairs.lost_drains(world, self.parts.spec).items():
            drain = partial(self.parts.batch.drain, reason=reason, by=owner)
            await self._have("drain", names, drain)

    async def _hold_back(self, world: World, held: Mapping[str, str]) -> list[str]:
        """Nodes that are off and are not to be started take no jobs: those can go elsewhere.

        Answers those that took some until now, and perhaps still do.
        """
        doomed = [
            name
            for name in held
            if name in world.nodes
            and world.nodes[name].state is NodeState.OFF
            and _may_be_closed(world.seen.get(name), held[name])
            and not triage.has_lost_drain(world.seen[name])
        ]
        for why in dict.fromkeys(held[name] for name in doomed):
            names = [name for name in doomed if held[name] == why]
            done = await self._have("drain", names, partial(self.parts.batch.drain, reason=why))
            await self._note("held back", dict.fromkeys(done, why))
        return [name for name in doomed if not world.seen[name].drained]

    # --- nodes that may take some again --------------------------------------------------------

    async def _open_up(self, names: Sequence[str]) -> None:
        """Tried once: the next pass comes."""
        await unready.open_up(self.parts, names, 0)

    async def _give(self, todo: Todo, kept: Collection[str], closed: Collection[str]) -> None:
        """What leaves is released when it is open."""
        batch, let_go = self.parts.batch, todo.get(Repair.RELEASE, ())
        drained = [one for one in todo.get(Repair.UNDRAIN, ()) if one.node not in kept]
        ours = [one.node for one in drained if one.view[2] is Drained.US]
        faults = [one.node for one in drained if one.view[2] is Drained.SLURM]
        opened = await self._have("undrain", self._beside(ours, closed), batch.undrain)
        opened += await self._have("undrain", faults, partial(batch.undrain, by=ITSELF))
        leaving = [o for o in drained if o.node in opened and o.view[1] is Batch.LEAVING]
        gone = [one.node for one in (*let_go, *leaving)]
        stuck = frozenset(gone).difference(await self._have("release", gone, batch.release))
        given = (*let_go, *(one for one in drained if one.node in opened))
        told = {one.node: one.rule.why for one in given if one.node not in stuck}
        await self._note("given to the batch system again", told)

    def _beside(self, names: Iterable[str], closed: Iterable[str]) -> list[str]:
        """Nodes in whose group none was closed just now: such a one may have been asked for before
        that, and then there would be one too many. The next pass knows."""
        known = self.parts.spec.node_group
        groups = {known.get(name) for name in closed}
        return [name for name in names if known.get(name) not in groups]

    # --- the rest ------------------------------------------------------------------------------

    async def _tell_addresses(self, world: World) -> None:
        elsewhere = repairs.astray(world)

        async def tell(names: Sequence[str]) -> None:
            await self.parts.batch.set_addresses({name: elsewhere[name] for name in names})

        done = await self._have("set address", list(elsewhere), tell)
        await self._note("address told", {name: elsewhere[name] for name in done})

    async def _have(self, what: str, names: Sequence[str], call: Change) -> list[str]:
        """Those for which the batch system did it."""
        refused = await refusals(names, call, self.parts.batch.nodes)
        self._refused |= {name: f"{what}: {why}" for name, why in refused.items()}
        return [name for name in names if name not in refused]

    async def _note(self, what: str, nodes: Mapping[str, str]) -> None:
        if nodes:
            await self.parts.record.note(what, nodes=nodes)

    async def _complain(self, before: Collection[str]) -> None:
        """Of what was refused twice, once; a batch system that went away is told of by others."""
        lasting = {name: why for name, why in self._refused.items() if name in before}
        news = {name: why for name, why in lasting.items() if self.lasting.get(name) != why}
        self.lasting = lasting
        await self._note(REFUSED, news)


def _may_be_closed(seen: BatchNode | None, why: str) -> bool:
    """Whether a node that is off takes jobs, or does not for a reason that is another by now."""
    if seen is not None and seen.drained:
        return bounds.is_old(seen, why) and triage.batch_view(seen) in _OFF
    return triage.batch_view(seen) is Batch.OFF


_OFF = frozenset({Batch.OFF, Batch.LEAVING})
