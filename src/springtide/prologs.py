"""Holds the controller's prologs until their jobs' nodes are ready: one waiter for all jobs.

Slurm launches a batch job on booting nodes only every 30 seconds, but at once when its
PrologSlurmctld returns. The hook waits here; it is let go when the nodes are ready, or when
waiting has become pointless: the job is gone, or was put back into the queue.

Nodes that serve one job are let go of here too: before the job starts, the batch system is told
to power them down after it, and from then on gives them to no other.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from springtide.model import STARTING, Node, NodeState
from springtide.ports import BatchSystem, Unavailable
from springtide.record import Record

T = TypeVar("T")

LOOK_S = 1.0
"""Between two looks at the batch system, for jobs that ended and nodes that are not ours."""
READY, REGISTERED, LATE = "ready", "registered", "waited long enough"
STARTS = frozenset({READY, REGISTERED, LATE})
"""After these the job may start; after others it has gone, or waits in the queue again."""


@dataclass(eq=False, slots=True)
class Waiter:
    """One prolog."""

    job: str
    names: frozenset[str]
    missing: set[str]
    let_go: asyncio.Future[str]

    def release(self, why: str) -> None:
        if not self.let_go.done():
            self.let_go.set_result(why)


class Together(Generic[T]):
    """What is asked for while a call is under way goes with the next one, and is one call then."""

    def __init__(self, call: Callable[[Sequence[T]], Awaitable[None]]) -> None:
        self._call = call
        self._asked: list[tuple[T, asyncio.Future[None]]] = []
        self._calling: asyncio.Task[None] | None = None

    async def ask(self, item: T) -> None:
        """Returns when it was done; raises what the call did."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.append((item, told))
        if self._calling is None or self._calling.done():
            self._calling = asyncio.create_task(self._run())
        await told

    async def stop(self) -> None:
        if self._calling is not None:
            self._calling.cancel()
            await asyncio.gather(self._calling, return_exceptions=True)

    async def _run(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, []
            failure: Exception | None = None
            try:
                await self._call([item for item, _ in asked])
            except Exception as error:  # whatever it was, those who wait must hear of it
                failure = error
            for told in (told for _, told in asked if not told.done()):
                told.set_exception(failure) if failure else told.set_result(None)


class Prologs:
    """All prologs that wait."""

    def __init__(self, record: Record, batch: Callable[[], BatchSystem]) -> None:
        self._record = record
        self._batch = batch
        self._by_node: dict[str, set[Waiter]] = defaultdict(set)
        self._waiters: set[Waiter] = set()
        self._looking: asyncio.Task[None] | None = None
        self._spending = Together(self._spend)

    async def wait(
        self, job: str, names: Iterable[str], limit_s: float, afresh: bool = False
    ) -> str:
        """Until the job may start (or need not be waited for); answers why.

        For a job whose nodes start afresh it means nothing that they were ready before.
        """
        waiter = self._join(job, frozenset(names), afresh)
        try:
            async with asyncio.timeout(limit_s):
                return await waiter.let_go
        except TimeoutError:
            return LATE
        finally:
            self._leave(waiter)

    async def spend(self, names: Iterable[str]) -> None:
        """Have nodes take no further job, and go when the one that they have is over."""
        await self._spending.ask(frozenset(names))

    def changed(self, nodes: Sequence[Node]) -> None:
        """To be called with every change of the record."""
        for node in nodes:
            if node.state is NodeState.READY:
                self._arrived(node.name)
            elif node.state is NodeState.FAILED:
                for waiter in tuple(self._by_node.get(node.name, ())):
                    waiter.release(f"{node.name} failed")

    async def stop(self) -> None:
        await self._spending.stop()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _join(self, job: str, names: frozenset[str], afresh: bool) -> Waiter:
        known = () if afresh else self._record.of(names, NodeState.READY)
        ready = {node.name for node in known}
        waiter = Waiter(job, names, set(names - ready), asyncio.get_running_loop().create_future())
        if not waiter.missing:
            waiter.release(READY)
        self._waiters.add(waiter)
        for name in waiter.missing:
            self._by_node[name].add(waiter)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        return waiter

    def _leave(self, waiter: Waiter) -> None:
        self._waiters.discard(waiter)
        for name in waiter.names & self._by_node.keys():
            self._by_node[name].discard(waiter)
            if not self._by_node[name]:
                del self._by_node[name]

    def _arrived(self, name: str) -> None:
        for waiter in tuple(self._by_node.get(name, ())):
            waiter.missing.discard(name)
            if not waiter.missing:
                waiter.release(READY)

    async def _spend(self, asked: Sequence[frozenset[str]]) -> None:
        await self._batch().power_down(frozenset().union(*asked))

    async def _look(self) -> None:
        while self._waiters:
            await asyncio.sleep(LOOK_S)
            try:
                await self._look_once()
            except Unavailable:
                continue

    async def _look_once(self) -> None:
        """Jobs first: a node that registers after its job has gone changes nothing.

        One that an operation is at is ready when that says so: until then the batch system may look
        for it where it is not, and the job would start there.
        """
        waiting = tuple(self._waiters)
        configuring = {job.id for job in await self._batch().jobs() if job.configuring}
        nodes = await self._batch().nodes(frozenset().union(*(w.missing for w in waiting)))
        arriving = {node.name for node in self._record.of(nodes) if node.state in STARTING}
        registered = {name for name, node in nodes.items() if node.registered} - arriving
        for waiter in waiting:
            if waiter.job not in configuring:
                waiter.release("the job no longer waits for nodes")
            elif waiter.missing <= registered:
                waiter.release(REGISTERED)
