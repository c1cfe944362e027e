"""Nodes that are not as the file says are replaced by themselves, if it says so: few at a time.

The reconciler calls it at the end of each pass. It stops when a replacement did not come back, or
changed nothing: what broke it would break the rest too. Another file lets it go on.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from springtide import repairs, service, triage
from springtide.engine import Engine
from springtide.lookout import Lookout
from springtide.model import Kind, NodeState, Operation
from springtide.nodeset import fold
from springtide.repairs import World
from springtide.spec.fingerprint import fingerprint
from springtide.steps import Parts
from springtide.triage import Drained

BY = "reconcile"
FACT = "drift stopped"
AS_ONE: Mapping[Kind, Mapping[str, Any]] = {
    Kind.REBUILD: {"batch": 0, "pause": 0.0},
    Kind.UPDATE: {},
}
"""How drifted nodes are replaced: they are few enough to go together."""

Drifted = dict[str, tuple[Kind, str]]
"""How a node is mended, and in what it differs."""


class Drift:
    """Replaces within the budget."""

    def __init__(self, parts: Parts, engine: Engine, lookout: Lookout) -> None:
        self.parts = parts
        self.engine = engine
        self._lookout = lookout
        self._replaced: dict[str, str] = {}
        """In what nodes differed that were replaced, by this file."""
        self._file = ""

    def ended(self, operation: Operation) -> bool:
        """Whether a replacement failed, so that no further one may begin."""
        ours = operation.asked_by == BY and operation.kind in AS_ONE
        return ours and bool(operation.fallen)

    def _options(self, kind: Kind) -> Mapping[str, Any]:
        how = {"via": self.parts.rebuilds_via} if kind is Kind.REBUILD else {}
        return {**AS_ONE[kind], **how}

    async def stop(self, operation: Operation) -> None:
        await self.parts.record.store.put(FACT, fingerprint(self.parts.wanted))
        why = f"{fold(operation.fallen)} did not come back as it should (operation {operation.id})"
        await self._lookout.say("replacing drifted nodes stopped", why)

    async def replace(self, world: World, found: Collection[str]) -> None:
        """What may be replaced now; `found` are nodes with troubles of another kind."""
        drift, record = self.parts.spec.drift, self.parts.record
        clock = datetime.fromtimestamp(record.now()).astimezone()
        if not drift.replace or not repairs.within(drift.hours, clock) or await self._is_stopped():
            return
        drifted = self._news(self._drifted(world, found))
        busy = {name for name, seen in world.seen.items() if seen.busy}
        up = len(record.of(self.parts.spec.managed, NodeState.READY, NodeState.DRAINING))
        under_way = self.engine.under_way(*AS_ONE)
        chosen = repairs.replaceable(drifted, busy, drift.at_once, up, under_way)
        for kind in AS_ONE:
            await self._submit(kind, {n: drifted[n][1] for n in chosen if drifted[n][0] is kind})

    async def _is_stopped(self) -> bool:
        file = fingerprint(self.parts.wanted)
        if file != self._file:
            self._file, self._replaced = file, {}
        return await self.parts.record.store.get(FACT) == file

    async def _submit(self, kind: Kind, reasons: Mapping[str, str]) -> None:
        if reasons:
            self._replaced |= reasons
            why = "; ".join(dict.fromkeys(reasons.values()))
            await self.engine.submit(
                kind, reasons, asked_by=BY, reason=f"drift: {why}", options=self._options(kind)
            )

    def _news(self, drifted: Drifted) -> Drifted:
        """Not what was replaced and differs as before: a provider may call things otherwise."""
        return {n: how for n, how in drifted.items() if self._replaced.get(n) != how[1]}

    def _drifted(self, world: World, found: Collection[str]) -> Drifted:
        """Nodes in service that are not as the file says; not those that a person drained."""
        parts, held = self.parts, self.parts.holding.held_groups(self.parts.spec)
        serving = [
            node
            for name, node in world.nodes.items()
            if node.state is NodeState.READY
            and name not in found
            and node.group not in held
            and triage.drained_view(world.seen.get(name)) is Drained.NOBODY
        ]
        instances = [one for node in serving for one in world.instances.get(node.name, ())]
        configs = {group: parts.config_of(group) for group in parts.spec.groups}
        stale = service.unconfigured(serving, configs)
        outdated = service.outdated(parts.spec, serving, instances, parts.wanted_images())
        mended = {name: (Kind.UPDATE, why) for name, why in stale.items()}
        return mended | {name: (Kind.REBUILD, why) for name, why in outdated.items()}
