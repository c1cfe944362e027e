"""What may be asked of the engine: to open, follow and cancel operations."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from springtide.engine.course import Course
from springtide.engine.run import Refused, Run, in_the_way
from springtide.engine.runs import PARTED, Runs
from springtide.model import (
    IN_ROUNDS,
    STARTS_NODES,
    Kind,
    Making,
    Operation,
    OperationState,
    Step,
)
from springtide.nodeset import fold
from springtide.steps import STEPS, Parts, StepFunction

BY_ITSELF = frozenset({"batch", "reconcile"})
"""Who asks for operations and is no person: neither could do anything about a refusal."""


class Engine:
    """Submit, follow and cancel operations."""

    def __init__(
        self,
        parts: Parts,
        ended: Callable[[Operation], None] = lambda operation: None,
        steps: Mapping[Step, StepFunction] = STEPS,
    ) -> None:
        self._parts = parts
        self._record = parts.record
        self._store = parts.record.store
        self._steps = steps
        self._runs = Runs(parts.record, self._drive, ended)

    async def _drive(self, run: Run) -> None:
        await Course(run, self._runs, self._parts, self._steps).run_to_end()

    async def start(self) -> None:
        """Go on with what an earlier run of the daemon left unfinished: first with what has begun,
        for it has its nodes, though others that wait for them may be older."""
        found = await self._store.operations(unfinished=True)
        unfinished = sorted(found, key=lambda one: one.state is not OperationState.RUNNING)
        for operation in unfinished:
            await self._store.release(operation.id, operation.done)
        for operation in unfinished:
            self._runs.begin(operation)

    async def stop(self) -> None:
        """Let go of all operations where they are; the next start goes on with them."""
        self._runs.stopping = True
        tasks = [task for run in self._runs for task in (run.task, *run.rescues) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def submit(
        self,
        kind: Kind,
        nodes: Iterable[str],
        *,
        asked_by: str,
        reason: str = "",
        requests: Iterable[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Sequence[Operation]:
        """Open operations for the nodes: one for those that are free, one behind each holder."""
        answered, names = tuple(requests), tuple(nodes)
        async with self._runs.opening:
            if self._runs.destroyed:
                raise Refused("the cluster is destroyed")
            if kind in IN_ROUNDS and asked_by not in BY_ITSELF:
                self.refuse_imaged(names)
            wanted = [
                Operation(
                    0,
                    kind,
                    tuple(part),
                    options=options or {},
                    asked_by=asked_by,
                    reason=reason,
                    created_at=self._record.now(),
                )
                for part in self._parted(kind, names)
            ]
            opened = await self._store.open(wanted, answered)
            for operation in opened:
                self._runs.begin(operation)
        return opened

    def refuse_imaged(self, names: Iterable[str], instead: str = "leave it out") -> None:
        """A node that an image is being made of: it is out of service and may forget who it was;
        after that it is made anew anyway. `instead` is what one may do who does not wait."""
        gallery = self._parts.gallery
        held = gallery.claimed.intersection(names)
        made = (one for one in gallery.made if one.state is Making.BUILDING and not one.builder)
        image = ", ".join(one.name for one in made if one.made_from in held) or "an image"
        if held:
            raise Refused(
                f"{image} is being made of {fold(held)}: {instead}, or wait for its end, see "
                "`tide image list`"
            )

    def _parted(self, kind: Kind, nodes: Iterable[str]) -> list[list[str]]:
        """A busy node must not hold up free ones."""
        names = list(nodes)
        if kind not in PARTED:
            return [names]
        parts: dict[int | None, list[str]] = defaultdict(list)
        for name in names:
            parts[self._runs.turns.ahead(name)].append(name)
        return list(parts.values())

    async def cancel(self, id: int, by: str) -> None:
        """Stop an operation; nodes still on their way up are given back."""
        run = self._runs.find(id)
        if run is None or run.task is None or run.operation.verdict:
            raise Refused(f"operation {id} is not running")
        if run.has_touched:
            await self._cancel_later(run, by)
            return
        run.cancel(by)
        await run.ended.wait()

    def end_starts(self, by: str) -> None:
        """Cancel all that bring up nodes which nobody had; others wait for their end."""
        for run in self._runs:
            if run.operation.kind in STARTS_NODES and run.task and not run.operation.verdict:
                run.cancel(by)

    async def _cancel_later(self, run: Run, by: str) -> None:
        """Nodes that are between two instances must come to an end; further ones are spared."""
        id = run.operation.id
        if run.operation.kind not in IN_ROUNDS:
            raise Refused(f"operation {id} has begun to delete; let it end, then resume its nodes")

        def ending(operation: Operation) -> Operation:
            return replace(operation, options={**operation.options, "ends_for": by})

        await self._runs.save(run, ending, "cancel asked", f"by {by}, after this round")

    def shrinking(self, names: Iterable[str]) -> list[int]:
        """The operations that take one of these nodes away, and could yet be cancelled."""
        wanted = frozenset(names)
        return [
            run.operation.id
            for run in self._runs
            if run.operation.kind is Kind.SHRINK
            and not run.has_touched
            and wanted.intersection(run.operation.left)
        ]

    def at(self, *kinds: Kind) -> frozenset[str]:
        """The nodes that unfinished operations of these kinds are about."""
        found = (run.operation.left for run in self._runs if run.operation.kind in kinds)
        return frozenset(name for names in found for name in names)

    def queued(self, *kinds: Kind) -> frozenset[str]:
        """The nodes of operations of these kinds that have not had their turn."""
        runs = (run for run in self._runs if run.operation.kind in kinds and not run.began)
        return frozenset(name for run in runs for name in run.operation.nodes)

    def under_way(self, *kinds: Kind) -> int:
        """How many nodes unfinished operations of these kinds took on and have not brought back."""
        runs = [run.operation for run in self._runs if run.operation.kind in kinds]
        back = sum(len(set(operation.done) - operation.fallen.keys()) for operation in runs)
        return sum(len(operation.nodes) for operation in runs) - back

    def claimed(self) -> frozenset[str]:
        """All that operations are at or wait for, nodes and the site."""
        return self._runs.turns.claimed()

    def waits_for(self, id: int) -> str:
        """What goes first where an operation queues, in words; empty if it has its turn."""
        if self._runs.find(id) is None:
            return ""
        ahead = sorted(set(self._runs.turns.holders(id).values()))
        runs = [run for one in ahead if (run := self._runs.find(one))]
        return ", then ".join(map(in_the_way, runs))

    async def wait(self, id: int) -> Operation | None:
        """The operation once it has ended."""
        if run := self._runs.find(id):
            await run.ended.wait()
        return await self._store.operation(id)

    async def idle(self) -> None:
        """Until nothing runs."""
        while self._runs:
            await next(iter(self._runs)).ended.wait()
