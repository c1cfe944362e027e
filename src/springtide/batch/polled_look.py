"""Looks at a polled batch system: one reading, and what is wanted of its nodes beside it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from springtide.batch.marks import Book, Course, Drain, Mark, Marks, by_reason
from springtide.batch.polled_view import (
    has_arrived,
    is_lost,
    is_ours,
    is_settled,
    seen_of,
    shown,
    shown_job,
)
from springtide.node.entry import first_version
from springtide.nodeset import fold
from springtide.ports import (
    BatchNode,
    Health,
    Job,
    Member,
    NotTaken,
    Queue,
    Reading,
    Remembers,
    Site,
    Unavailable,
)

RESTART_S = 180.0
"""A batch system that has just started may not have heard from its nodes yet, and we may not have
noticed: only what it shows as down for so long is down."""
STEP_S = RESTART_S / 3
"""A time without a look counts as no more than this: clocks jump, and what is true stays so."""
MANY = 16
"""If so many parts of the nodes are refused and none is taken, every part of them would be."""
Change = Callable[[Sequence[str]], Awaitable[object]]
Ask = Callable[[], Awaitable[object]]


async def refusals(names: Sequence[str], call: Change, answers: Ask) -> dict[str, str]:
    """Have something done to nodes; answers those for which it was refused, and why.

    With one command, if possible. Nodes that are refused must not keep the others: they are found
    by halves, as long as the batch system answers at all, or else by what NotTaken says of them.
    """
    parts, refused, any_done = [names] if names else [], dict[str, str](), False
    while parts:
        left = await _left(parts, call)
        any_done |= len(left) < len(parts)
        split = [some for some, _ in left if len(some) > 1]
        hopeless = len(left) >= MANY and not any_done
        if split and (hopeless or not await _does(answers)):
            return refused | {name: why for some, why in left for name in some}
        refused |= {some[0]: why for some, why in left if len(some) == 1}
        parts = [half for some in split for half in _halves(some)]
    return refused


async def _left(parts: Sequence[Sequence[str]], call: Change) -> list[tuple[Sequence[str], str]]:
    """Parts for which it was refused, and why."""
    left: list[tuple[Sequence[str], str]] = []
    for some in parts:
        try:
            await call(some)
        except NotTaken as error:
            left += [([name], why) for name, why in error.why.items()]
        except Unavailable as error:
            left.append((some, str(error)))
    return left


async def _does(answers: Ask) -> bool:
    try:
        await answers()
    except Unavailable:
        return False
    return True


def _halves(names: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    middle = len(names) // 2
    return names[:middle], names[middle:]


def in_words(refused: Mapping[str, str]) -> str:
    """The nodes of each reason."""
    found: dict[str, list[str]] = {}
    for name, why in refused.items():
        found.setdefault(why, []).append(name)
    return "; ".join(f"{fold(names)}: {why}" for why, names in found.items())


@dataclass(frozen=True, slots=True)
class Look:
    """One reading, with what was wanted of the nodes when it was asked for."""

    reading: Reading
    marks: Marks
    nodes: Mapping[str, BatchNode]

    def health(self, name: str) -> Health:
        return seen_of(self.reading, name).health

    def there(self, names: Iterable[str]) -> list[str]:
        """Those that the batch system knows as more than off."""
        return [name for name in names if self.health(name) is not Health.ABSENT]


class Watched:
    """What `Polled` knows."""

    def __init__(
        self,
        queue: Queue,
        members: Mapping[str, Member],
        book: Book,
        now: Callable[[], float],
        planned: Callable[[Site], Mapping[str, str]] = lambda site: {},
    ) -> None:
        """`planned` are addresses that nodes will have, as far as they are known before."""
        self._planned = planned
        self.queue = queue
        self.members = members
        """All nodes of ours, without addresses."""
        self._book = book
        self._now = now
        self._looked_at = 0.0
        self._unheard_s: dict[str, float] = {}
        """For how long the batch system heard nothing of nodes, as far as somebody looked."""
        self.refused: dict[str, str] = {}
        """Commands of looks that were refused when they were last tried, in words."""
        self.renewed: dict[str, str] = {}
        """Nodes whose drain the batch system had forgotten, and its reason; for who tells of it."""

    async def look(self) -> Look:
        """One reading. Nodes that are heard from for the first time are in service from then on.

        Marks are older than it: what it shows of a node that joined was heard since.
        """
        marks = await self._book.read()
        reading = await self._read()
        arrived = {
            name: mark
            for name, mark in marks.nodes.items()
            if mark.course is Course.STARTING and name in self.members
            if has_arrived(mark, seen_of(reading, name))
        }
        drains = {name: one for name, one in marks.drains.items() if name in self.members}
        lost = {name: one for name, one in drains.items() if is_lost(one, name, reading)}
        if arrived:
            marks = await self._welcome(reading, marks, arrived)
        if lost:
            marks = await self._renew(reading, marks, lost)
        if arrived or lost:
            reading = await self._read()
        marks = await self._settle(reading, marks)
        silent = self._silent(reading)
        nodes = {name: shown(name, reading, marks, name in silent) for name in self.members}
        return Look(reading, marks, nodes)

    async def _read(self) -> Reading:
        try:
            return await self.queue.read()
        except Unavailable:
            self._unheard_s.clear()
            raise

    def _silent(self, reading: Reading) -> set[str]:
        """Nodes that have not been heard from for so long that it must be true."""
        now, known = self._now(), self._unheard_s
        step_s = max(0.0, min(now - self._looked_at, STEP_S))
        unheard = [n for n in self.members if seen_of(reading, n).health is not Health.UP]
        self._looked_at = now
        self._unheard_s = {n: known[n] + step_s if n in known else 0.0 for n in unheard}
        return {name for name, silent_s in self._unheard_s.items() if silent_s >= RESTART_S}

    async def _welcome(self, reading: Reading, marks: Marks, arrived: Mapping[str, Mark]) -> Marks:
        """They take jobs, unless somebody wants otherwise, who need not have said why.

        Nodes for which that is refused are not in service; others do not wait for them.
        """
        seen = [seen_of(reading, name) for name in arrived]
        free = [one for one in seen if one.name not in marks.drains]
        closed = [one.name for one in free if is_ours(one)]
        left = await self._tried("undrain", closed, self.queue.undrain)
        drains = marks.drains
        open_ = {n.name: drains[n.name] for n in seen if n.name in drains and not n.drained}
        for reason, names in by_reason(open_).items():
            left += await self._tried("drain", names, partial(self.queue.drain, reason=reason))
        await self._wake()
        arrived = {name: mark for name, mark in arrived.items() if name not in left}
        up = {name: replace(mark, course=Course.UP) for name, mark in arrived.items()}
        await self._book.change(
            lambda known: known.marked({n: up[n] for n in up if known.nodes.get(n) == arrived[n]})
        )
        return marks.marked(up)

    async def _renew(self, reading: Reading, marks: Marks, lost: Mapping[str, Drain]) -> Marks:
        """Drain again what was drained just before the batch system was killed."""
        left: list[str] = []
        for reason, names in by_reason(lost).items():
            left += await self._tried("drain", names, partial(self.queue.drain, reason=reason))
        now, life = self._now(), reading.started_at
        again = {n: replace(lost[n], at=now, life=life) for n in lost if n not in left}

        def same(known: Marks) -> dict[str, Drain]:
            return {n: one for n, one in again.items() if known.drains.get(n) == lost[n]}

        await self._book.change(lambda known: known.drained(same(known)))
        self.renewed |= {name: drain.reason for name, drain in again.items()}
        return marks.drained(again)

    async def _settle(self, reading: Reading, marks: Marks) -> Marks:
        """Who ends a drain from now on means it, whenever the batch system starts."""
        now, drains = self._now(), marks.drains
        sure = [name for name in drains if is_settled(drains[name], name, reading, now)]
        if not sure:
            return marks
        await self._book.change(
            lambda known: known.settled(n for n in sure if known.drains.get(n) == drains[n])
        )
        return marks.settled(sure)

    async def _wake(self) -> None:
        """Jobs start sooner for it; they start without it too."""
        try:
            await self.queue.wake()
        except Unavailable as error:
            self.refused["wake"] = f"it cannot be woken: {error}"
        else:
            self.refused.pop("wake", None)

    async def _tried(self, what: str, names: list[str], call: Change) -> list[str]:
        """Those for which a command was refused."""
        left = await refusals(names, call, self.queue.version)
        if names:
            self.refused.pop(what, None)
        if left:
            self.refused[what] = f"{what} of {in_words(left)}"
        return list(left)

    async def nodes(self, names: Iterable[str] | None = None) -> Mapping[str, BatchNode]:
        seen = (await self.look()).nodes
        return seen if names is None else {name: seen[name] for name in names if name in seen}

    async def jobs(self) -> Sequence[Job]:
        return [shown_job(job) for job in (await self._read()).jobs]

    async def past_job(self, id: str) -> Job | None:
        """Queues are read for what is yet to do; some know more."""
        return await self.queue.past_job(id) if isinstance(self.queue, Remembers) else None

    async def version(self) -> str:
        """Its number, as any other has it: what it is a number of its kind tells."""
        said = await self.queue.version()
        return first_version(said) or said

    async def require(self) -> None:
        """See that it could have all nodes of ours; raises Unavailable, with what to do first."""
        await self.require_answer()
        try:
            await self.queue.require(self.members.values())
        except Unavailable as error:
            raise Unavailable(f"{error}; nothing was changed") from error

    async def require_answer(self, todo: str = "try again when it does") -> None:
        """For whoever has not begun yet; raises Unavailable."""
        try:
            await self.queue.version()
        except Unavailable as error:
            away = "the batch system does not answer; nothing was changed"
            raise Unavailable(f"{away}; {todo}: {error}") from error

    async def standing(self) -> str:
        """Not ours to run."""
        return ""
