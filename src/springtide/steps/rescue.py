"""What happens to nodes that fell out of an operation: given back, then cleaned up.

The engine runs it beside the further steps of the nodes that still stand, and again after a
crash, on nodes that may be anywhere on their way.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf

from springtide import decide, failures
from springtide.batch.polled import Polled
from springtide.model import DRAINS, STARTING, Kind, Move, NodeState
from springtide.ports import Unavailable
from springtide.steps.afresh import still_up
from springtide.steps.bootlogs import keep_log
from springtide.steps.giving_back import Look, give_back_closed
from springtide.steps.instances import remove
from springtide.steps.inventory import publish, refresh_inventory, release, tell_addresses
from springtide.steps.registration import LET_GO, wait_registered
from springtide.steps.telling import awaiting, tell
from springtide.steps.work import Fallen, Work, insist

REFUSED_S = 15.0
"""So long a batch system that answers may refuse to take nodes back."""


async def rescue(work: Work, fallen: Fallen) -> None:
    """Give the nodes back first, so that their jobs move on, then remove what they left.

    Nobody waits for the nodes of a deploy, nor may there be a batch system yet.
    """
    if work.operation.kind in DRAINS:
        await _return(work, fallen)
    fallen = await _fail(work, fallen | await _rejoin(work, fallen))
    await _remove_unknown(work, fallen)
    if work.operation.kind is Kind.RESUME:
        await _give_back(work, fallen)
    finish = partial(_finish, work, fallen)
    doomed = [n.name for n in work.record.of(fallen, NodeState.FAILED, NodeState.DELETING)]
    await finish([name for name in fallen if name not in doomed])
    await remove(replace(work, names=tuple(doomed), drop=None, part=finish), inf)


async def _remove_unknown(work: Work, fallen: Fallen) -> None:
    """Instances that a batch system which is away was never told of: they would cost meanwhile.

    If it answers, there is no hurry: it is asked about them, as about all others.
    """
    batch, failed = work.parts.batch, work.record.of(fallen, NodeState.FAILED)
    if not isinstance(batch, Polled):
        return
    names = await batch.untold(node.name for node in failed)
    try:
        if names:
            await batch.version()
    except Unavailable:
        alone = replace(work, names=tuple(names), drop=None, part=None, unasked=True)
        await remove(alone, work.parts.spec.timing.stop)


async def _finish(work: Work, fallen: Fallen, names: Collection[str]) -> None:
    """Nodes that left nothing behind, or nothing any more, are for others to take."""
    if names and work.operation.kind in DRAINS:
        await _report(work, {name: fallen[name] for name in names})
        await publish(work)
    elif names:
        await refresh_inventory(work.on(names))
    await work.part_with(names)


async def give_back_unstarted(work: Work, raised: Callable[[], Collection[str]]) -> None:
    """A resume that never began: what is waited for goes back, unless others bring it up.

    Its nodes were never its own, so no record is touched.
    """
    await _give_back(work, dict.fromkeys(work.names, work.operation.reason), raised)


async def _return(work: Work, fallen: Fallen) -> None:
    """Nodes that still have what they had go back to service, and so do queues."""
    if work.operation.kind is Kind.STOP:
        with suppress(Unavailable):
            await insist(work.parts.batch.open, work.parts.spec.timing.lock)
    whole = work.record.of(fallen, NodeState.DRAINING)
    await _serve(work, [node.to(NodeState.READY, reason=fallen[node.name]) for node in whole])


async def _serve(work: Work, moves: Sequence[Move]) -> None:
    """Nodes go back to service; why not all is as it should be is in their records."""
    names = [move.before.name for move in moves]
    with suppress(Unavailable):
        await insist(partial(work.parts.batch.undrain, names), work.parts.spec.timing.lock)
    await work.record.move(moves, "node back in service", work.operation.id)


async def _rejoin(work: Work, fallen: Fallen) -> Fallen:
    """Nodes that an update started afresh, and that merely lack what Ansible was to give them, go
    back to service as those do that ran on. Answers why others did not come so far."""
    if work.operation.kind is not Kind.UPDATE:
        return {}
    names = [name for name, why in fallen.items() if failures.is_unconfigured(why)]
    up = work.record.of(names, NodeState.BOOTING, NodeState.JOINING, NodeState.READY)
    back, lost = [node.name for node in up if node.reason != fallen[node.name]], Fallen()

    async def drop(more: Fallen) -> None:
        lost.update(more)

    again = replace(work, names=tuple(back), drop=drop)
    await drop(await tell_addresses(again))
    await drop(await wait_registered(again))
    if lost and work.learn:
        await work.learn(lost)
    serving = work.record.of(back, NodeState.READY)
    await _serve(work, [Move(node, replace(node, reason=fallen[node.name])) for node in serving])
    return lost


async def _fail(work: Work, fallen: Fallen) -> Fallen:
    """Answers the reasons, those of failed boots with their causes."""
    reasons = fallen | await _causes(work, fallen)
    starting = [node for node in work.record.of(fallen) if node.state in STARTING]
    await work.record.move(
        [node.to(NodeState.FAILED, reason=reasons[node.name]) for node in starting],
        "node failed",
        work.operation.id,
    )
    boots = [node.name for node in starting if failures.counts_as_failed(fallen[node.name])]
    why = {name: reasons[name] for name in boots}
    await work.parts.holding.failed_boots(why, work.parts.spec)
    causes = {name: why for name, why in reasons.items() if failures.is_telling(fallen[name], why)}
    if causes and work.learn:
        await work.learn(causes)
    return reasons


async def _causes(work: Work, fallen: Fallen) -> Fallen:
    """Why nodes did not come up: found out now, or before a crash and on record since."""
    failed = work.record.of(n for n, why in fallen.items() if failures.is_failed_boot(why))
    names = [node.name for node in failed if node.state in STARTING]
    shut_out = [name for name in names if failures.is_shut_out(fallen[name])]
    found = await keep_log(work, names, shut_out)
    known = {node.name: node.reason for node in failed if node.state not in STARTING}
    told = {name: failures.explain(fallen[name], cause) for name, cause in found.items()}
    return {name: why for name, why in known.items() if why} | told


async def _report(work: Work, fallen: Fallen) -> None:
    """A node that was in service and did not come back is shown as such, with the reason.

    What the batch system itself let go meanwhile is merely off; what has jobs is in service, though
    the record has lost it.
    """
    lock_s = work.parts.spec.timing.lock
    gone = [node.name for node in work.record.of(fallen, NodeState.OFF)]
    up = list[str]()
    with suppress(Unavailable):
        up = await _idle(work, await still_up(work, gone))
        for names in decide.alike(up, fallen):
            await insist(partial(work.parts.batch.fail, names, fallen[names[0]]), lock_s)
    await release(work.on(name for name in gone if name not in up))


async def _idle(work: Work, names: Iterable[str]) -> list[str]:
    seen = await insist(partial(work.parts.batch.nodes, names), work.parts.spec.timing.lock)
    return [name for name in names if name in seen and not seen[name].busy]


async def _give_back(
    work: Work, fallen: Fallen, raised: Callable[[], Collection[str]] = frozenset
) -> None:
    """Hand back what the batch system still waits for, with one call for each kind of reason.

    Not what it had let go: if it waits now, then for the operation that it asked for since.
    One that people stopped, or are about to destroy, may be there no more.
    """
    names = [name for name, why in fallen.items() if not why.startswith(LET_GO)]
    gone = work.parts.stopped or work.parts.ending
    limit_s = 0 if gone else work.parts.spec.timing.lock
    look = partial(_waited_for, work, raised)
    try:
        waited_for = await insist(partial(look, names), limit_s)
        why = {name: fallen[name] for name in waited_for}
        await _tell_owners(work, why)
        told = await _hand_back(work, partial(_give_back_late, work, why, look), limit_s)
    except Unavailable as error:
        await work.record.note("give back failed", operation=work.operation.id, detail=str(error))
    else:
        await work.record.note("node given back", nodes=told, operation=work.operation.id)


async def _hand_back(work: Work, call: Callable[[], Awaitable[Fallen]], limit_s: float) -> Fallen:
    """One that is away is waited for; one that answers and refuses, only for a moment."""
    try:
        return await insist(call, min(limit_s, REFUSED_S))
    except Unavailable:
        await insist(partial(work.parts.batch.nodes, work.names), limit_s)
        return await call()


async def _give_back_late(work: Work, why: Fallen, look: Look) -> Fallen:
    """Slurm has jobs wait on the very nodes that are to come: to close those keeps none off."""
    batch = work.parts.batch
    if isinstance(batch, Polled):
        return await give_back_closed(batch, why, look)
    late = await look(why)
    for alike in decide.alike(late, why):
        await batch.give_back(alike, why[alike[0]])
    return {name: why[name] for name in late}


async def _waited_for(
    work: Work, raised: Callable[[], Collection[str]], names: Iterable[str]
) -> list[str]:
    """Looked at each time: a node that has registered after all may have a job, and others may
    bring it up by now."""
    found = decide.waited_for(names, await work.parts.batch.nodes(names))
    others = raised()
    return [name for name in found if name not in others]


async def _tell_owners(work: Work, fallen: Fallen) -> None:
    """Say it to the jobs that wait for the nodes, while the batch system still knows which."""
    with suppress(Unavailable):
        jobs = awaiting(work, await work.parts.batch.jobs(), fallen)
        await tell(work, decide.news(jobs, fallen))
