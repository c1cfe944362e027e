"""The batch system's own configuration."""

from springtide.ports import Unavailable
from springtide.steps.inventory import tell_addresses
from springtide.steps.site import SiteError
from springtide.steps.work import Fallen, Work


async def write_batch_config(work: Work) -> Fallen:
    """Write it, have the batch system run with it, and tell it where its nodes are."""
    assert work.parts.site is not None
    try:
        changed = await work.parts.batch.reload(work.parts.site)
    except Unavailable as error:
        raise SiteError(str(error)) from error
    if changed:
        await work.record.note("batch system changed", operation=work.operation.id, detail=changed)
    return await tell_addresses(work)
