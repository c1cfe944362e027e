"""The routes for what repairs itself: maintenance mode.

Everybody may look; to change something takes the rights that other changes take.
"""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from springtide import maintenance
from springtide.api import shapes
from springtide.api.asked import body_of, daemon_of, text_of, who_may_change
from springtide.spool import BadRequest


async def show_maintenance(request: Request) -> Response:
    found = await maintenance.read(daemon_of(request).parts.record.store)
    return JSONResponse(shapes.maintaining(found))


async def change_maintenance(request: Request) -> Response:
    peer = who_may_change(request)
    record, body = daemon_of(request).parts.record, await body_of(request)
    on, reason = body.get("on"), text_of(body, "reason").strip()
    if not isinstance(on, bool):
        raise BadRequest("on is true or false")
    if not on:
        await maintenance.end(record, peer.name)
        return JSONResponse(shapes.maintaining(None))
    if not reason:
        raise BadRequest("say why: give a reason; others will wonder")
    return JSONResponse(shapes.maintaining(await maintenance.begin(record, peer.name, reason)))
