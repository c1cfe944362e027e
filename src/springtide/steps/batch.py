"""The batch system's own configuration."""

from functools import partial

from springtide import decide
from springtide.model import Kind, NodeState
from springtide.nodeset import expand, fold
from springtide.ports import Unavailable
from springtide.steps.instances import wait_powered_down
from springtide.steps.inventory import tell_addresses
from springtide.steps.site import SiteError
from springtide.steps.work import Fallen, Work, insist

LOST = "its instance died, and the jobs on it with it"


async def write_batch_config(work: Work) -> Fallen:
    """Write it, have the batch system run with it, and tell it where its nodes are."""
    parts = work.parts
    assert parts.site is not None
    async with parts.writing:
        await parts.settle(work.names if work.operation.kind is Kind.SHRINK else ())
        if strays := parts.strays():
            raise SiteError(f"{fold(strays)} left the cluster file and is still up, with its jobs")
        try:
            changed = await parts.batch.reload(parts.site)
        except Unavailable as error:
            raise SiteError(str(error)) from error
        await parts.keep_applied()
        await parts.keep_stopped(False)
    if changed:
        await work.record.note("batch system changed", operation=work.operation.id, detail=changed)
    await _give_up_jobs(work)
    return await tell_addresses(work)


async def _give_up_jobs(work: Work) -> None:
    """Jobs of instances that died go back to the queue: the batch system may not know for long."""
    if "lost" not in work.operation.options:
        return
    lost = expand(work.operation.options["lost"])
    booting = [node.name for node in work.record.of(lost, NodeState.BOOTING)]
    batch, lock_s = work.parts.batch, work.parts.spec.timing.lock
    haunted = decide.haunted(booting, await insist(batch.jobs, lock_s))
    if haunted:
        await insist(partial(batch.fail, haunted, LOST), lock_s)
        told = dict.fromkeys(haunted, LOST)
        await work.record.note("jobs given back", nodes=told, operation=work.operation.id)


async def stop_batch(work: Work) -> Fallen:
    """Stop the batch system that we started; what waits in its queue stays there.

    Not under nodes that stayed, with their jobs.
    """
    if work.operation.kind is Kind.STOP:
        if stayed := work.operation.fallen:
            raise SiteError(f"{fold(stayed)} stayed, so the batch system runs on")
        await wait_powered_down(work, work.names)
    await work.parts.batch.stop()
    await work.parts.keep_stopped(True)
    return {}
