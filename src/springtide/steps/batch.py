"""The batch system's own configuration."""

from springtide.ports import Unavailable
from springtide.steps.inventory import tell_addresses
from springtide.steps.site import SiteError
from springtide.steps.work import Fallen, Work


async def write_batch_config(work: Work) -> Fallen:
    """Write it, have the batch system run with it, and tell it where its nodes are."""
    parts = work.parts
    assert parts.site is not None
    async with parts.writing:
        await parts.settle()
        try:
            changed = await parts.batch.reload(parts.site)
        except Unavailable as error:
            raise SiteError(str(error)) from error
        await parts.keep_applied()
        await parts.keep_stopped(False)
    if changed:
        await work.record.note("batch system changed", operation=work.operation.id, detail=changed)
    return await tell_addresses(work)


async def stop_batch(work: Work) -> Fallen:
    """Stop the batch system that we started; what waits in its queue stays there."""
    await work.parts.batch.stop()
    await work.parts.keep_stopped(True)
    return {}
