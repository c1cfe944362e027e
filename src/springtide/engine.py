"""Runs operations: queues them per node, leases, runs their steps, continues after a crash.

The daemon owns one Engine. Each operation is one task; what it did is on disk before the next
step begins, so a restart goes on at the first unfinished step.
"""

import asyncio
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from springtide.model import (
    SITE,
    STARTS_NODES,
    Kind,
    Operation,
    OperationState,
    Step,
)
from springtide.nodeset import fold
from springtide.ports import CloudError, StoreError, Unavailable
from springtide.steps import STEPS, Fallen, Parts, StepFunction, Work, give_back, rescue
from springtide.steps.site import SiteError
from springtide.turns import Turns

STORE_RETRY_S = 5.0


class Stopped(Exception):
    """The operation ended before its steps did, for the reason given."""

    def __init__(self, state: OperationState, reason: str) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason


@dataclass(slots=True)
class Run:
    """An operation in memory: its task, and what fell out of it and is being cleaned up."""

    operation: Operation
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    rescues: list[asyncio.Task[None]] = field(default_factory=list)
    cancelled_by: str | None = None
    finishing: bool = False
    """From here on it ends; a cancellation comes too late."""


class Engine:
    """Submit, follow and cancel operations."""

    def __init__(
        self,
        parts: Parts,
        ended: Callable[[Operation], None] = lambda operation: None,
        steps: Mapping[Step, StepFunction] = STEPS,
    ) -> None:
        self._parts = parts
        self._ended = ended
        self._record = parts.record
        self._store = parts.record.store
        self._steps = steps
        self._turns = Turns()
        self._runs: dict[int, Run] = {}
        self._opening = asyncio.Lock()

    async def start(self) -> None:
        """Go on with what an earlier run of the daemon left unfinished."""
        for operation in await self._store.operations(unfinished=True):
            self._begin(operation)

    async def stop(self) -> None:
        """Let go of all operations where they are; the next start goes on with them."""
        tasks = [task for run in self._runs.values() for task in (run.task, *run.rescues) if task]
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
    ) -> Sequence[Operation]:
        """Open operations for the nodes: one for those that are free, one behind each holder."""
        async with self._opening:
            wanted = [
                Operation(
                    0,
                    kind,
                    tuple(part),
                    asked_by=asked_by,
                    reason=reason,
                    created_at=self._record.now(),
                )
                for part in self._parted(kind, nodes)
            ]
            opened = await self._store.open(wanted, requests)
            for operation in opened:
                self._begin(operation)
        return opened

    def _parted(self, kind: Kind, nodes: Iterable[str]) -> list[list[str]]:
        """A busy node must not hold up free ones; an operation on the site stays whole."""
        names = list(nodes)
        if kind not in (Kind.RESUME, Kind.SUSPEND):
            return [names]
        parts: dict[int | None, list[str]] = defaultdict(list)
        for name in names:
            parts[self._turns.ahead(name)].append(name)
        return list(parts.values())

    async def cancel(self, id: int, by: str) -> bool:
        """Stop an operation; nodes still on their way up are given back. False if it is over."""
        run = self._runs.get(id)
        if run is None or run.task is None or run.finishing:
            return False
        run.cancelled_by = by
        run.task.cancel()
        await run.ended.wait()
        return True

    async def wait(self, id: int) -> Operation | None:
        """The operation once it has ended."""
        if run := self._runs.get(id):
            await run.ended.wait()
        return await self._store.operation(id)

    async def idle(self) -> None:
        """Until nothing runs."""
        while self._runs:
            await next(iter(self._runs.values())).ended.wait()

    def running(self, id: int) -> Operation | None:
        run = self._runs.get(id)
        return run.operation if run else None

    def _begin(self, operation: Operation) -> None:
        run = Run(operation)
        self._runs[operation.id] = run
        self._turns.join(operation.id, operation.claims)
        run.task = asyncio.create_task(self._run(run), name=f"operation {operation.id}")

    async def _run(self, run: Run) -> None:
        """One operation from its turn to its end. Only a stop of the daemon leaves it unended."""
        while True:
            try:
                await self._guarded(run)
            except StoreError as error:
                self._record.complain("record not writable, trying again", str(error))
                await asyncio.gather(*run.rescues, return_exceptions=True)
                run.rescues.clear()
                await asyncio.sleep(STORE_RETRY_S)
                continue
            break
        del self._runs[run.operation.id]
        self._turns.leave(run.operation.id)
        run.ended.set()
        self._ended(run.operation)

    async def _guarded(self, run: Run) -> None:
        try:
            await self._take_turn(run)
            await self._take_steps(run)
            end = _outcome(run.operation), ""
        except Stopped as stopped:
            end = stopped.state, stopped.reason
        except (SiteError, Unavailable, CloudError) as error:
            end = OperationState.FAILED, str(error)
            self._rescue(run, dict.fromkeys(run.operation.standing, end[1]))
        except asyncio.CancelledError:
            if run.cancelled_by is None:
                raise
            end = OperationState.CANCELLED, f"cancelled by {run.cancelled_by}"
            self._rescue(run, dict.fromkeys(run.operation.standing, end[1]))
        except StoreError:
            raise
        except Exception as error:
            self._record.complain("operation broke", traceback.format_exc())
            end = OperationState.FAILED, f"a defect of Springtide: {error!r}; see the log"
            self._rescue(run, dict.fromkeys(run.operation.standing, end[1]))
        run.finishing = True
        await asyncio.gather(*run.rescues)
        await self._end(run, *end)

    async def _take_turn(self, run: Run) -> None:
        operation = run.operation
        limit_s = self._parts.spec.timing.lock
        try:
            async with asyncio.timeout(limit_s):
                await self._turns.wait(operation.id)
        except TimeoutError:
            why = self._blocked(operation.id, limit_s)
            if operation.kind is Kind.RESUME:
                await give_back(self._work(run), dict.fromkeys(operation.standing, why))
            raise Stopped(OperationState.FAILED, why) from None
        if held := await self._store.lease(operation.id, operation.claims):
            raise Stopped(OperationState.FAILED, f"leased by another daemon: {_holders(held)}")

    def _blocked(self, id: int, limit_s: float) -> str:
        held = self._turns.holders(id)
        return (
            f"waited {limit_s:.0f} s for {_holders(held)}; "
            "see `tide operations`, cancel that one or raise timing.lock"
        )

    async def _take_steps(self, run: Run) -> None:
        operation = run.operation
        if operation.state is OperationState.QUEUED:
            now = self._record.now()
            begun = replace(operation, state=OperationState.RUNNING, started_at=now)
            await self._save(run, begun, "operation started", _describe(begun))
        elif operation.fallen:
            self._rescue(run, dict(operation.fallen))
        while step := run.operation.step:
            fallen = await self._steps[step](self._work(run))
            done = replace(
                run.operation,
                next_step=run.operation.next_step + 1,
                fallen={**run.operation.fallen, **fallen},
            )
            await self._save(run, done, "step done", step.value)
            self._rescue(run, fallen)

    def _rescue(self, run: Run, fallen: Fallen) -> None:
        """Clean up after nodes that fell out, beside the steps of those that stand."""
        if fallen and run.operation.kind in STARTS_NODES:
            work = self._work(run)
            run.rescues.append(asyncio.create_task(rescue(work, fallen)))

    async def _end(self, run: Run, state: OperationState, why: str) -> None:
        ended = replace(
            run.operation,
            state=state,
            ended_at=self._record.now(),
            reason=why or run.operation.reason,
        )
        await self._store.release(ended.id)
        await self._save(run, ended, "operation ended", f"{state}: {why}" if why else str(state))

    async def _save(self, run: Run, operation: Operation, what: str, detail: str) -> None:
        await self._record.progress(operation, what, detail)
        run.operation = operation

    def _work(self, run: Run) -> Work:
        return Work(self._parts, run.operation, run.operation.standing)


def _outcome(operation: Operation) -> OperationState:
    if not operation.fallen:
        return OperationState.DONE
    return OperationState.PARTLY if operation.standing else OperationState.FAILED


def _describe(operation: Operation) -> str:
    return f"{operation.kind} {fold(operation.nodes)}".rstrip()


def _holders(held: Mapping[str, int]) -> str:
    by_holder: dict[int, list[str]] = defaultdict(list)
    for name, holder in held.items():
        by_holder[holder].append(name)
    return ", ".join(
        f"{'the site' if names == [SITE] else fold(n for n in names if n != SITE)}"
        f" (operation {holder})"
        for holder, names in sorted(by_holder.items())
    )
