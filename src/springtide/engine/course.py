"""One operation, from its turn to its end: steps, what fell out of them, verdict."""

import asyncio
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from springtide.engine.run import (
    Cancelled,
    Run,
    Stopped,
    Verdict,
    describe,
    epitaph,
    holders,
    kinds,
    outcome,
)
from springtide.engine.runs import Runs
from springtide.model import DRAINS, STARTS_NODES, Kind, Operation, OperationState, Step
from springtide.ports import CloudError, StoreError, Unavailable
from springtide.steps import Fallen, Parts, StepFunction, Work, rescue
from springtide.steps.farewell import USED_AGAIN
from springtide.steps.inventory import release
from springtide.steps.rescue import give_back_unstarted
from springtide.steps.site import SiteError

RETRY_S = 5.0
OF_STOPPED = frozenset({Kind.DEPLOY, Kind.STOP, Kind.SUSPEND, Kind.DESTROY})
"""What may be done with a cluster that people stopped."""
ENDS_OFF = frozenset({Kind.SUSPEND, Kind.REPAIR, Kind.SHRINK})
"""Operations that need nothing more of a node that is off."""


@dataclass(frozen=True, slots=True)
class Course:
    """What happens to one run."""

    run: Run
    runs: Runs
    parts: Parts
    steps: Mapping[Step, StepFunction]

    async def run_to_end(self) -> None:
        """Only a stop of the daemon leaves it unended."""
        pause_s = 0.0
        while True:
            try:
                await asyncio.sleep(pause_s)
                await self._live()
                return self.runs.leave(self.run)
            except asyncio.CancelledError:
                if not self._is_cancelled:
                    raise
                pause_s = 0.0
            except Exception:
                # As a rule the record cannot be written: nothing may be left half done for that.
                trace = traceback.format_exc()
                self.parts.record.complain("operation held up, trying again", trace)
                pause_s = RETRY_S

    @property
    def _is_cancelled(self) -> bool:
        """Whether it is this operation that somebody cancelled, and not the daemon that stops."""
        return self.run.cancelled_by is not None and not self.runs.stopping

    async def _live(self) -> None:
        """Steps, verdict, cleaning up, end; a verdict that is on disk is not judged again."""
        if self.run.operation.verdict is None:
            await self._judge(await self._attempt())
        await self._clean_up()
        await self._end()

    async def _attempt(self) -> Verdict:
        try:
            if self.run.cancelled_by is None:
                await self._take_turn()
                await self._take_steps()
                return Verdict(outcome(self.run.operation))
        except asyncio.CancelledError:
            if not self._is_cancelled:
                raise
        except StoreError:
            raise
        except Cancelled as error:
            return Verdict(OperationState.CANCELLED, str(error))
        except (Stopped, SiteError, Unavailable, CloudError) as error:
            return Verdict(OperationState.FAILED, str(error))
        except Exception as error:
            self.parts.record.complain("operation broke", traceback.format_exc())
            return Verdict(OperationState.FAILED, f"a defect of Springtide: {error!r}; see the log")
        return Verdict(OperationState.CANCELLED, f"cancelled by {self.run.cancelled_by}")

    async def _take_turn(self) -> None:
        operation = self.run.operation
        if operation.kind is Kind.DESTROY:
            self.parts.ending = True  # who waits for the batch system would keep it waiting
        await self._wait_for_turn(operation)
        if self.runs.destroyed:
            raise Stopped("the cluster is destroyed")
        if self.parts.stopped and operation.kind not in OF_STOPPED and not self.run.began:
            raise Stopped("the cluster was stopped meanwhile; `tide start` starts it")
        if held := await self.parts.record.store.lease(operation.id, operation.claims):
            raise Stopped(f"leased by another daemon: {holders(held)}")

    async def _wait_for_turn(self, operation: Operation) -> None:
        """Not for ever, but a suspend says so and waits on: its nodes must go some time."""
        limit_s = self.parts.spec.timing.lock
        try:
            async with asyncio.timeout(limit_s):
                await self.runs.turns.wait(operation.id)
        except TimeoutError:
            why = self._blocked(operation.id, limit_s)
            if operation.kind is not Kind.SUSPEND:
                raise Stopped(why) from None
            await self.parts.record.note("operation waits", operation=operation.id, detail=why)
            await self.runs.turns.wait(operation.id)

    def _blocked(self, id: int, limit_s: float) -> str:
        held = self.runs.turns.holders(id)
        return (
            f"waited {limit_s:.0f} s for {holders(held)}; "
            "see `tide operations`, cancel that one or raise timing.lock"
        )

    async def _take_steps(self) -> None:
        if not self.run.began:
            now = self.parts.record.now()
            begun = partial(replace, state=OperationState.RUNNING, started_at=now)
            await self.runs.save(self.run, begun, "operation started", describe(self.run.operation))
        self._rescue(self.run.fallen)
        while step := self.run.operation.step:
            work = self._work()
            fallen = await self.steps[step](work)
            before = self.run.operation
            past = partial(Operation.past, fallen=fallen, later=work.later)
            await self.runs.save(self.run, past, "step done", step.value)
            self._rescue(fallen)
            if self.run.operation.next_step < before.next_step:
                await self._between_rounds(before)

    async def _between_rounds(self, before: Operation) -> None:
        """One after which nobody came back is the last: what broke it would break the rest too.

        Not of rebuilds that jobs asked for, of which each was for its own node.
        """
        if by := self.run.operation.options.get("ends_for"):
            raise Cancelled(f"cancelled by {by}")
        together = not self.run.operation.options.get("by_jobs")
        if together and _is_lost(before.round, self.run.operation.fallen):
            raise Stopped(
                "none of a whole batch came back as it should, so no further one was begun"
            )
        await self.runs.let_go(self.run, self.run.operation.done)
        await asyncio.sleep(self.run.operation.options.get("pause") or 0)

    async def _judge(self, verdict: Verdict) -> None:
        """With an operation that ends early all its nodes fall, if they were its own.

        Not those of a destroy that are gone: what it could not do then is not about them.
        """

        def judged(operation: Operation) -> Operation:
            begun = verdict.reason and self.run.began and not _has_parted(operation)
            lost = operation.left if begun else ()
            return replace(
                operation,
                verdict=verdict.state,
                fallen={**operation.fallen, **dict.fromkeys(lost, verdict.reason)},
                reason=verdict.reason or operation.reason,
            )

        if verdict.state is OperationState.DONE:
            self.run.operation = judged(self.run.operation)
        else:
            await self.runs.save(self.run, judged, "operation judged", verdict.reason)

    async def _clean_up(self) -> None:
        """Wait for what runs beside; then for what is left, since some may have been cut off.

        Those that went through all steps need not wait for it.
        """
        if self.run.fallen:
            await self.runs.let_go(self.run, self.run.operation.left)
        await asyncio.gather(*self.run.rescues, return_exceptions=True)
        self.run.rescues.clear()
        try:
            if self.run.began:
                await self._rescued(self.run.fallen)
            elif self.run.operation.kind is Kind.RESUME:
                await self._give_back()
        except StoreError:
            raise
        except Exception:
            self.parts.record.complain("cleaning up broke", traceback.format_exc())

    async def _give_back(self) -> None:
        """It never began: nobody has to wait behind it, but the batch system waits for nodes."""
        self.runs.turns.let_go(self.run.operation.id, self.run.operation.claims)
        await give_back_unstarted(self._work(), partial(self.runs.raised, self.run))

    async def _part(self, names: Collection[str]) -> None:
        """Nodes that are gone before others: each may be started again when it is off.

        What left the cluster file stays until the batch system knows it no more.
        """
        operation, shrinks = self.run.operation, self.run.operation.kind is Kind.SHRINK
        if operation.step is not Step.DELETE_INSTANCES or operation.kind not in ENDS_OFF:
            return
        gone = frozenset(self.parts.wanted.node_group if shrinks else names).intersection(names)
        free = [name for name in operation.round if name in gone]
        if len(free) < len(operation.round):
            await release(self._work().on(free))
            await self.runs.let_go(self.run, free)

    async def _drop(self, fallen: Fallen) -> None:
        """Nodes that fell out in the middle of a step."""

        def after(operation: Operation) -> Operation:
            return replace(operation, fallen={**operation.fallen, **fallen})

        await self.runs.save(self.run, after, "nodes fell out", kinds(fallen))
        self._rescue(fallen)

    async def _learn(self, causes: Fallen) -> None:
        """Why nodes fell out, as found while they are cleaned up after: who asked reads it here."""

        def after(operation: Operation) -> Operation:
            return replace(operation, fallen={**operation.fallen, **causes})

        await self.runs.save(self.run, after)

    def _rescue(self, fallen: Fallen) -> None:
        """Clean up after nodes that fell out, beside the steps of those that stand.

        Once at a time: when the first is done with a node, it may be another operation's.
        """
        ours = self.run.fallen.keys() - self.run.in_rescue
        if rest := {name: why for name, why in fallen.items() if name in ours}:
            self.run.rescues[asyncio.create_task(self._rescued(rest))] = rest

    async def _rescued(self, fallen: Fallen) -> None:
        """Clean up, and let go of each node as soon as that is done."""
        if fallen and self.run.operation.kind in STARTS_NODES | DRAINS:
            part = partial(self.runs.let_go, self.run)
            await rescue(replace(self._work(), part=part, learn=self._learn), fallen)
        else:
            await self.runs.let_go(self.run, fallen)

    async def _end(self) -> None:
        operation = self.run.operation
        assert operation.verdict is not None
        if operation.kind is Kind.DESTROY:
            self.parts.ending = False
        ended = replace(operation, state=operation.verdict, ended_at=self.parts.record.now())
        await self.parts.record.store.release(ended.id)
        await self.runs.save(self.run, lambda _: ended, "operation ended", epitaph(ended))

    def _work(self) -> Work:
        operation = self.run.operation
        return Work(self.parts, operation, operation.round, drop=self._drop, part=self._part)


def _has_parted(operation: Operation) -> bool:
    return operation.kind is Kind.DESTROY and operation.step is not Step.DELETE_INSTANCES


def _is_lost(round: Collection[str], fallen: Mapping[str, str]) -> bool:
    """Whether none of a round came back, and that tells something: who is used was never away."""
    came_back = set(round) - fallen.keys()
    return not came_back and any(why != USED_AGAIN for why in fallen.values())
