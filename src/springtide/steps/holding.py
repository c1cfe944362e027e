"""What launches are held for a while, remembered over restarts; policy is in `holds`.

Steps tell it what went wrong and what went well; they ask it before they launch, and so does
the reconciler, which keeps jobs from nodes that could not start.
"""

import asyncio
from collections.abc import Iterable, Mapping

from springtide import decide, holds
from springtide.decide import Choice
from springtide.holds import Stage
from springtide.model import Cause, Hold, Node
from springtide.ports import CloudError, Denied, NoCapacity, QuotaExceeded
from springtide.record import Record
from springtide.spec import Cluster


class Holding:
    """The holds of one cluster."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.known: dict[str, Hold] = {}
        self.changed = asyncio.Event()
        self._worked_at: dict[str, float] = {}
        """When a node of the group came up last, and was well."""

    async def load(self) -> None:
        self.known = dict(await self._record.store.holds())

    # --- asking --------------------------------------------------------------------------------

    @property
    def current(self) -> list[Hold]:
        """Without those that are only remembered."""
        now = self._record.now()
        return [hold for hold in self.known.values() if holds.stage(hold, now) is not Stage.OPEN]

    def held_groups(self, spec: Cluster) -> dict[str, str]:
        """Groups in which nothing is launched now, and why; also those that are to be tried."""
        if not self.current:
            return {}
        now = self._record.now()
        found = holds.due_groups(spec, self.known, now) | holds.held_groups(spec, self.known, now)
        return {group: why for group, (why, _) in found.items()}

    def held_back(self, spec: Cluster) -> dict[str, str]:
        """Nodes that are not launched now, for themselves or with their group, and why."""
        groups = self.held_groups(spec)
        held = {name: groups[group] for group in groups for name in spec.names(group)}
        return self._nodes(spec) | held

    def _nodes(self, spec: Cluster, *stages: Stage) -> dict[str, str]:
        now, wanted = self._record.now(), stages or (Stage.HELD, Stage.PROBING)
        found = ((holds.node_of(hold.key), hold) for hold in self.current)
        return {
            name: holds.summary(hold)
            for name, hold in found
            if name and name in spec.node_group and holds.stage(hold, now) in wanted
        }

    def due(self, spec: Cluster) -> list[str]:
        """Groups that are to be tried with one node."""
        if not self.current:
            return []
        return list(holds.due_groups(spec, self.known, self._record.now()))

    def due_nodes(self, spec: Cluster) -> list[str]:
        """Nodes that are to be tried, of groups that are not held."""
        groups = self.held_groups(spec)
        due = self._nodes(spec, Stage.PROBING)
        return [name for name in due if spec.node_group[name] not in groups]

    def places(self, spec: Cluster, group: str, count: int) -> list[list[Choice]]:
        """Where to try each of so many nodes, in this order; the first tries what may have room."""
        kind, choices = spec.provider_name(group), decide.choices(spec, group)
        found = holds.open_choices(choices, self.known, kind, self._record.now())
        each = [list(found.choices) for _ in range(count)]
        if found.probes and each:
            each[0] = [*found.probes, *found.choices]
        return each

    # --- being told ----------------------------------------------------------------------------

    async def refused(self, spec: Cluster, group: str, choice: Choice, error: CloudError) -> None:
        """A provider would not make a node."""
        kind = spec.provider_name(group)
        match error:
            case NoCapacity():
                key = holds.choice_key(kind, choice)
                await self._renew(key, Cause.CAPACITY, str(error))
            case QuotaExceeded():
                await self._renew(holds.group_key(group), Cause.QUOTA, str(error))
            case Denied():
                await self._renew(holds.provider_key(kind), Cause.DENIED, str(error))
            case _:
                return

    async def rejected(self, spec: Cluster, nodes: Mapping[str, CloudError]) -> None:
        """Requests that are wrong: of one node that is its own trouble, of several the group's."""
        for name, error in nodes.items():
            await self._renew(holds.node_key(name), Cause.REJECTED, str(error))
        for group in {spec.node_group[name] for name in nodes if name in spec.node_group}:
            theirs = [holds.node_key(name) for name in spec.names(group)]
            found = [hold for key in theirs if (hold := self.known.get(key))]
            refused = [hold for hold in found if hold.cause is Cause.REJECTED]
            if len(refused) > 1:
                await self._renew(holds.group_key(group), Cause.REJECTED, refused[-1].reason)

    async def made(self, spec: Cluster, group: str, choice: Choice, names: Iterable[str]) -> None:
        """A provider made nodes: neither place, quota nor credentials are the trouble."""
        kind = spec.provider_name(group)
        for name in names:
            hold = self.known.get(holds.node_key(name))
            if hold and hold.cause is Cause.REJECTED:
                await self._open(hold.key)
        await self._open(holds.choice_key(kind, choice))
        await self._open(holds.provider_key(kind))
        hold = self.known.get(holds.group_key(group))
        if hold and hold.cause is not Cause.BOOTS:
            await self._open(hold.key)

    async def failed_boots(self, nodes: Mapping[str, str], spec: Cluster) -> None:
        """Nodes that were made and did not come up, and why: too many in a row are enough."""
        for name, why in nodes.items():
            failures = await self._count(name, why)
            probed = self._holds_for_boots(holds.node_key(name))
            if probed or holds.boots(failures):
                await self._renew(holds.node_key(name), Cause.BOOTS, why)
        groups = {
            spec.node_group[name]: why for name, why in nodes.items() if name in spec.node_group
        }
        for group, why in groups.items():
            probed = self._holds_for_boots(holds.group_key(group))
            if probed or holds.group_boots(self._failures(spec, group)):
                await self._renew(holds.group_key(group), Cause.BOOTS, why)

    def _holds_for_boots(self, key: str) -> bool:
        hold = self.known.get(key)
        return hold is not None and hold.cause is Cause.BOOTS

    def _failures(self, spec: Cluster, group: str) -> list[int]:
        """How often nodes of a group failed since one of it came up."""
        counts = (self.known.get(holds.boots_key(name)) for name in spec.names(group))
        worked_at = self._worked_at.get(group, 0.0)
        return [hold.count for hold in counts if hold and hold.since > worked_at]

    async def _count(self, name: str, why: str) -> int:
        """Failures in a row, remembered as a hold that is open."""
        key = holds.boots_key(name)
        known = self.known.get(key)
        count = 1 + (known.count if known else 0)
        await self._keep(Hold(key, Cause.BOOTS, why, count, self._record.now(), 0.0))
        return count

    async def proved(self, nodes: Iterable[Node], well_s: float) -> None:
        """Nodes in service without a fault: those that came after the last failure count."""
        if all(hold.cause is not Cause.BOOTS for hold in self.known.values()):
            return
        now = self._record.now()
        for node in nodes:
            if node.changed_at > now - well_s:
                continue
            self._worked_at[node.group] = max(self._worked_at.get(node.group, 0.0), node.changed_at)
            await self._end_boots(node)

    async def _end_boots(self, node: Node) -> None:
        count = self.known.get(holds.boots_key(node.name))
        if count and count.since < node.changed_at:
            await self._forget(count.key)
        for key in (holds.node_key(node.name), holds.group_key(node.group)):
            hold = self.known.get(key)
            if hold and hold.cause is Cause.BOOTS and holds.failed_at(hold) < node.changed_at:
                await self._open(key)

    async def give_up_probing(self, spec: Cluster, group: str) -> None:
        """Nobody needs the group now: whoever does next finds out."""
        now = self._record.now()
        for hold in holds.of_group(spec, group, self.known, now):
            if holds.stage(hold, now) is Stage.PROBING:
                await self._open(hold.key)

    async def open_node(self, name: str) -> None:
        """The same for a node."""
        await self._open(holds.node_key(name))

    async def lift(self, key: str, by: str = "") -> None:
        """By a person, or because its cause is another by now."""
        if key not in self.known:
            return
        hold = self.known[key]
        await self._forget(key)
        who = f" by {by}" if by else ""
        await self._record.note("hold lifted", detail=f"{key}{who}: {hold.reason}")

    async def mended(self) -> None:
        """There is another cluster file: what was wrong with requests may be right now."""
        for hold in tuple(self.known.values()):
            if hold.cause in (Cause.REJECTED, Cause.BOOTS):
                await self.lift(hold.key)

    async def forget(self) -> None:
        """What was over so long ago that it says nothing about the next launch."""
        now = self._record.now()
        for hold in tuple(self.known.values()):
            if now > max(hold.since, hold.until) + holds.FORGOTTEN_S:
                await self._forget(hold.key)

    async def _renew(self, key: str, cause: Cause, reason: str) -> None:
        """Failures of one burst count once."""
        now, known = self._record.now(), self.known.get(key)
        if known and holds.stage(known, now) is Stage.HELD:
            return
        hold = holds.renewed(known, key, cause, reason, now)
        await self._keep(hold)
        await self._record.note("held", detail=holds.describe(hold, now))

    async def _open(self, key: str) -> None:
        now, hold = self._record.now(), self.known.get(key)
        if hold and holds.stage(hold, now) is not Stage.OPEN:
            await self._keep(holds.opened(hold, now))
            await self._record.note("hold over", detail=f"{key}: {hold.reason}")

    async def _keep(self, hold: Hold) -> None:
        """On disk before it counts."""
        await self._record.store.hold(hold)
        self.known[hold.key] = hold
        self.changed.set()

    async def _forget(self, key: str) -> None:
        await self._record.store.lift(key)
        self.known.pop(key, None)
        self.changed.set()
