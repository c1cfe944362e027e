"""What launches are held for a while, remembered over restarts; policy is in `holds`.

Steps tell it what went wrong and what went well; they ask it before they launch, and so does
the reconciler, which keeps jobs from nodes that could not start.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping

from springtide import decide, holds
from springtide.decide import Choice
from springtide.holds import Open, Stage
from springtide.model import Cause, Hold, Node
from springtide.ports import CloudError, Denied, NoCapacity, QuotaExceeded, Rejected
from springtide.record import Record
from springtide.spec import Cluster


class Holding:
    """The holds of one cluster."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.known: dict[str, Hold] = {}
        self.changed = asyncio.Event()
        self._failed_boots: Counter[str] = Counter()
        """In a row, by group."""

    async def load(self) -> None:
        self.known = dict(await self._record.store.holds())

    # --- asking --------------------------------------------------------------------------------

    def held_groups(self, spec: Cluster) -> Mapping[str, str]:
        """Groups in which nothing is launched now, and why."""
        found = holds.held_groups(spec, self.known, self._record.now())
        return {group: why for group, (why, _) in found.items()}

    def held_back(self, spec: Cluster) -> dict[str, str]:
        """The nodes of held groups, and why."""
        groups = self.held_groups(spec)
        names = ((name, groups[group]) for group in groups for name in spec.names(group))
        return dict(names)

    def is_probing(self, spec: Cluster, group: str) -> bool:
        """Whether a hold's time is over and nobody knows yet if its cause is."""
        keys = (holds.group_key(group), holds.provider_key(spec.provider_of(group).kind))
        now, found = self._record.now(), (self.known.get(key) for key in keys)
        by_itself = any(hold and holds.stage(hold, now) is Stage.PROBING for hold in found)
        return by_itself or self._open(spec, group).stage is Stage.PROBING

    def places(self, spec: Cluster, group: str, count: int) -> list[list[Choice]]:
        """Where to try each of so many nodes, in this order; the first tries what may have room."""
        found = self._open(spec, group)
        each = [list(found.choices) for _ in range(count)]
        if found.probes and each:
            each[0] = [*found.probes, *found.choices]
        return each

    def _open(self, spec: Cluster, group: str) -> Open:
        kind, choices = spec.provider_of(group).kind, decide.choices(spec, group)
        return holds.open_choices(choices, self.known, kind, self._record.now())

    # --- being told ----------------------------------------------------------------------------

    async def refused(self, spec: Cluster, group: str, choice: Choice, error: CloudError) -> None:
        """A provider would not make a node."""
        kind = spec.provider_of(group).kind
        match error:
            case NoCapacity():
                key = holds.choice_key(kind, choice)
                await self._renew(key, Cause.CAPACITY, str(error))
            case QuotaExceeded():
                await self._renew(holds.group_key(group), Cause.QUOTA, str(error))
            case Denied():
                await self._renew(holds.provider_key(kind), Cause.DENIED, str(error))
            case Rejected():
                await self._renew(holds.group_key(group), Cause.REJECTED, str(error))

    async def made(self, spec: Cluster, group: str, choice: Choice) -> None:
        """A provider made a node: neither place, quota nor credentials are the trouble."""
        kind = spec.provider_of(group).kind
        await self.lift(holds.choice_key(kind, choice))
        await self.lift(holds.provider_key(kind))
        quota = self.known.get(holds.group_key(group))
        if quota and quota.cause is not Cause.BOOTS:
            await self.lift(quota.key)

    async def booted(self, nodes: Iterable[Node]) -> None:
        for group in {node.group for node in nodes}:
            self._failed_boots.pop(group, None)
            await self.lift(holds.group_key(group))

    async def failed_boots(self, nodes: Mapping[str, str], groups: Mapping[str, str]) -> None:
        """Nodes that were made and did not come up, and why: too many in a row are enough."""
        reasons = {groups[name]: why for name, why in nodes.items() if name in groups}
        self._failed_boots.update(groups[name] for name in nodes if name in groups)
        for group, why in reasons.items():
            hold = self.known.get(holds.group_key(group))
            probed = hold is not None and hold.cause is Cause.BOOTS
            if probed or holds.boots(self._failed_boots[group]):
                await self._renew(holds.group_key(group), Cause.BOOTS, why)

    async def lift(self, key: str, by: str = "") -> None:
        if key not in self.known:
            return
        hold = self.known.pop(key)
        await self._record.store.lift(key)
        who = f" by {by}" if by else ""
        await self._record.note("hold lifted", detail=f"{key}{who}: {hold.reason}")
        self.changed.set()

    async def mended(self) -> None:
        """There is another cluster file: what was wrong with requests may be right now."""
        for hold in tuple(self.known.values()):
            if hold.cause in (Cause.REJECTED, Cause.BOOTS):
                await self.lift(hold.key)

    async def forget(self) -> None:
        """What was over so long ago that it says nothing about the next launch."""
        now = self._record.now()
        for hold in tuple(self.known.values()):
            if now > hold.until + holds.FORGOTTEN_S:
                await self.lift(hold.key)

    async def _renew(self, key: str, cause: Cause, reason: str) -> None:
        """Failures of one burst count once."""
        now, known = self._record.now(), self.known.get(key)
        if known and holds.stage(known, now) is Stage.HELD:
            return
        hold = holds.renewed(known, key, cause, reason, now)
        self.known[key] = hold
        await self._record.store.hold(hold)
        await self._record.note("held", detail=holds.describe(hold, now))
        self.changed.set()
