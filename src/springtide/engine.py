"""Runs operations: queues them per node, leases, runs their steps, continues after a crash.

The daemon owns one Engine. Each operation is one task; what it did is on disk before the next
step begins, so a restart goes on at the first unfinished step.
"""

import asyncio
import traceback
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from springtide import decide
from springtide.model import (
    CHANGES_SITE,
    DRAINS,
    IN_ROUNDS,
    SITE,
    STARTS_NODES,
    Kind,
    NodeState,
    Operation,
    OperationState,
    Step,
)
from springtide.nodeset import fold
from springtide.ports import CloudError, StoreError, Unavailable
from springtide.record import whole
from springtide.steps import STEPS, Fallen, Parts, StepFunction, Work, rescue
from springtide.steps.inventory import release
from springtide.steps.rescue import give_back_unstarted
from springtide.steps.site import SiteError
from springtide.turns import Turns

RETRY_S = 5.0
OF_STOPPED = frozenset({Kind.DEPLOY, Kind.STOP, Kind.SUSPEND, Kind.DESTROY})
"""What may be done with a cluster that people stopped."""
ENDS_OFF = frozenset({Kind.SUSPEND, Kind.REPAIR, Kind.SHRINK})
"""Operations that need nothing more of a node that is off."""
PARTED = frozenset({Kind.RESUME, Kind.SUSPEND, Kind.REBUILD, Kind.REPAIR})
"""Operations of which each node may go its own way; what changes the cluster's size stays whole."""
Change = Callable[[Operation], Operation]


class Refused(Exception):
    """What was asked of the engine cannot be done now; the text says why."""


class Stopped(Exception):
    """The operation goes no further, for the reason given."""


class Cancelled(Stopped):
    """Somebody wanted it to end."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an operation ends, and why if not well."""

    state: OperationState
    reason: str = ""


