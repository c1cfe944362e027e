"""Plans for what people may ask: which nodes an operation would be about, and what that means.

People and API ask it before anything is begun. It looks at the world and changes nothing.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from springtide import bounds, decide, images, service
from springtide.calendar import kept_up, limits
from springtide.configure import ansible_checks
from springtide.engine import Refused
from springtide.model import STARTING, Kind, Node, NodeState
from springtide.nodeset import expand, fold
from springtide.plans import CONFIGURES, Plan, make_plan
from springtide.ports import BatchNode, CloudError, Instance, Job, Unavailable
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
        if kind in CONFIGURES:
            await self.refuse_playbooks(self.spec)
        jobs, doubts = await self._jobs()
        notes += [self._doubt(kind, doubt) for doubt in doubts]
        nodes, now = self.parts.record.nodes, bool(options.get("now"))
        return make_plan(kind, targets, self.spec, nodes, jobs, now=now, notes=notes)

    async def _jobs(self) -> tuple[Sequence[Job], list[str]]:
        """All jobs; if they cannot be known, why."""
        if not self.parts.is_up:
            return (), []
        try:
            return await self.parts.batch.jobs(), []
        except Unavailable as error:
            return (), [f"the batch system cannot be asked about jobs: {error}"]

    def _doubt(self, kind: Kind, doubt: str) -> str:
        """What follows from it that the batch system does not answer."""
        if kind is not Kind.DESTROY or not self.spec.polled:
            return doubt
        return f"{doubt}; until it answers, destroy is refused without --leave-batch"

    async def _targets(
        self, kind: Kind, names: Iterable[str], options: Mapping[str, Any]
    ) -> tuple[Sequence[str], list[str]]:
        """The nodes that an operation would be about, and remarks on them."""
        asked = self.spec.require(names)
        if kind is Kind.DEPLOY:
            lost = await self.lost()
            notes = [f"{fold(lost)}: made anew, for its instance died"] if lost else []
            return list(dict.fromkeys((*self.parts.kept_up(), *lost))), notes
        if kind in (Kind.STOP, Kind.DESTROY):
            return self.spec.managed, []
        if kind is Kind.RESUME and self.parts.is_up:
            with suppress(Unavailable):
                self.refuse_starts_against_calendar(asked, await self.parts.batch.nodes(asked))
        if kind is Kind.REBUILD:
            why = await self.outdated(asked or self.spec.managed, options)
            notes = [f"{fold(some)}: {why[some[0]]}" for some in decide.alike(why, why)]
            return list(why), notes + self._unconfigured(asked or self.spec.managed, why)
        if kind is Kind.UPDATE:
            serving = self.parts.record.of(asked or self.spec.managed, *SERVING)
            return [node.name for node in serving], []
        return asked, []

    def _unconfigured(self, names: Iterable[str], rebuilt: Collection[str]) -> list[str]:
        """Nodes that differ in their configuration alone are not rebuilt, and that must be said."""
        configs = {group: self.parts.config_of(group) for group in self.spec.groups}
        up = self.parts.record.of((name for name in names if name not in rebuilt), *UP)
        stale = service.unconfigured(up, configs)
        advice = "no rebuild is needed for that, `tide update` configures them again"
        return [f"{fold(stale)}: another configuration than the file's; {advice}"] if stale else []

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

    async def refuse_playbooks(self, wanted: Cluster) -> None:
        """What Ansible could not run, before nodes are drained or made for it."""
        if wanted.ansible is None:
            return
        if wrong := await asyncio.to_thread(ansible_checks.refusal, wanted.ansible):
            raise Refused(f"what the file names cannot be used here: {wrong}")

    def refuse_against_calendar(self, wanted: Cluster, sizes: Mapping[str, int]) -> None:
        """Sizes of groups, by hand, that would not count because an entry of the calendar does.

        The entry is told for the group as it is: asked for more nodes, it may have more names.
        """
        now = self.parts.clock
        today = limits(self.parts.wanted, now)
        for key, held in limits(wanted, now).items():
            if key in sizes and held.entry is not None and held.min != sizes[key]:
                real = today.get(key, held)
                shown = real if real.entry == held.entry else held
                raise Refused(
                    f"{key}={sizes[key]} would not count: the calendar wants {shown.words(now)}; "
                    "change that entry in the cluster file and run `tide apply`"
                )

    def refuse_starts_against_calendar(
        self, names: Sequence[str], seen: Mapping[str, BatchNode]
    ) -> None:
        """Nodes, by hand, that the calendar would not let take jobs, or would let go again."""
        now, groups = self.parts.clock, self.spec.node_group
        fresh = [name for name in names if self._is_fresh(name, seen.get(name))]
        known = limits(self.spec, now) if fresh else {}
        for key, held in known.items():
            asked = list(dict.fromkeys(name for name in fresh if groups[name] == key))
            up = self.parts.record.of((n for n in self.spec.names(key) if n not in asked), *UP)
            closed = [name for name in asked if name in seen and bounds.is_held(seen[name])]
            too_many = asked[max(0, held.max - len(up)) :]
            if held.entry is not None and (refused := closed or too_many):
                raise Refused(
                    f"{fold(refused)} may not start: the calendar wants {held.words(now)}; "
                    "change that entry in the cluster file and run `tide apply`"
                )

    def _is_fresh(self, name: str, seen: BatchNode | None) -> bool:
        """Whether a node is not up, or would not stay so."""
        up = bool(self.parts.record.of([name], *UP))
        return not up or (seen is not None and seen.leaving)

    async def refuse_lost_jobs(self, wanted: Cluster) -> None:
        """Slurm ends the jobs of a partition that it is no longer told of, running ones too."""
        nodes = self.parts.record.nodes
        both = union(wanted, self.spec, [n for n in nodes if n in self.spec.node_group])
        gone = self.spec.partitions.keys() - both.partitions.keys()
        if self.spec.polled or not gone:
            return
        jobs, _ = await self._jobs()
        lost = [job for job in jobs if gone.issuperset(job.partition.split(","))]
        lost.sort(key=lambda job: job.state != "RUNNING")
        if lost:
            shown = ", ".join(f"{job.id} of {job.user} ({job.state.lower()})" for job in lost[:5])
            more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
            raise Refused(
                f"{', '.join(sorted(gone))} would leave the file, and Slurm ends the jobs of a "
                f"partition that it does not have: {shown}{more}; wait for those that run, move "
                "those that wait (`scontrol update jobid=ID partition=NAME`), then apply it again"
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
        plans = [
            make_plan(kind, names, both, known, jobs, notes=doubts)
            for kind, names in resized.operations()
        ]
        if not changes.refusals and any(plan.kind in CONFIGURES for plan in plans):
            await self.refuse_playbooks(wanted)
        return changes, plans

    def warnings(self, wanted: Cluster) -> list[str]:
        """What would not work with another cluster file until somebody does something."""
        return [
            f"image {wanted.image_of(key)}: {why}; run `tide image build {wanted.image_of(key)}`"
            for key, why in images.unbuilt(wanted, self.parts.gallery.made).items()
        ]

    async def outdated(self, names: Iterable[str], options: Mapping[str, Any]) -> dict[str, str]:
        """Which of these nodes a rebuild would touch, and why."""
        image = options.get("image")
        gallery = self.parts.gallery
        if image and not gallery.is_image(self.spec, image):
            raise BadRequest(self._no_image(image))
        wanted = {group: self.parts.wanted_image(group, image) for group in self.spec.groups}
        up = self.parts.record.of(names, *UP)
        found = service.outdated(self.spec, up, await self._instances(), wanted)
        if options.get("force"):
            return {node.name: found.get(node.name, "as it should be") for node in up}
        return found

    def _no_image(self, name: str) -> str:
        gallery = self.parts.gallery
        numbers = [one for one in gallery.known if one.startswith(f"{name}{images.MARK}")]
        if numbers:
            return f"{name} is no family of the cluster file; name one image, such as {numbers[-1]}"
        made = f"; made here were {', '.join(gallery.known)}" if gallery.known else ""
        return f"there is no image {name}; the cluster file has {', '.join(self.spec.images)}{made}"

    def resizing(
        self,
        wanted: Cluster,
        changes: Changes,
        fresh: Iterable[Node] = (),
        going: Collection[str] = (),
        coming: Collection[str] = (),
    ) -> service.Resizing:
        """What another file would change, by the record."""
        kept = self.parts.applied.kept
        nodes = (*self.parts.record.nodes.values(), *fresh)
        left = [name for name in self.spec.managed if name not in wanted.node_group]
        up = kept_up(wanted, self.parts.clock)
        former = expand(kept) if kept else ()
        resized = service.resizing(wanted, former, left, nodes, going, coming, up)
        same = self.parts.applied.spec == fingerprint(wanted)
        return replace(resized, rewritten=not same, only_sizes=changes.only_sizes)
