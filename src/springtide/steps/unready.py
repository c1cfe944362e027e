"""Keeps jobs from nodes that Ansible has yet to set up: slurmd runs as soon as they have booted.

Part of the steps from `create instances` to `wait registered`. Slurm forgets the reason of a drain
when a node registers that it did not ask for. So the record has, for each node that is yet to be
set up, whether the drain that it has is ours to end.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from springtide.model import Kind
from springtide.ports import ITSELF, OURS, UNREADY, BatchNode, Power, Unavailable
from springtide.steps.work import Fallen, Parts, Work, insist
from springtide.triage import has_forgotten_drain

THEIRS = "a person"
WATCH_S = 1.0
"""Between two looks at who has drained nodes that are yet to register."""


async def close(work: Work, names: Sequence[str]) -> Fallen:
    """Before they are made; nodes that cannot be closed fall out.

    A batch system that is yet to start gives them no jobs, and one that is polled has them join
    when they are set up.
    """
    parts, new = work.parts, served(work, names)
    if not new or parts.spec.polled or parts.stopped or not parts.applied.spec:
        return {}
    if work.operation.kind is Kind.DEPLOY and await parts.batch.standing():
        return {}
    lock_s = parts.spec.timing.lock
    try:
        seen = await insist(partial(parts.batch.nodes, new), lock_s)
        before = await _marks(parts, seen)
        left = [
            n for n, node in seen.items() if before.get(n) == OURS and has_forgotten_drain(node)
        ]
        ours = [n for n, node in seen.items() if n in left or not _is_persons(node)]
        for name in seen:
            await _mark(parts, name, OURS if name in ours else THEIRS)
        why = f"{UNREADY} (operation {work.operation.id})"
        await insist(partial(parts.batch.drain, ours, why), lock_s)
    except Unavailable as error:
        why = f"jobs could not be kept from it until Ansible has set it up: {error}"
        return dict.fromkeys(new, f"it was not made: {why}")
    return {}


async def heed(parts: Parts, names: Iterable[str]) -> None:
    """What people have drained meanwhile: it stays so, though Slurm may forget who it was."""
    if marked := await closed(parts, names):
        await notice(parts, (await parts.batch.nodes(marked)).values())


async def notice(parts: Parts, nodes: Iterable[BatchNode]) -> None:
    """The same, of nodes as they are seen now."""
    theirs = {node.name: node for node in nodes if _is_persons(node) and node.reason}
    for name in await closed(parts, theirs):
        await _mark(parts, name, THEIRS)
        parts.drains[name] = theirs[name].reason, str(theirs[name].owner)


@asynccontextmanager
async def watched(parts: Parts, names: Sequence[str]) -> AsyncIterator[None]:
    """What people drain meanwhile is heeded, also before the batch system hears from the nodes."""
    watch = asyncio.create_task(_watch(parts, names))
    try:
        yield
    finally:
        watch.cancel()
        await asyncio.wait([watch])
    if not watch.cancelled():
        watch.result()


async def _watch(parts: Parts, names: Sequence[str]) -> None:
    """Until all have registered; from then on a drain of ours says again whose it is."""
    waiting = await _marks(parts, names)
    while waiting:
        with suppress(Unavailable):
            seen = await parts.batch.nodes(waiting)
            await notice(parts, seen.values())
            heard = [name for name, node in seen.items() if node.registered]
            await _claimed(parts, await _marks(parts, heard), parts.spec.timing.lock)
            waiting = {name: mark for name, mark in waiting.items() if name not in heard}
        await asyncio.sleep(WATCH_S)


async def let_go(parts: Parts, names: Iterable[str]) -> None:
    """They are gone, but the batch system that has heard from them would give them jobs."""
    marks, lock_s = await _marks(parts, names), parts.spec.timing.lock
    seen = await _claimed(parts, marks, lock_s)
    if heard := [node.name for node in seen if node.power is Power.UP]:
        why = "it is gone, and was never set up"
        await insist(partial(parts.batch.give_back, heard, why), lock_s)
    await open_up(parts, marks, lock_s)


async def open_up(parts: Parts, names: Iterable[str], lock_s: float) -> None:
    """They are set up, or off; a drain that somebody has made since stays."""
    marks = await _marks(parts, names)
    seen = await _claimed(parts, marks, lock_s)
    hidden = [node.name for node in seen if marks[node.name] == OURS and _is_hidden(node)]
    for some, by in ((marks, OURS), (hidden, None)):
        if some:
            await insist(partial(parts.batch.undrain, list(some), by), lock_s)
    for name in marks:
        await _mark(parts, name, "")


async def _claimed(parts: Parts, marks: Mapping[str, str], lock_s: float) -> Collection[BatchNode]:
    """How they are, once drains of ours are ours again that Slurm has forgotten the reason of."""
    if not marks:
        return ()
    seen = await insist(partial(parts.batch.nodes, marks), lock_s)
    ours = [node for node in seen.values() if marks[node.name] == OURS]
    if lost := [node.name for node in ours if has_forgotten_drain(node)]:
        await insist(partial(parts.batch.drain, lost, UNREADY), lock_s)
    return seen.values()


async def closed(parts: Parts, names: Iterable[str]) -> Collection[str]:
    """Those of them that are yet to be set up."""
    return await _marks(parts, names)


def served(work: Work, names: Sequence[str]) -> list[str]:
    """Those that Ansible sets up in this operation."""
    software, starts = work.parts.software, (Kind.ENLARGE, Kind.DEPLOY)
    if software is None or work.operation.kind not in starts:
        return []
    return [node.name for node in work.record.of(names) if software.serves(node.group)]


def _is_hidden(node: BatchNode) -> bool:
    """Whether it may be drained, for all that one can see of it."""
    return node.power is Power.DOWN and not node.drained and node.owner is None


def _is_persons(node: BatchNode) -> bool:
    return node.drained and node.owner not in (None, OURS, ITSELF)


async def _marks(parts: Parts, names: Iterable[str]) -> Mapping[str, str]:
    found = [(name, await parts.record.store.get(_key(name))) for name in names]
    return {name: mark for name, mark in found if mark}


async def _mark(parts: Parts, name: str, whose: str) -> None:
    await parts.record.store.put(_key(name), whose)


def _key(name: str) -> str:
    return f"closed to jobs: {name}"
