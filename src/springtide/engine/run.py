"""An operation in memory, how it may end, and how its end is told."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from springtide import decide
from springtide.model import IN_ROUNDS, SITE, STARTS_NODES, Operation, OperationState, Step
from springtide.nodeset import fold
from springtide.steps import Fallen


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

    def cancel(self, by: str) -> None:
        """Not before its task has begun: one that never did would never tell that it ended."""
        self.cancelled_by = by
        asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        if self.task and not self.operation.verdict:
            self.task.cancel()

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


def done_with(operation: Operation, names: Iterable[str]) -> Operation:
    return replace(operation, done=tuple(dict.fromkeys((*operation.done, *names))))


def outcome(operation: Operation) -> OperationState:
    if not operation.fallen:
        return OperationState.DONE
    return OperationState.PARTLY if operation.standing else OperationState.FAILED


def epitaph(operation: Operation) -> str:
    """How it ended, and of what: the kinds of misfortune of its nodes, or its own."""
    told = kinds(operation.fallen)
    if not told and operation.state in (OperationState.FAILED, OperationState.CANCELLED):
        told = operation.reason
    return "; ".join(filter(None, (operation.state.value, told)))


def kinds(fallen: Mapping[str, str]) -> str:
    alike = decide.alike(fallen, fallen)
    return "; ".join(f"{fold(names)}: {fallen[names[0]]}" for names in alike)


def describe(operation: Operation) -> str:
    return f"{operation.kind} {fold(operation.nodes)}".rstrip()


def in_the_way(run: Run) -> str:
    """What others wait for, and how a person ends it, where that is possible."""
    id, what = run.operation.id, f"operation {run.operation.id} ({describe(run.operation)})"
    over = run.operation.verdict or (run.has_touched and run.operation.kind not in IN_ROUNDS)
    return what if over else f"{what}; `tide operations {id} --cancel` ends it"


def holders(held: Mapping[str, int]) -> str:
    by_holder: dict[int, list[str]] = defaultdict(list)
    for name, holder in held.items():
        by_holder[holder].append(name)
    return ", ".join(
        f"{'the site' if names == [SITE] else fold(n for n in names if n != SITE)}"
        f" (operation {holder})"
        for holder, names in sorted(by_holder.items())
    )
