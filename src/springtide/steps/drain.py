"""Taking nodes out of service without hurting their jobs, and giving them back."""

import asyncio
from collections.abc import Sequence
from functools import partial

from springtide import service
from springtide.model import IN_ROUNDS, Kind, NodeState
from springtide.ports import Power, Unavailable
from springtide.steps.registration import tell_instances
from springtide.steps.work import Fallen, Work, insist

SHORTEST_S, LONGEST_S = 0.2, 10.0
JOBS_END_S = 5.0
"""Rebuild jobs that began together end within this, and their nodes are rebuilt together."""
SHARE = 0.02
"""The longer nodes have been draining, the less does another moment matter."""


async def drain(work: Work) -> Fallen:
    """Have the nodes take no new jobs, and wait until those they have are over.

    All must be free, unless the operation takes them in rounds: then those that are free go on.
    However short the time for it, whoever was asked is looked at once more.
    """
    if work.operation.options.get("via") == "batch":
        return await _drained_by_batch(work)
    await _retire(work)
    if work.operation.kind is Kind.STOP:
        await insist(work.parts.batch.close, work.parts.spec.timing.lock)
    await _rest(work)
    began_at, limit_s = work.operation.started_at or work.record.now(), limit(work)
    asked: frozenset[str] = frozenset()
    while True:
        seen = await look(work)
        end = work.record.now() - began_at
        if not (seen.busy or seen.undrained or seen.unserved):
            return _some(work, seen.free)
        jobs_end = work.operation.options.get("by_jobs") and end < min(JOBS_END_S, limit_s)
        if seen.free and work.operation.kind in IN_ROUNDS and not jobs_end:
            return _some(work, seen.free)
        if end >= limit_s and asked.issuperset(seen.undrained):
            return service.undrainable(work.names, seen.busy, _told(work, limit_s))
        asked |= frozenset(seen.undrained)
        await asyncio.sleep(_pause_s(end, limit_s))


def limit(work: Work) -> float:
    return float(work.operation.options.get("limit", work.parts.spec.timing.drain))


def _told(work: Work, limit_s: float) -> str:
    return f"{limit_s:.0f} s" + ("" if "limit" in work.operation.options else " (timing.drain)")


def _pause_s(waited_s: float, limit_s: float) -> float:
    return min(max(SHORTEST_S, SHARE * waited_s), LONGEST_S, limit_s)


async def _drained_by_batch(work: Work) -> Fallen:
    """The batch system has drained them itself, if it still waits for their boot.

    A call of its program that came late finds nodes in service, which are left alone.
    """
    lock_s = work.parts.spec.timing.lock
    seen = await insist(partial(work.parts.batch.nodes, work.names), lock_s)
    stale = [name for name in work.names if name in seen and seen[name].power is Power.UP]
    await _retire(work.on(name for name in work.names if name not in stale))
    return dict.fromkeys(stale, "the batch system waits no more for it to boot: left alone")


async def _rest(work: Work) -> None:
    """Nodes that are off must not be started by a job while they leave.

    Asked once: of what the batch system hides it tells nothing.
    """
    if work.operation.kind is not Kind.SHRINK or not work.names:
        return
    batch, lock_s = work.parts.batch, work.parts.spec.timing.lock
    seen = await insist(partial(batch.nodes, work.names), lock_s)
    resting = service.draining(work.record.of(work.names), seen).resting
    if resting:
        await insist(partial(batch.drain, resting, _why(work)), lock_s)


def _why(work: Work) -> str:
    return f"{work.operation.kind} by {work.operation.asked_by} (operation {work.operation.id})"


async def _retire(work: Work) -> None:
    ready = work.record.of(work.names, NodeState.READY)
    moves = [node.to(NodeState.DRAINING, reason="") for node in ready]
    await work.record.move(moves, "node draining", work.operation.id)


async def look(work: Work) -> service.Draining:
    """How far the nodes are, and on with those that are not there yet."""
    batch, lock_s = work.parts.batch, work.parts.spec.timing.lock
    nodes = work.record.of(work.names)
    seen = service.draining(nodes, await insist(partial(batch.nodes, work.names), lock_s))
    why = _why(work)
    if work.operation.options.get("now"):
        await insist(partial(batch.give_back, seen.busy, why), lock_s)
    if seen.undrained:
        await insist(partial(batch.drain, seen.undrained, why), lock_s)
    if seen.unserved:
        await insist(partial(batch.give_back, seen.unserved, why), lock_s)
    return seen


def _some(work: Work, free: Sequence[str]) -> Fallen:
    """The first of those that are free; the others are for later."""
    if work.operation.kind in IN_ROUNDS:
        batch = work.operation.options.get("batch") or len(free)
        work.later.update(set(work.names) - set(free[:batch]))
    return {}


async def undrain(work: Work) -> Fallen:
    """Back to service, unless somebody else drained them: then they stay so."""
    try:
        await insist(partial(work.parts.batch.undrain, work.names), work.parts.spec.timing.lock)
    except Unavailable as error:
        return dict.fromkeys(work.names, f"it could not be undrained: {error}")
    kept = work.record.of(work.names, NodeState.DRAINING)
    moves = [node.to(NodeState.READY) for node in kept]
    await work.record.move(moves, "node back in service", work.operation.id)
    await tell_instances(work)
    return {}
