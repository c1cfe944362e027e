"""Plans for what people may ask: which nodes an operation would be about, and what that means.

People and API ask it before anything is begun. It looks at the world and changes nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from springtide import decide, service
from springtide.engine import Refused
from springtide.model import STARTING, Kind, Node, NodeState
from springtide.nodeset import expand, fold
from springtide.plans import Plan, make_plan
from springtide.ports import CloudError, Instance, Job, Unavailable
from springtide.spec import Cluster
from springtide.spec.fingerprint import fingerprint
from springtide.spec.leaving import Changes, diff, union
from springtide.spool import BadRequest
from springtide.steps import Parts

SERVING = (NodeState.READY, NodeState.DRAINING)
UP = (*SERVING, *STARTING)


class Planner:
    """Looks ahead for one cluster."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    @property
    def spec(self) -> Cluster:
        return self.parts.spec

    async def plan(self, kind: Kind, names: Iterable[str], options: Mapping[str, Any]) -> Plan:
        """What an operation would do now."""
        targets, notes = await self._targets(kind, names, options)
        jobs, doubts = await self._jobs()
        notes += doubts
        nodes, now = self.parts.record.nodes, bool(options.get("now"))
        return make_plan(kind, targets, self.spec, nodes, jobs, now=now, notes=notes)

    async def _jobs(self) -> tuple[Sequence[Job], list[str]]:
        """All jobs; if they cannot be known, why."""
        if self.parts.site is None or self.parts.stopped:
            return (), []
        try:
            return await self.parts.batch.jobs(), []
        except Unavailable as error:
            return (), [f"the batch system cannot be asked about jobs: {error}"]

    async def _targets(
        self, kind: Kind, names: Iterable[str], options: Mapping[str, Any]
    ) -> tuple[Sequence[str], list[str]]:
        """The nodes that an operation would be about, and remarks on them."""
        asked = self.spec.require(names)
        if kind is Kind.DEPLOY:
            lost = await self.lost()
            notes = [f"{fold(lost)}: made anew, for its instance died"] if lost else []
            return list(dict.fromkeys((*self.parts.wanted.always_up, *lost))), notes
        if kind in (Kind.STOP, Kind.DESTROY):
            return self.spec.managed, []
        if kind is Kind.REBUILD:
            why = await self.outdated(asked or self.spec.managed, options)
            return list(why), [f"{fold(some)}: {why[some[0]]}" for some in decide.alike(why, why)]
        if kind is Kind.UPDATE:
            serving = self.parts.record.of(asked or self.spec.managed, *SERVING)
            return [node.name for node in serving], []
        return asked, []

    async def lost(self) -> tuple[str, ...]:
        """Nodes in service whose instance died."""
        ready = self.parts.record.of(self.spec.managed, NodeState.READY)
        try:
            return tuple(decide.lost(ready, await self._instances())) if ready else ()
        except CloudError:  # the operation will ask again, and say why it cannot tell
            return ()

    async def _instances(self) -> list[Instance]:
        return [
            one
            for provider in self.parts.distinct_providers()
            for one in await provider.list(self.spec.cluster)
        ]

    def refuse_strays(self) -> None:
        """Nodes that left the file while no daemon ran: nobody knows any more what they are."""
        if strays := self.parts.strays():
            raise Refused(
                f"{fold(strays)} left the cluster file while no daemon ran, is still up, and its "
                "jobs would be lost; put it back, start the daemon, then `tide apply` the change"
            )

    async def plan_apply(self, wanted: Cluster) -> tuple[Changes, list[Plan]]:
        """What another cluster file would change."""
        self.refuse_strays()
        changes = diff(self.parts.wanted, wanted)
        jobs, doubts = await self._jobs()
        nodes = self.parts.record.nodes
        fresh = {n: Node(n, g) for n, g in wanted.node_group.items() if n not in nodes}
        known = {**fresh, **nodes}
        both = union(wanted, self.spec, [n for n in nodes if n in self.spec.node_group])
        resized = self.resizing(wanted, changes, fresh.values())
        return changes, [
            make_plan(kind, names, both, known, jobs, notes=doubts)
            for kind, names in resized.operations()
        ]

    async def outdated(self, names: Iterable[str], options: Mapping[str, Any]) -> dict[str, str]:
        """Which of these nodes a rebuild would touch, and why."""
        image = options.get("image")
        if image and image not in self.spec.images:
            known = ", ".join(self.spec.images)
            raise BadRequest(f"there is no image {image}; the cluster file has {known}")
        up = self.parts.record.of(names, *UP)
        found = service.outdated(self.spec, up, await self._instances(), image)
        if options.get("force"):
            return {node.name: found.get(node.name, "as it should be") for node in up}
        return found

    def resizing(
        self,
        wanted: Cluster,
        changes: Changes,
        fresh: Iterable[Node] = (),
        going: Collection[str] = (),
    ) -> service.Resizing:
        """What another file would change, by the record."""
        kept = self.parts.applied.kept
        nodes = (*self.parts.record.nodes.values(), *fresh)
        left = [name for name in self.spec.managed if name not in wanted.node_group]
        resized = service.resizing(wanted, expand(kept) if kept else (), left, nodes, going)
        same = self.parts.applied.spec == fingerprint(wanted)
        return replace(resized, rewritten=not same, only_sizes=changes.only_sizes)
