"""The route for what is left of rebuild jobs: those not over, and nodes that rebuilds are at.

For `tide rebuild --via jobs`, which else could not tell a job that waits from one that is gone.
"""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from springtide.api.asked import daemon_of
from springtide.daemon import Daemon
from springtide.model import Kind
from springtide.nodeset import fold
from springtide.ports import Unavailable
from springtide.spec.rebuilds import DEFAULT


async def show_rebuilds(request: Request) -> Response:
    """In the order in which one becomes the other, so that none is missed on its way: a job asks
    before it ends, and what it asked for is kept until the operation is."""
    daemon = daemon_of(request)
    store = daemon.parts.record.store
    jobs = await _jobs(daemon)
    asked = [name for one in await store.waiting() for name in one.nodes]
    unfinished = await store.operations(unfinished=True)
    begun = [name for one in unfinished if one.kind is Kind.REBUILD for name in one.nodes]
    return JSONResponse({"jobs": jobs, "nodes": fold(dict.fromkeys([*asked, *begun]))})


async def _jobs(daemon: Daemon) -> list[str] | None:
    """Those of the partitions for them, also of the one that the file may have had before."""
    ours = {DEFAULT, *daemon.spec.rebuild.partitions}
    try:
        found = [] if daemon.parts.stopped else await daemon.parts.batch.jobs()
    except Unavailable:
        return None
    return [job.id for job in found if not ours.isdisjoint(job.partition.split(","))]
