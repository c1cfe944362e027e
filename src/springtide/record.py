"""Every change of the record goes through here: to disk, into the log, to whoever listens.

Steps and engine move nodes and note events with a Record; the API and the prologs listen to it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from springtide.model import Event, Move, Node, NodeState, Operation
from springtide.nodeset import fold
from springtide.ports import Store

T = TypeVar("T")
Clock = Callable[[], float]
Listener = Callable[[Sequence[Node]], None]


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """Finish what was begun before a cancellation is felt: memory must not part from disk."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


class Record:
    """The store, with a mirror of all nodes in memory and people who want to know."""

    def __init__(self, store: Store, now: Clock) -> None:
        self.store = store
        self.now = now
        self.nodes: dict[str, Node] = {}
        self._listeners: list[Listener] = []
        self._log = structlog.get_logger("springtide")

    async def load(self, defined: Iterable[Node]) -> None:
        """Give each defined node a record and read them all."""
        await self.store.define(defined)
        self.nodes = dict(await self.store.nodes())

    async def define(self, nodes: Iterable[Node]) -> None:
        """Give further nodes a record; those that have one keep all but their group."""
        defined = list(nodes)
        await self.store.define(defined)
        for node in defined:
            known = self.nodes.get(node.name)
            self.nodes[node.name] = replace(known, group=node.group) if known else node

    def of(self, names: Iterable[str], *states: NodeState) -> list[Node]:
        """The records of these nodes that are in one of the states (any, if none is named)."""
        found = [self.nodes[name] for name in names if name in self.nodes]
        return [node for node in found if not states or node.state in states]

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        """Have `listener` called with the nodes of each change, until the block ends."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    async def move(
        self, moves: Sequence[Move], what: str, operation: int | None = None
    ) -> Sequence[Node]:
        """Move nodes, with one event each; answers those that moved."""
        return await whole(self._move(moves, what, operation)) if moves else ()

    async def _move(
        self, moves: Sequence[Move], what: str, operation: int | None
    ) -> Sequence[Node]:
        at = self.now()
        stamped = [Move(m.before, replace(m.after, changed_at=at)) for m in moves]
        events = [
            Event(at, what, m.after.name, operation, describe(m.before, m.after)) for m in stamped
        ]
        moved = await self.store.move(stamped, events)
        self.nodes.update({node.name: node for node in moved})
        await self._reread({m.before.name for m in moves} - {node.name for node in moved})
        self._tell(moved, events)
        return moved

    async def _reread(self, names: set[str]) -> None:
        """Moves that did not hold show that we remember wrongly."""
        if names:
            self.nodes.update(await self.store.nodes(names))

    async def note(
        self,
        what: str,
        *,
        nodes: Mapping[str, str] | None = None,
        operation: int | None = None,
        detail: str = "",
    ) -> None:
        """Keep an event: one for each of `nodes` (name → detail), or one without a node."""
        at = self.now()
        if nodes is None:
            events = [Event(at, what, None, operation, detail)]
        else:
            events = [Event(at, what, name, operation, why) for name, why in nodes.items()]
        await whole(self._append(events))

    async def _append(self, events: Sequence[Event]) -> None:
        await self.store.append(events)
        self._tell((), events)

    async def progress(self, operation: Operation, what: str, detail: str = "") -> None:
        """Save how far an operation is, with an event that says so."""
        event = Event(self.now(), what, None, operation.id, detail)
        await whole(self._progress(operation, event))

    async def _progress(self, operation: Operation, event: Event) -> None:
        await self.store.progress(operation, [event])
        self._tell((), [event])

    def log(self, what: str, detail: str) -> None:
        """Into the log alone: what is no event of the cluster's own."""
        self._log.info(what, detail=detail)

    def complain(self, what: str, detail: str) -> None:
        """Into the log alone: for when the store itself is the trouble."""
        self._log.error(what, detail=detail)

    def _tell(self, moved: Sequence[Node], events: Sequence[Event]) -> None:
        for listener in self._listeners:
            listener(moved)
        for (what, operation, detail), names in _alike(events).items():
            fields = {"operation": operation, "nodes": fold(names), "detail": detail}
            self._log.info(what, **{key: value for key, value in fields.items() if value})


def describe(before: Node, after: Node) -> str:
    """What of a node changed, beyond its state, in words."""
    if after.reason and after.reason != before.reason:
        return after.reason
    if after.address and after.address != before.address:
        return f"{after.instance} at {after.address}, {after.flavor}, image {after.image}"
    if after.instance and after.instance != before.instance:
        return f"{after.instance}, {after.flavor}, image {after.image}"
    return f"generation {after.generation}" if after.generation != before.generation else ""


def _alike(events: Iterable[Event]) -> dict[tuple[str, int | None, str], list[str]]:
    """Events that differ only in their node, so that a thousand of them log as one line."""
    groups: dict[tuple[str, int | None, str], list[str]] = defaultdict(list)
    for event in events:
        names = groups[event.what, event.operation, event.detail]
        if event.node is not None:
            names.append(event.node)
    return groups
