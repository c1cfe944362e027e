"""Compares the world with what should be, every now and then, and mends what has come apart.

The daemon runs one Reconciler. A pass reads the world once: one question to the batch system,
one list of each provider. What an operation is at is the operation's. Then the record follows
the world, and what is due is done, alike things together. A list that fails decides nothing.
"""

import asyncio
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from springtide import maintenance, repairs, service, triage
from springtide.calendar import limits
from springtide.corrections import REFUSED, Corrections
from springtide.drift import BY, Drift
from springtide.engine import Engine, Refused
from springtide.lookout import Lookout
from springtide.model import SITE, Kind, Move, NodeState, Operation
from springtide.nodeset import fold
from springtide.planner import Planner
from springtide.ports import CloudError, Instance, Site, Unavailable
from springtide.repairs import Finding, World
from springtide.steps import Parts
from springtide.steps.inventory import known_addresses
from springtide.triage import Repair
from springtide.upkeep import Upkeep

FIRST_S = 2.0
NOT_SERVED = "names or files not served"


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
        self._corrections = Corrections(parts, engine, self._upkeep)
        self._drift = Drift(parts, engine, self._lookout)
        self._spent = repairs.Spent()
        self._strangers: dict[str, float] = {}
        """Since when instances are there that nobody knows."""
        self._unneeded: dict[str, bool] = {}
        """Instances whose deletion was asked for, and whether their provider takes that."""
        self._tried: frozenset[str] = frozenset()
        """Nodes that the last pass was to repair: if that was in vain, others come first."""
        self._tries = 0
        """How often in a row the batch system was to be started."""
        self._next_try_at = 0.0

    @property
    def troubles(self) -> dict[str, str]:
        """What nodes need of this machine and do not get, and what the batch system does not do
        for them, as of the last pass."""
        refused = self._corrections.in_words
        return self._lookout.standing(NOT_SERVED) | ({REFUSED: refused} if refused else {})

    async def run(self) -> None:
        """For ever; whatever goes wrong, the next pass comes.

        The first waits a moment: who starts a daemon in order to deploy is to go first.
        """
        await asyncio.sleep(min(FIRST_S, self.parts.spec.timing.reconcile))
        while True:
            begun = self.parts.clock
            try:
                while await self.once():
                    pass
            except Refused:
                pass
            except Exception:
                self.parts.record.complain("reconcile broke", traceback.format_exc())
            await self._pause(begun)

    async def _pause(self, begun: datetime) -> None:
        """Until it is time again, the calendar changes, something is held or lifted, or there is
        another file."""
        try:
            async with asyncio.timeout(self._rest_s(begun)):
                await self.parts.holding.changed.wait()
        except TimeoutError:
            pass
        self.parts.holding.changed.clear()

    def _rest_s(self, begun: datetime) -> float:
        """How long the pause after a pass may be: what changed while that went on is due now."""
        spec, now = self.parts.spec, self.parts.clock
        turns = [one.until for one in limits(spec, begun).values() if one.until is not None]
        return min([spec.timing.reconcile, *((turn - now).total_seconds() for turn in turns)])

    async def ended(self, operation: Operation) -> None:
        """To be told of every operation that ended; while one has the site, there is no pass."""
        if SITE in operation.claims:
            self.parts.holding.changed.set()
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
        with suppress(Unavailable):
            await parts.batch.reopen()  # a start may have been cut off before it could
        await self._lookout.say(NOT_SERVED, await self._tend(parts.site))
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

    async def _tend(self, site: Site) -> str:
        """Have what nodes are served beside run again; answers why it does not."""
        try:
            await self.parts.configurator.tend(site, known_addresses(self.parts))
        except (Unavailable, OSError) as error:
            return str(error)
        return ""

    async def _deploy(self, why: str) -> None:
        """As a person would: with it go jobs of nodes that died together with the batch system."""
        lost = await Planner(self.parts).lost()
        names = dict.fromkeys((*self.parts.kept_up(), *lost))
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
        await self._corrections.make(world, todo)
        await self._delete(world, todo.get(Repair.PRUNE, []), now)
        await self._operate(world, todo)
        await self._upkeep.keep_up(world)
        await self._upkeep.let_go(world)
        await self._drift.replace(world, self.findings.keys())
        return False

    async def _start_for_jobs(self, world: World, now: float) -> None:
        """In maintenance jobs start nodes as ever: so what keeps them from it is tended to."""
        await self._upkeep.tend_holds(world, self.findings.keys())
        drained = repairs.due(self.findings.values(), now).get(Repair.UNDRAIN, [])
        off = [one for one in drained if one.view[0] is NodeState.OFF]
        await self._corrections.make(world, {Repair.UNDRAIN: off})

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

    async def _delete(self, world: World, twins: Iterable[Finding], now: float) -> None:
        """Instances that nobody needs: until they are gone, each pass asks again."""
        grace_s = self.parts.spec.timing.grace
        self._strangers = {one.id: self._strangers.get(one.id, now) for one in world.strangers}
        doomed = [one for one in world.strangers if self._strangers[one.id] + grace_s <= now]
        for found in twins:
            node = world.nodes[found.node]
            doomed += repairs.extras(node, world.seen.get(node.name), world.instances[node.name])
        known = [one for one in doomed if one.id in self._unneeded]
        few = [one for one in doomed if one.id not in self._unneeded][: self._left(now)]
        self._spent.add(now, len(few))
        await self._ask_deletion(world, [*known, *few])

    async def _ask_deletion(self, world: World, doomed: Sequence[Instance]) -> None:
        """Those that the brakes allowed once cost nothing more, and keep no others from it."""
        before, refused = self._unneeded, dict[str, CloudError]()
        for provider in self.parts.distinct_providers():
            if theirs := [one for one in doomed if world.homes[one.id] is provider]:
                refused |= await provider.delete(theirs)
        self._unneeded = {one.id: one.id not in refused for one in doomed}
        taken = {n.node: n.id for n in doomed if self._unneeded[n.id] and not before.get(n.id)}
        if taken:
            await self.parts.record.note("unneeded instance deleted", nodes=taken)
        kept = (f"{n.node} ({n.id}): {refused[n.id]}" for n in doomed if n.id in refused)
        await self._lookout.say("unneeded instance not deleted", "; ".join(kept))

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
        hopeful.sort(key=lambda one: one.node in self._tried)
        braked = repairs.brake(hopeful, self._left(now))
        self._tried = frozenset(one.node for one in braked.allowed)
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
