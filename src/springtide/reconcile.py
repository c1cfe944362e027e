"""Compares the world with what should be, every now and then, and mends what has come apart.

The daemon runs one Reconciler. A pass reads the world once: one question to the batch system,
one list of each provider. What an operation is at is the operation's. Then the record follows
the world, and what is due is done, alike things together. A list that fails decides nothing.
"""

import asyncio
import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from springtide import maintenance, repairs, service, triage
from springtide.engine import Engine, Refused
from springtide.model import SITE, Kind, Move, NodeState
from springtide.nodeset import fold
from springtide.planner import Planner
from springtide.ports import ITSELF, CloudError, Instance, InstanceState, Provider, Unavailable
from springtide.repairs import Finding, World
from springtide.steps import Parts
from springtide.triage import Drained, Repair

BY = "reconcile"
"""Who asks for the operations of a pass."""
RESTLESS = (NodeState.READY, NodeState.DRAINING)


class Reconciler:
    """Looks, and has repaired."""

    def __init__(self, parts: Parts, engine: Engine) -> None:
        self.parts = parts
        self.engine = engine
        self.findings: Mapping[str, Finding] = {}
        """What is wrong now, by node."""
        self.braked: tuple[str, ...] = ()
        """Nodes that a brake keeps from repair."""
        self._strangers: dict[str, float] = {}
        """Since when instances are there that nobody knows."""
        self._said: dict[str, str] = {}

    async def run(self) -> None:
        """For ever; whatever goes wrong, the next pass comes."""
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

    async def once(self) -> bool:
        """One pass; whether the record followed the world, so that another pass may find more."""
        parts = self.parts
        if parts.site is None or parts.stopped or SITE in self.engine.claimed():
            return False
        resting = await maintenance.read(parts.record.store) is not None
        if await self._stand_up(resting):
            return False
        world = await self._look()
        if world is None:
            return False
        now = parts.record.now()
        views = world.views()
        self.findings = repairs.findings(views, self.findings, parts.spec.timing, now)
        await self._report()
        if resting:
            return False
        return await self._act(world, now)

    # --- looking -------------------------------------------------------------------------------

    async def _stand_up(self, resting: bool) -> bool:
        """Have the batch system run again, if it is ours and does not."""
        broken = await self.parts.batch.standing()
        await self._say("batch system down", broken)
        if broken and not resting:
            lost = await Planner(self.parts).lost()
            names = dict.fromkeys((*self.parts.wanted.always_up, *lost))
            options = {"lost": fold(lost)} if lost else {}
            await self.engine.submit(
                Kind.DEPLOY, names, asked_by=BY, reason=broken, options=options
            )
        return bool(broken)

    async def _look(self) -> World | None:
        """The world, as far as it is known and nobody changed it meanwhile."""
        record = self.parts.record
        before = {name: record.nodes[name] for name in self.parts.spec.managed}
        claimed = self.engine.claimed()
        try:
            seen = await self.parts.batch.nodes()
        except Unavailable as error:
            await self._say("batch system away", str(error))
            return None
        await self._say("batch system away", "")
        listed, blind = await self._instances()
        claimed |= self.engine.claimed()
        quiet = {
            name: node
            for name, node in before.items()
            if name not in claimed and name not in blind and record.nodes.get(name) is node
        }
        return World(quiet, seen, listed, self._unknown(listed))

    async def _instances(self) -> tuple[dict[str, list[Instance]], set[str]]:
        """The instances of each name; nodes whose provider does not answer are not judged."""
        listed: dict[str, list[Instance]] = {}
        blind: set[str] = set()
        for provider in self.parts.distinct_providers():
            try:
                for one in await provider.list(self.parts.spec.cluster):
                    listed.setdefault(one.node, []).append(one)
                await self._say(f"provider away {id(provider)}", "")
            except CloudError as error:
                blind |= self._nodes_of(provider)
                await self._say(f"provider away {id(provider)}", str(error))
        return listed, blind

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

    # --- telling -------------------------------------------------------------------------------

    async def _say(self, what: str, detail: str) -> None:
        """As an event, when it is news; an empty detail says that it is over."""
        if self._said.get(what, "") == detail:
            return
        self._said[what] = detail
        words = what.rpartition(" ")[0] if what[-1].isdigit() else what
        await self.parts.record.note(words if detail else f"{words} no more", detail=detail)

    async def _report(self) -> None:
        """What people have to mend, once it has lasted."""
        now = self.parts.record.now()
        told = repairs.due(self.findings.values(), now).get(Repair.REPORT, [])
        reasons = repairs.because(told)
        words = "; ".join(f"{fold(names)}: {why}" for why, names in reasons.items())
        await self._say("needs a person", words)

    # --- acting --------------------------------------------------------------------------------

    async def _act(self, world: World, now: float) -> bool:
        todo = repairs.due(self.findings.values(), now)
        moved = await self._follow(world, todo)
        if moved:
            return True
        await self._call(world, todo)
        await self._delete(world, todo.get(Repair.PRUNE, []), now)
        await self._operate(world, todo)
        await self._keep_up(world)
        await self._replace_drifted(world)
        await self.parts.holding.forget()
        return False

    async def _follow(self, world: World, todo: Mapping[Repair, Sequence[Finding]]) -> bool:
        """Passive moves: the record takes over what the world has."""
        nodes = world.nodes
        moves = [
            nodes[one.node].to(NodeState.FAILED, reason=one.rule.why)
            for one in todo.get(Repair.FORGET, ())
        ]
        moves += [nodes[one.node].to(NodeState.READY) for one in todo.get(Repair.RETURN, ())]
        moves += self._adoptions(world, todo.get(Repair.ADOPT, ()))
        return bool(await self.parts.record.move(moves, "record follows the world"))

    def _adoptions(self, world: World, found: Iterable[Finding]) -> list[Move]:
        moves = (
            repairs.adoption(world.nodes[n], world.seen[n], world.instances[n])
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
            if released:
                await batch.release(released)
            if ours:
                await batch.undrain(ours)
            if faults:
                await batch.undrain(faults, ITSELF)
            await self._hold_back(world, held)
        except Unavailable as error:
            await self._say("batch system away", str(error))
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
        ]
        for why in dict.fromkeys(held[name] for name in doomed):
            names = [name for name in doomed if held[name] == why]
            await self.parts.batch.drain(names, why)
            await self.parts.record.note("held back", nodes=dict.fromkeys(names, why))

    async def _delete(self, world: World, twins: Iterable[Finding], now: float) -> None:
        """Instances that nobody needs: until they are gone, each pass asks again."""
        grace_s = self.parts.spec.timing.grace
        known = {one.id: self._strangers.get(one.id, now) for one in world.strangers}
        self._strangers = known
        doomed = [one for one in world.strangers if known[one.id] + grace_s <= now]
        for found in twins:
            node = world.nodes[found.node]
            doomed += repairs.extras(node, world.seen.get(node.name), world.instances[node.name])
        for provider in self.parts.distinct_providers():
            theirs = [one for one in doomed if self._provider(one.node) is provider]
            if theirs:
                refused = await provider.delete(theirs)
                told = {one.node: str(refused.get(one.id, one.id)) for one in theirs}
                await self.parts.record.note("unneeded instance deleted", nodes=told)

    def _provider(self, name: str) -> Provider:
        node = self.parts.record.nodes.get(name)
        return self.parts.providers.get(node.group if node else "", self.parts.home)

    async def _operate(self, world: World, todo: Mapping[Repair, Sequence[Finding]]) -> None:
        """One operation for all that are repaired alike, as far as the brakes allow."""
        doomed = [one for r, found in todo.items() if repairs.gives_up(r) for one in found]
        running = sum(node.state is NodeState.READY for node in self.parts.record.nodes.values())
        braked = repairs.brake(doomed, running)
        self.braked = tuple(one.node for one in braked.kept)
        detail = (
            f"{fold(self.braked)}: too many at once, the next passes go on" if braked.kept else ""
        )
        await self._say("brake", detail)
        for repair, kind in _KINDS.items():
            found = [one for one in braked.allowed if one.rule.repair is repair]
            await self._submit(
                kind, found or todo.get(repair, ()) if kind is Kind.RESUME else found
            )

    async def _submit(self, kind: Kind, found: Sequence[Finding]) -> None:
        if not found:
            return
        reasons = repairs.because(found)
        why = "; ".join(f"{fold(names)}: {words}" for words, names in reasons.items())
        names = [one.node for one in found]
        await self.engine.submit(kind, names, asked_by=BY, reason=why)

    async def _keep_up(self, world: World) -> None:
        """Nodes that are to be always up and are not."""
        held = self.parts.holding.held_back(self.parts.spec)
        missing = [
            name
            for name in self.parts.wanted.always_up
            if name in world.nodes
            and name not in held
            and world.nodes[name].state is NodeState.OFF
            and triage.batch_view(world.seen.get(name)) is triage.Batch.OFF
        ]
        if missing:
            await self.engine.submit(Kind.RESUME, missing, asked_by=BY, reason="to be always up")

    async def _replace_drifted(self, world: World) -> None:
        """What is not as the file says is made anew, a few at a time, in the hours for it."""
        drift = self.parts.spec.drift
        if not drift.replace or not repairs.within(drift.hours, datetime.now().astimezone()):
            return
        serving = [
            node
            for name, node in world.nodes.items()
            if node.state is NodeState.READY and name not in self.findings
        ]
        instances = [one for node in serving for one in world.instances.get(node.name, ())]
        found = service.outdated(self.parts.spec, serving, instances)
        busy = {name for name, seen in world.seen.items() if seen.busy}
        up = len(self.parts.record.of(self.parts.spec.managed, *RESTLESS))
        under_way = len(self.engine.at(Kind.REBUILD, Kind.UPDATE))
        chosen = repairs.replaceable(found, busy, drift.at_once, up, under_way)
        if chosen:
            why = "; ".join(dict.fromkeys(found[name] for name in chosen))
            options = {"via": "reboot", "batch": len(chosen), "pause": 0.0}
            await self.engine.submit(
                Kind.REBUILD, chosen, asked_by=BY, reason=f"drift: {why}", options=options
            )


_KINDS: Mapping[Repair, Kind] = {
    Repair.RESUME: Kind.RESUME,
    Repair.SUSPEND: Kind.SUSPEND,
    Repair.REPAIR: Kind.REPAIR,
}