@dataclass(slots=True)
class Run:
    """An operation in memory: its task, and what fell out of it and is being cleaned up."""

    operation: Operation
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    rescues: dict[asyncio.Task[None], Fallen] = field(default_factory=dict)
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)
    cancelled_by: str | None = None

    @property
    def began(self) -> bool:
        """Before that it has touched nothing, and its nodes may be another's."""
        return self.operation.state is OperationState.RUNNING

    @property
    def has_touched(self) -> bool:
        """Whether nodes in service have lost what they had: then there is no way back."""
        drains = self.operation.step is Step.DRAIN
        return self.began and self.operation.kind not in STARTS_NODES and not drains

    @property
    def fallen(self) -> Fallen:
        """Nodes that fell out and are still its own; others may have been let go long since."""
        done = frozenset(self.operation.done)
        return {name: why for name, why in self.operation.fallen.items() if name not in done}

    @property
    def in_rescue(self) -> frozenset[str]:
        running = (names for task, names in self.rescues.items() if not task.done())
        return frozenset(name for names in running for name in names)


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
        self._destroyed = False

    async def start(self) -> None:
        """Go on with what an earlier run of the daemon left unfinished."""
        unfinished = await self._store.operations(unfinished=True)
        for operation in unfinished:
            await self._store.release(operation.id, operation.done)
        for operation in unfinished:
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
        options: Mapping[str, Any] | None = None,
    ) -> Sequence[Operation]:
        """Open operations for the nodes: one for those that are free, one behind each holder."""
        answered = tuple(requests)
        async with self._opening:
            if self._destroyed:
                raise Refused("the cluster is destroyed")
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
                for part in self._parted(kind, nodes)
            ]
            opened = await self._store.open(wanted, answered)
            for operation in opened:
                self._begin(operation)
        return opened

    def _parted(self, kind: Kind, nodes: Iterable[str]) -> list[list[str]]:
        """A busy node must not hold up free ones."""
        names = list(nodes)
        if kind not in PARTED:
            return [names]
        parts: dict[int | None, list[str]] = defaultdict(list)
        for name in names:
            parts[self._turns.ahead(name)].append(name)
        return list(parts.values())

    async def cancel(self, id: int, by: str) -> None:
        """Stop an operation; nodes still on their way up are given back."""
        run = self._runs.get(id)
        if run is None or run.task is None or run.operation.verdict:
            raise Refused(f"operation {id} is not running")
        if run.has_touched:
            await self._cancel_later(run, by)
            return
        run.cancelled_by = by
        run.task.cancel()
        await run.ended.wait()

    async def _cancel_later(self, run: Run, by: str) -> None:
        """Nodes that are between two instances must come to an end; further ones are spared."""
        id = run.operation.id
        if run.operation.kind not in IN_ROUNDS:
            raise Refused(f"operation {id} has begun to delete; let it end, then resume its nodes")

        def ending(operation: Operation) -> Operation:
            return replace(operation, options={**operation.options, "ends_for": by})

        await self._save(run, ending, "cancel asked", f"by {by}, after this round")

    def shrinking(self, names: Iterable[str]) -> list[int]:
        """The operations that take one of these nodes away, and could yet be cancelled."""
        wanted = frozenset(names)
        return [
            run.operation.id
            for run in self._runs.values()
            if run.operation.kind is Kind.SHRINK
            and not run.has_touched
            and wanted.intersection(run.operation.left)
        ]

    def at(self, *kinds: Kind) -> frozenset[str]:
        """The nodes that unfinished operations of these kinds are about."""
        runs = self._runs.values()
        found = (run.operation.left for run in runs if run.operation.kind in kinds)
        return frozenset(name for names in found for name in names)

    def under_way(self, *kinds: Kind) -> int:
        """How many nodes unfinished operations of these kinds took on and have not brought back."""
        runs = [run.operation for run in self._runs.values() if run.operation.kind in kinds]
        back = sum(len(set(operation.done) - operation.fallen.keys()) for operation in runs)
        return sum(len(operation.nodes) for operation in runs) - back

    def claimed(self) -> frozenset[str]:
        """All that operations are at or wait for, nodes and the site."""
        return self._turns.claimed()

    async def wait(self, id: int) -> Operation | None:
        """The operation once it has ended."""
        if run := self._runs.get(id):
            await run.ended.wait()
        return await self._store.operation(id)

    async def idle(self) -> None:
        """Until nothing runs."""
        while self._runs:
            await next(iter(self._runs.values())).ended.wait()

    def _begin(self, operation: Operation) -> None:
        self._turns.join(operation.id, operation.claims)
        self._start(operation)

    def _start(self, operation: Operation) -> None:
        run = Run(operation)
        self._runs[operation.id] = run
        run.task = asyncio.create_task(self._run(run), name=f"operation {operation.id}")

    async def _run(self, run: Run) -> None:
        """One operation from its turn to its end. Only a stop of the daemon leaves it unended."""
        pause_s = 0.0
        while True:
            try:
                await asyncio.sleep(pause_s)
                await self._live(run)
                return self._leave(run)
            except asyncio.CancelledError:
                if run.cancelled_by is None:
                    raise
                pause_s = 0.0
            except Exception:
                # As a rule the record cannot be written: nothing may be left half done for that.
                self._record.complain("operation held up, trying again", traceback.format_exc())
                pause_s = RETRY_S

    def _leave(self, run: Run) -> None:
        operation = run.operation
        if operation.kind is Kind.DESTROY and operation.state is OperationState.DONE:
            self._destroyed = True
        del self._runs[operation.id]
        self._turns.leave(operation.id)
        run.ended.set()
        self._ended(operation)

    async def _live(self, run: Run) -> None:
        """Steps, verdict, cleaning up, end; a verdict that is on disk is not judged again."""
        if run.operation.verdict is None:
            await self._judge(run, await self._attempt(run))
        await self._clean_up(run)
        await self._end(run)

    async def _attempt(self, run: Run) -> Verdict:
        try:
            if run.cancelled_by is None:
                await self._take_turn(run)
                await self._take_steps(run)
                return Verdict(_outcome(run.operation))
        except asyncio.CancelledError:
            if run.cancelled_by is None:
                raise
        except StoreError:
            raise
        except Cancelled as error:
            return Verdict(OperationState.CANCELLED, str(error))
        except (Stopped, SiteError, Unavailable, CloudError) as error:
            return Verdict(OperationState.FAILED, str(error))
        except Exception as error:
            self._record.complain("operation broke", traceback.format_exc())
            return Verdict(OperationState.FAILED, f"a defect of Springtide: {error!r}; see the log")
        return Verdict(OperationState.CANCELLED, f"cancelled by {run.cancelled_by}")

    async def _judge(self, run: Run, verdict: Verdict) -> None:
        """With an operation that ends early all its nodes fall, if they were its own."""

        def judged(operation: Operation) -> Operation:
            lost = operation.left if verdict.reason and run.began else ()
            return replace(
                operation,
                verdict=verdict.state,
                fallen={**operation.fallen, **dict.fromkeys(lost, verdict.reason)},
                reason=verdict.reason or operation.reason,
            )

        if verdict.state is OperationState.DONE:
            run.operation = judged(run.operation)
        else:
            await self._save(run, judged, "operation judged", verdict.reason)

    async def _clean_up(self, run: Run) -> None:
        """Wait for what runs beside; then for what is left, since some may have been cut off.

        Those that went through all steps need not wait for it.
        """
        if run.fallen:
            await self._let_go(run, run.operation.left)
        await asyncio.gather(*run.rescues, return_exceptions=True)
        run.rescues.clear()
        try:
            if run.began:
                await self._rescued(run, run.fallen)
            elif run.operation.kind is Kind.RESUME:
                await self._give_back(run)
        except StoreError:
            raise
        except Exception:
            self._record.complain("cleaning up broke", traceback.format_exc())

    async def _give_back(self, run: Run) -> None:
        """It never began: nobody has to wait behind it, but the batch system waits for nodes."""
        self._turns.let_go(run.operation.id, run.operation.claims)
        await give_back_unstarted(self._work(run), partial(self._raised, run))

    def _raised(self, but: Run) -> frozenset[str]:
        """Nodes that another operation brings up, or will, or else gives back itself."""
        others = [
            run for run in self._runs.values() if run is not but and not run.operation.verdict
        ]
        return frozenset(name for run in others for name in self._raised_by(run))

    def _raised_by(self, run: Run) -> Iterable[str]:
        """What is ready it has raised: if that is waited for, then since."""
        kind, names = run.operation.kind, run.operation.left
        if not run.began:
            return names if kind is Kind.RESUME else ()
        raises = kind in STARTS_NODES | IN_ROUNDS
        found = self._record.of(names) if raises else []
        return [node.name for node in found if node.state is not NodeState.READY]

    async def _take_turn(self, run: Run) -> None:
        operation = run.operation
        await self._wait_for_turn(operation)
        if self._destroyed:
            raise Stopped("the cluster is destroyed")
        if self._parts.stopped and operation.kind not in OF_STOPPED and not run.began:
            raise Stopped("the cluster was stopped meanwhile; `tide start` starts it")
        if held := await self._store.lease(operation.id, operation.claims):
            raise Stopped(f"leased by another daemon: {_holders(held)}")

    async def _wait_for_turn(self, operation: Operation) -> None:
        """Not for ever, but a suspend says so and waits on: its nodes must go some time."""
        limit_s = self._parts.spec.timing.lock
        try:
            async with asyncio.timeout(limit_s):
                await self._turns.wait(operation.id)
        except TimeoutError:
            why = self._blocked(operation.id, limit_s)
            if operation.kind is not Kind.SUSPEND:
                raise Stopped(why) from None
            await self._record.note("operation waits", operation=operation.id, detail=why)
            await self._turns.wait(operation.id)

    def _blocked(self, id: int, limit_s: float) -> str:
        held = self._turns.holders(id)
        return (
            f"waited {limit_s:.0f} s for {_holders(held)}; "
            "see `tide operations`, cancel that one or raise timing.lock"
        )

    async def _take_steps(self, run: Run) -> None:
        if not run.began:
            now = self._record.now()
            begun = partial(replace, state=OperationState.RUNNING, started_at=now)
            await self._save(run, begun, "operation started", _describe(run.operation))
        self._rescue(run, run.fallen)
        while step := run.operation.step:
            work = self._work(run)
            fallen = await self._steps[step](work)
            before = run.operation
            past = partial(Operation.past, fallen=fallen, later=work.later)
            await self._save(run, past, "step done", step.value)
            self._rescue(run, fallen)
            if run.operation.next_step < before.next_step:
                await self._between_rounds(run, before)

    async def _between_rounds(self, run: Run, before: Operation) -> None:
        """One after which nobody came back is the last: what broke it would break the rest too."""
        if by := run.operation.options.get("ends_for"):
            raise Cancelled(f"cancelled by {by}")
        if not set(before.round) - run.operation.fallen.keys():
            raise Stopped("none of a whole batch came back, so no further one was begun")
        await self._let_go(run, run.operation.done)
        await asyncio.sleep(run.operation.options.get("pause") or 0)

    async def _let_go(self, run: Run, names: Collection[str]) -> None:
        """Nodes that are done with are for others to take, but while the site is changed."""
        if names and run.operation.kind not in CHANGES_SITE:
            await whole(self._freed(run, tuple(names)))

    async def _freed(self, run: Run, names: Sequence[str]) -> None:
        """On disk first: what others may have by then, a restart must not take for its own."""
        await self._save(run, partial(_done_with, names=names))
        await self._store.release(run.operation.id, names)
        self._turns.let_go(run.operation.id, names)
        async with self._opening:
            for other in list(self._runs.values()):
                if self._is_split(other):
                    await self._split(other)

    def _is_split(self, run: Run) -> bool:
        parted = run.operation.kind in PARTED and not run.operation.verdict
        return parted and self._turns.is_split(run.operation.id)

    async def _split(self, run: Run) -> None:
        """One that waits begins at once where it is first, as an operation of its own."""
        id, names = run.operation.id, self._turns.firsts(run.operation.id)
        (opened,) = await self._store.open([replace(run.operation, id=0, nodes=names, done=())])
        if self._is_split(run):
            self._turns.hand_over(id, opened.id, names)
            self._start(opened)
            told = f"{fold(names)} goes on as operation {opened.id}"
            await self._save(run, partial(_done_with, names=names), "operation split", told)
        else:
            self._begin(opened)  # the other has its turn by now: this one will find all done

    async def _part(self, run: Run, names: Collection[str]) -> None:
        """Nodes that are gone before others: each may be started again when it is off.

        What left the cluster file stays until the batch system knows it no more.
        """
        operation, shrinks = run.operation, run.operation.kind is Kind.SHRINK
        if operation.step is not Step.DELETE_INSTANCES or operation.kind not in ENDS_OFF:
            return
        gone = frozenset(self._parts.wanted.node_group if shrinks else names).intersection(names)
        free = [name for name in operation.round if name in gone]
        if len(free) < len(operation.round):
            await release(self._work(run).on(free))
            await self._let_go(run, free)

    async def _drop(self, run: Run, fallen: Fallen) -> None:
        """Nodes that fell out in the middle of a step."""

        def after(operation: Operation) -> Operation:
            return replace(operation, fallen={**operation.fallen, **fallen})

        await self._save(run, after, "nodes fell out", _kinds(fallen))
        self._rescue(run, fallen)

    def _rescue(self, run: Run, fallen: Fallen) -> None:
        """Clean up after nodes that fell out, beside the steps of those that stand.

        Once at a time: when the first is done with a node, it may be another operation's.
        """
        ours = run.fallen.keys() - run.in_rescue
        if rest := {name: why for name, why in fallen.items() if name in ours}:
            run.rescues[asyncio.create_task(self._rescued(run, rest))] = rest

    async def _rescued(self, run: Run, fallen: Fallen) -> None:
        """Clean up, and let go of each node as soon as that is done."""
        if fallen and run.operation.kind in STARTS_NODES | DRAINS:
            await rescue(replace(self._work(run), part=partial(self._let_go, run)), fallen)
        else:
            await self._let_go(run, fallen)

    async def _end(self, run: Run) -> None:
        operation = run.operation
        assert operation.verdict is not None
        ended = replace(operation, state=operation.verdict, ended_at=self._record.now())
        await self._store.release(ended.id)
        await self._save(run, lambda _: ended, "operation ended", _epitaph(ended))

    async def _save(self, run: Run, change: Change, what: str = "", detail: str = "") -> None:
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

    def _work(self, run: Run) -> Work:
        drop, part = partial(self._drop, run), partial(self._part, run)
        return Work(self._parts, run.operation, run.operation.round, drop=drop, part=part)


def _done_with(operation: Operation, names: Iterable[str]) -> Operation:
    return replace(operation, done=tuple(dict.fromkeys((*operation.done, *names))))


def _outcome(operation: Operation) -> OperationState:
    if not operation.fallen:
        return OperationState.DONE
    return OperationState.PARTLY if operation.standing else OperationState.FAILED


def _epitaph(operation: Operation) -> str:
    """How it ended, and of what: the kinds of misfortune of its nodes, or its own."""
    kinds = _kinds(operation.fallen)
    if not kinds and operation.state in (OperationState.FAILED, OperationState.CANCELLED):
        kinds = operation.reason
    return "; ".join(filter(None, (operation.state.value, kinds)))


def _kinds(fallen: Mapping[str, str]) -> str:
    alike = decide.alike(fallen, fallen)
    return "; ".join(f"{fold(names)}: {fallen[names[0]]}" for names in alike)


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
