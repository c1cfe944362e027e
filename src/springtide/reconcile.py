"""Compares the world with what should be, every now and then, and mends what has come apart.

The daemon runs one Reconciler. A pass reads the world once: one question to the batch system,
one list of each provider. What an operation is at is the operation's. Then the record follows
the world, and what is due is done, alike things together. A list that fails decides nothing.
"""

import asyncio
import traceback
from collections.abc import Iterable, Mapping, Sequence

from springtide import maintenance, repairs, service, triage
from springtide.drift import BY, Drift
from springtide.engine import Engine, Refused
from springtide.lookout import Lookout
from springtide.model import SITE, Kind, Move, NodeState, Operation
from springtide.nodeset import fold
from springtide.planner import Planner
from springtide.ports import ITSELF, Unavailable
from springtide.repairs import Finding, World
from springtide.steps import Parts
from springtide.triage import Drained, Repair
from springtide.upkeep import Upkeep

FIRST_S = 2.0


class Reconciler:
    """Looks, and has repaired."""

    def __init__(self, parts: Parts, engine: Engine) -> None:
        self.parts = parts
        self.engine = engine
        self._lookout = Lookout(parts, engine)
        self.findings: Mapping[str, Finding] = {}
        """What is wrong now, by node."""
        self.braked: tuple[str, ...] = ()
        """Nodes that a brake keeps from repair."""
        self._upkeep = Upkeep(parts, engine)
        self._drift = Drift(parts, engine, self._lookout)
        self._spent = repairs.Spent()
        self._strangers: dict[str, float] = {}
        """Since when instances are there that nobody knows."""
        self._tries = 0
        """How often in a row the batch system was to be started."""
        self._next_try_at = 0.0

    async def run(self) -> None:
        """For ever; whatever goes wrong, the next pass comes.

        The first waits a moment: who starts a daemon in order to deploy is to go first.
        """
        await asyncio.sleep(min(FIRST_S, self.parts.spec.timing.reconcile))
        while True:
            try:
                while await self.once():
                    pass
            except Refused:
                pass
            except Exception:
                self.parts.record.complain("reconcile broke", traceback.format_exc())
            await self._pause()

    async def _pause(self) -> None:
        """Until it is time again, or something is held or lifted."""
        try:
            async with asyncio.timeout(self.parts.spec.timing.reconcile):
                await self.parts.holding.changed.wait()
        except TimeoutError:
            pass
        self.parts.holding.changed.clear()

    async def ended(self, operation: Operation) -> None:
        """To be told of every operation that ended."""
        if self._drift.ended(operation):
            await self._drift.stop(operation)

    async def once(self) -> bool:
        """One pass; whether the record followed the world, so that another pass may find more."""
        parts = self.parts
        if parts.site is None or parts.stopped or SITE in self.engine.claimed():
            return False
        resting = await maintenance.read(parts.record.store) is not None
        if await self._stand_up(resting):
            return False
        world = await self._lookout.look()
        if world is None:
            return False
        now = parts.record.now()
        views = world.views()
        known = repairs.lasting(self.findings, world)
        self.findings = repairs.findings(views, known, parts.spec.timing, now)
        await self._report(resting)
        if resting:
            await self._start_for_jobs(world, now)
            return False
        return await self._act(world, now)

    # --- looking -------------------------------------------------------------------------------

    async def _stand_up(self, resting: bool) -> bool:
        """Have the batch system run again, if it is ours and does not; ever more seldom."""
        broken = await self.parts.batch.standing()
        await self._lookout.say("batch system down", broken)
        now = self.parts.record.now()
        if not broken:
            self._tries, self._next_try_at = 0, 0.0
        elif not resting and now >= self._next_try_at:
            self._tries += 1
            self._next_try_at = now + repairs.pause_s(self._tries)
            await self._deploy(broken)
        return bool(broken)

    async def _deploy(self, why: str) -> None:
        """As a person would: with it go jobs of nodes that died together with the batch system."""
        lost = await Planner(self.parts).lost()
        names = dict.fromkeys((*self.parts.wanted.always_up, *lost))
        options = {"lost": fold(lost)} if lost else {}
        await self.engine.submit(Kind.DEPLOY, names, asked_by=BY, reason=why, options=options)

    async def _report(self, resting: bool) -> None:
        """What people have to mend, once it has lasted; in maintenance, all that is wrong."""
        now = self.parts.record.now()
        told = repairs.due(self.findings.values(), now).get(Repair.REPORT, [])
        await self._lookout.say("needs a person", repairs.in_words(told))
        wrong = [one for one in self.findings.values() if one.rule.owner is triage.Owner.US]
        await self._lookout.say(
            "not repaired, for maintenance", repairs.in_words(wrong) if resting else ""
        )

    # --- acting --------------------------------------------------------------------------------

    async def _act(self, world: World, now: float) -> bool:
        todo = repairs.due(self.findings.values(), now)
        moved = await self._follow(world, todo)
        if moved:
            return True
        await self._upkeep.tend_holds(world, self.findings.keys())
        await self._call(world, todo)
        await self._delete(world, todo.get(Repair.PRUNE, []), now)
        await self._operate(world, todo)
        await self._upkeep.keep_up(world)
        await self._drift.replace(world, self.findings.keys())
        return False

    async def _start_for_jobs(self, world: World, now: float) -> None:
        """In maintenance jobs start nodes as ever: so what keeps them from it is tended to."""
        await self._upkeep.tend_holds(world, self.findings.keys())
        drained = repairs.due(self.findings.values(), now).get(Repair.UNDRAIN, [])
        off = [one for one in drained if one.view[0] is NodeState.OFF]
        await self._call(world, {Repair.UNDRAIN: off})

    async def _follow(self, world: World, todo: Mapping[Repair, Sequence[Finding]]) -> bool:
        """Passive moves: the record takes over what the world has."""
        nodes = world.nodes
        moves = [
            nodes[one.node].to(NodeState.FAILED, reason=one.rule.why)
            for one in todo.get(Repair.FORGET, ())
        ]
        moves += [nodes[one.node].to(NodeState.READY) for one in todo.get(Repair.RETURN, ())]
        moves += self._adoptions(world, todo.get(Repair.ADOPT, ()))
        begun = {move.before.name for move in moves}
        moves += [move for move in repairs.learnt(world) if move.before.name not in begun]
        return bool(await self.parts.record.move(moves, "record follows the world"))

    def _adoptions(self, world: World, found: Iterable[Finding]) -> list[Move]:
        moves = (
            service.adoption(world.nodes[n], world.seen[n], world.instances[n])
            for n in (one.node for one in found)
        )
        return [move for move in moves if move is not None]

    async def _call(self, world: World, todo: Mapping[Repair, Sequence[Finding]]) -> None:
        """What takes one call to the batch system for all."""
        batch = self.parts.batch
        released = [one.node for one in todo.get(Repair.RELEASE, ())]
        held = self.parts.holding.held_back(self.parts.spec)
        drained = [one for one in todo.get(Repair.UNDRAIN, ()) if one.node not in held]
        ours = [one.node for one in drained if one.view[2] is Drained.US]
        faults = [one.node for one in drained if one.view[2] is Drained.SLURM]
        try:
            for (reason, owner), names in repairs.lost_drains(world, self.parts.spec).items():
                await batch.drain(names, reason, owner)
            if released:
                await batch.release(released)
            if ours:
                await batch.undrain(ours)
            if faults:
                await batch.undrain(faults, ITSELF)
            if elsewhere := repairs.astray(world):
                await batch.set_addresses(elsewhere)
                await self.parts.record.note("address told", nodes=elsewhere)
            await self._hold_back(world, held)
        except Unavailable as error:
            await self._lookout.say("batch system away", str(error))
            return
        told = {one.node: one.rule.why for one in (*todo.get(Repair.RELEASE, ()), *drained)}
        if told:
            await self.parts.record.note("given to the batch system again", nodes=told)

    async def _hold_back(self, world: World, held: Mapping[str, str]) -> None:
        """Nodes that are off and could not be started take no jobs: those can go elsewhere."""
        doomed = [
            name
            for name in held
            if name in world.nodes
            and world.nodes[name].state is NodeState.OFF
            and triage.batch_view(world.seen.get(name)) is triage.Batch.OFF
            and not world.seen[name].drained
            and not triage.has_lost_drain(world.seen[name])
        ]
        for why in dict.fromkeys(held[name] for name in doomed):
            names = [name for name in doomed if held[name] == why]
            await self.parts.batch.drain(names, why)
            await self.parts.record.note("held back", nodes=dict.fromkeys(names, why))

    async def _delete(self, world: World, twins: Iterable[Finding], now: float) -> None:
        """Instances that nobody needs: until they are gone, each pass asks again."""
        grace_s = self.parts.spec.timing.grace
        self._strangers = {one.id: self._strangers.get(one.id, now) for one in world.strangers}
        doomed = [one for one in world.strangers if self._strangers[one.id] + grace_s <= now]
        for found in twins:
            node = world.nodes[found.node]
            doomed += repairs.extras(node, world.seen.get(node.name), world.instances[node.name])
        few = doomed[: self._left(now)]
        self._spent.add(now, len(few))
        for provider in self.parts.distinct_providers():
            if theirs := [one for one in few if world.homes[one.id] is provider]:
                refused = await provider.delete(theirs)
                told = {one.node: str(refused.get(one.id, one.id)) for one in theirs}
                await self.parts.record.note("unneeded instance deleted", nodes=told)

    def _left(self, now: float) -> int:
        """How many nodes that run may be given up still, within the time between two passes."""
        nodes = self.parts.record.nodes.values()
        most = repairs.allowance(sum(node.state is NodeState.READY for node in nodes))
        return self._spent.left(most, now, self.parts.spec.timing.reconcile)

    async def _operate(self, world: World, todo: Mapping[Repair, Sequence[Finding]]) -> None:
        """One operation for all that are repaired alike, as far as the brakes allow."""
        doomed = [one for r, found in todo.items() if repairs.gives_up(r) for one in found]
        held = self.parts.holding.held_back(self.parts.spec)
        now = self.parts.record.now()
        hopeful = [
            one for one in doomed if not (one.rule.name == triage.UNFIT and one.node in held)
        ]
        braked = repairs.brake(hopeful, self._left(now))
        self._spent.add(now, repairs.at_risk(braked.allowed))
        self.braked = tuple(one.node for one in braked.kept)
        await self._lookout.say("brake", repairs.braked_words(braked))
        for repair, kind in _KINDS.items():
            allowed = [one for one in braked.allowed if one.rule.repair is repair]
            await self._submit(kind, allowed if repairs.gives_up(repair) else todo.get(repair, ()))

    async def _submit(self, kind: Kind, found: Sequence[Finding]) -> None:
        if not found:
            return
        names = [one.node for one in found]
        await self.engine.submit(kind, names, asked_by=BY, reason=repairs.in_words(found))


_KINDS: Mapping[Repair, Kind] = {
    Repair.RESUME: Kind.RESUME,
    Repair.SUSPEND: Kind.SUSPEND,
    Repair.REPAIR: Kind.REPAIR,
}
