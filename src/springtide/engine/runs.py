"""All operations under way: which nodes each is at, and who waits for whom."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from springtide.engine.run import Run, done_with
from springtide.model import (
    CHANGES_SITE,
    IN_ROUNDS,
    STARTS_NODES,
    Kind,
    NodeState,
    Operation,
    OperationState,
)
from springtide.nodeset import fold
from springtide.record import Record, whole
from springtide.turns import Turns

PARTED = frozenset({Kind.RESUME, Kind.SUSPEND, Kind.REBUILD, Kind.REPAIR})
"""Operations of which each node may go its own way; what changes the cluster's size stays whole."""
Change = Callable[[Operation], Operation]


class Runs:
    """Each is driven by a task of its own until it leaves."""

    def __init__(
        self,
        record: Record,
        drive: Callable[[Run], Coroutine[None, None, None]],
        ended: Callable[[Operation], None],
    ) -> None:
        self.turns = Turns()
        self.opening = asyncio.Lock()
        self.destroyed = False
        self.stopping = False
        """The daemon ends: what is cancelled from now on is left where it is."""
        self._record = record
        self._store = record.store
        self._drive = drive
        self._ended = ended
        self._runs: dict[int, Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs.values())

    def find(self, id: int) -> Run | None:
        return self._runs.get(id)

    def begin(self, operation: Operation) -> None:
        self.turns.join(operation.id, operation.claims)
        self._start(operation)

    def _start(self, operation: Operation) -> None:
        run = Run(operation)
        self._runs[operation.id] = run
        run.task = asyncio.create_task(self._drive(run), name=f"operation {operation.id}")

    def leave(self, run: Run) -> None:
        operation = run.operation
        if operation.kind is Kind.DESTROY and operation.state is OperationState.DONE:
            self.destroyed = True
        del self._runs[operation.id]
        self.turns.leave(operation.id)
        run.ended.set()
        self._ended(operation)

    def raised(self, but: Run) -> frozenset[str]:
        """Nodes that another operation brings up, or will, or else gives back itself."""
        others = [run for run in self if run is not but and not run.operation.verdict]
        return frozenset(name for run in others for name in self._raised_by(run))

    def _raised_by(self, run: Run) -> Iterable[str]:
        """What is ready it has raised: if that is waited for, then since."""
        kind, names = run.operation.kind, run.operation.left
        if not run.began:
            return names if kind is Kind.RESUME else ()
        raises = kind in STARTS_NODES | IN_ROUNDS
        found = self._record.of(names) if raises else []
        return [node.name for node in found if node.state is not NodeState.READY]

    async def let_go(self, run: Run, names: Collection[str]) -> None:
        """Nodes that are done with are for others to take, but while the site is changed."""
        if names and run.operation.kind not in CHANGES_SITE:
            await whole(self._freed(run, tuple(names)))

    async def _freed(self, run: Run, names: Sequence[str]) -> None:
        """On disk first: what others may have by then, a restart must not take for its own."""
        await self.save(run, partial(done_with, names=names))
        await self._store.release(run.operation.id, names)
        self.turns.let_go(run.operation.id, names)
        async with self.opening:
            for other in list(self):
                if self._is_split(other):
                    await self._split(other)

    def _is_split(self, run: Run) -> bool:
        parted = run.operation.kind in PARTED and not run.operation.verdict
        return parted and self.turns.is_split(run.operation.id)

    async def _split(self, run: Run) -> None:
        """One that waits begins at once where it is first, as an operation of its own."""
        id, names = run.operation.id, self.turns.firsts(run.operation.id)
        (opened,) = await self._store.open([replace(run.operation, id=0, nodes=names, done=())])
        if self._is_split(run):
            self.turns.hand_over(id, opened.id, names)
            self._start(opened)
            told = f"{fold(names)} goes on as operation {opened.id}"
            await self.save(run, partial(done_with, names=names), "operation split", told)
        else:
            self.begin(opened)  # the other has its turn by now: this one will find all done

    async def save(self, run: Run, change: Change, what: str = "", detail: str = "") -> None:
        """With an event, if it says what happened."""
        await whole(self._saved(run, change, what, detail))

    async def _saved(self, run: Run, change: Change, what: str, detail: str) -> None:
        """One after the other: steps and rescues change an operation side by side."""
        async with run.saving:
            operation = change(run.operation)
            if what:
                await self._record.progress(operation, what, detail)
            else:
                await self._store.progress(operation)
            run.operation = operation
