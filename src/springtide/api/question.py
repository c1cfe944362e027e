"""One question why something is as it is: asks the world for it, and notes who did not answer."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from springtide import boots, decide, holds
from springtide.calendar import limits
from springtide.daemon import Daemon
from springtide.holds import Stage
from springtide.model import Node, NodeState
from springtide.ports import BatchNode, CloudError, Instance, Job, Unavailable
from springtide.steps.census import FRESH_S
from springtide.story import Held

T = TypeVar("T")

PATIENCE_S = 5.0
"""Slurm's commands wait longer for a slurmctld that is away."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, and who did not answer it."""

    daemon: Daemon
    problems: list[str] = field(default_factory=list)

    @property
    def closed(self) -> str:
        """Why nothing is started at all."""
        if self.daemon.parts.site is None:
            return "the cluster is not deployed yet; run `tide deploy`"
        return "the cluster is stopped; run `tide start`" if self.daemon.parts.stopped else ""

    async def of(self, question: Awaitable[T], nothing: T) -> T:
        """An answer, or `nothing` and a problem; a command that hangs is left to its end."""
        asking = asyncio.ensure_future(question)
        await asyncio.wait([asking], timeout=PATIENCE_S)
        if not asking.done():
            asking.cancel()
            self.problems.append(f"no answer within {PATIENCE_S:g} s; see `tide check`")
            return nothing
        try:
            return asking.result()
        except (Unavailable, CloudError) as error:
            self.problems.append(str(error))
            return nothing

    async def nodes(self, *names: str) -> Mapping[str, BatchNode]:
        if self.closed:
            return {}
        return await self.of(self.daemon.parts.batch.nodes(names), {})

    async def jobs(self) -> Sequence[Job]:
        if self.closed:
            return ()
        return await self.of(self.daemon.parts.batch.jobs(), ())

    async def past_job(self, id: str) -> Job | None:
        if self.closed or self.problems:
            return None
        return await self.of(self.daemon.parts.batch.past_job(id), None)

    async def instances(self, nodes: Iterable[Node]) -> dict[str, list[Instance]]:
        """From a list that all who ask within a moment share: clouds throttle who asks often."""
        parts, names = self.daemon.parts, [node.name for node in nodes]
        found = [parts.providers.get(node.group, parts.home) for node in nodes]
        providers = {id(provider): provider for provider in found}.values()
        lists = [await self.of(parts.census.instances(one), ()) for one in providers]
        return decide.instances_of([one for some in lists for one in some], names)

    def is_news(self, node: Node) -> bool:
        """Whether its record may be younger than the list of its provider, which says nothing."""
        return self.daemon.parts.record.now() - node.changed_at <= FRESH_S

    async def usual_s(self, groups: Iterable[str]) -> float | None:
        """How long nodes of these groups took to start of late, of the slowest group."""
        times = await self.daemon.parts.record.store.boot_times(boots.LOOKED_AT)
        wanted = frozenset(groups)
        known = [one.median_s for one in boots.summarize(times) if one.group in wanted]
        return max(known, default=None)

    def held(self) -> dict[str, Held]:
        """Groups of which no node is launched, or only one to try."""
        found = {
            group: self._hold(group)
            for group in self.daemon.parts.holding.held_groups(self.daemon.spec)
        }
        return {group: hold for group, hold in found.items() if hold}

    def held_alone(self) -> dict[str, Held]:
        """Nodes that are not launched for themselves, or may only be tried."""
        found = ((holds.node_of(one.key), one) for one in self.daemon.parts.holding.current)
        return {
            name: Held(holds.summary(one), one.until, one.key, alone=True)
            for name, one in found
            if name and name in self.daemon.spec.node_group
        }

    def calendar(self, short: bool = False) -> dict[str, str]:
        """What holds now for groups that the calendar has; `short` are those with fewer nodes."""
        spec, now = self.daemon.parts.wanted, self.daemon.parts.clock
        return {
            group: held.words(now)
            for group, held in limits(spec, now).items()
            if held.entry and not (short and held.max == len(spec.names(group)))
        }

    def is_full(self, group: str) -> bool:
        """Whether the calendar allows no more nodes of it; where nobody drains the others, who
        decides about nodes is ourselves."""
        parts = self.daemon.parts
        held = limits(parts.wanted, parts.clock).get(group) if parts.wanted.polled else None
        if held is None or not held.entry:
            return False
        nodes = parts.record.of(parts.wanted.names(group))
        return sum(node.state is not NodeState.OFF for node in nodes) >= held.max

    def _hold(self, group: str) -> Held | None:
        parts, now = self.daemon.parts, self.daemon.parts.record.now()
        found = holds.of_group(self.daemon.spec, group, parts.holding.known, now)
        shut = [hold for hold in found if holds.stage(hold, now) is not Stage.OPEN]
        last = max(shut, key=lambda hold: hold.until, default=None)
        if last is None:
            return None
        return Held(holds.summary(last), last.until, last.key.removeprefix("group:"))
