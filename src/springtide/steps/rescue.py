"""What happens to nodes that fell out of an operation: given back, then cleaned up.

The engine runs it beside the further steps of the nodes that still stand, and again after a
crash, on nodes that may be anywhere on their way.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf

from springtide import decide, failures
from springtide.model import DRAINS, STARTING, Kind, NodeState
from springtide.ports import Unavailable
from springtide.steps.afresh import still_up
from springtide.steps.bootlogs import keep_log
from springtide.steps.instances import remove
from springtide.steps.inventory import publish, refresh_inventory, release
from springtide.steps.registration import LET_GO
from springtide.steps.telling import tell
from springtide.steps.work import Fallen, Work, insist


async def rescue(work: Work, fallen: Fallen) -> None:
    """Give the nodes back first, so that their jobs move on, then remove what they left.

    Nobody waits for the nodes of a deploy, nor may there be a batch system yet.
    """
    if work.operation.kind in DRAINS:
        await _return(work, fallen)
    fallen = await _fail(work, fallen)
    if work.operation.kind is Kind.RESUME:
        await _give_back(work, fallen)
    finish = partial(_finish, work, fallen)
    doomed = [n.name for n in work.record.of(fallen, NodeState.FAILED, NodeState.DELETING)]
    await finish([name for name in fallen if name not in doomed])
    await remove(replace(work, names=tuple(doomed), drop=None, part=finish), inf)


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
    names = [node.name for node in whole]
    with suppress(Unavailable):
        await insist(partial(work.parts.batch.undrain, names), work.parts.spec.timing.lock)
    await work.record.move(
        [node.to(NodeState.READY, reason=fallen[node.name]) for node in whole],
        "node back in service",
        work.operation.id,
    )


async def _fail(work: Work, fallen: Fallen) -> Fallen:
    """Answers the reasons, those of failed boots with their causes."""
    reasons = fallen | await _causes(work, fallen)
    starting = [node for node in work.record.of(fallen) if node.state in STARTING]
    await work.record.move(
        [node.to(NodeState.FAILED, reason=reasons[node.name]) for node in starting],
        "node failed",
        work.operation.id,
    )
    boots = [node.name for node in starting if failures.is_failed_boot(fallen[node.name])]
    why = {name: reasons[name] for name in boots}
    await work.parts.holding.failed_boots(why, work.parts.spec)
    return reasons


async def _causes(work: Work, fallen: Fallen) -> Fallen:
    """Why nodes did not come up: found out now, or before a crash and on record since."""
    failed = work.record.of(n for n, why in fallen.items() if failures.is_failed_boot(why))
    found = await keep_log(work, [node.name for node in failed if node.state in STARTING])
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
    One that people stopped may be there no more.
    """
    names = [name for name, why in fallen.items() if not why.startswith(LET_GO)]
    limit_s = 0 if work.parts.stopped else work.parts.spec.timing.lock
    try:
        found = await insist(partial(_waited_for, work, names), limit_s)
        others = raised()
        waited_for = [name for name in found if name not in others]
        await _tell_owners(work, {name: fallen[name] for name in waited_for})
        for names in decide.alike(waited_for, fallen):
            call = partial(work.parts.batch.give_back, names, fallen[names[0]])
            await insist(call, limit_s)
    except Unavailable as error:
        await work.record.note("give back failed", operation=work.operation.id, detail=str(error))
    else:
        told = {name: fallen[name] for name in waited_for}
        await work.record.note("node given back", nodes=told, operation=work.operation.id)


async def _waited_for(work: Work, names: Iterable[str]) -> list[str]:
    """Looked at each time: a node that has registered after all may have a job."""
    return decide.waited_for(names, await work.parts.batch.nodes(names))


async def _tell_owners(work: Work, fallen: Fallen) -> None:
    """Say it to the jobs that wait for the nodes, while the batch system still knows which."""
    with suppress(Unavailable):
        jobs = await work.parts.batch.jobs()
        await tell(work, decide.news(jobs, fallen))
