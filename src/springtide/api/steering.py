"""The routes for what repairs itself: maintenance mode, and holds that stop launches.

Everybody may look; to change something takes the rights that other changes take.
"""

from collections.abc import Collection

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from springtide import maintenance
from springtide.api import shapes
from springtide.api.asked import body_of, daemon_of, text_of, who_may_change
from springtide.spool import BadRequest

KINDS = ("group", "provider", "place")
"""How keys of holds begin."""


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


async def show_holds(request: Request) -> Response:
    return JSONResponse({"holds": shapes.holds(daemon_of(request))})


async def lift(request: Request) -> Response:
    """Whatever caused it must be over: nodes are launched as if it had never been."""
    peer = who_may_change(request)
    holding, word = daemon_of(request).parts.holding, text_of(await body_of(request), "key")
    key = find(word, holding.known)
    if key is None:
        raise HTTPException(404, f"nothing holds {word[:80]!r}; `tide holds` shows what is held")
    await holding.lift(key, peer.name)
    return JSONResponse({"lifted": key})


def find(word: str, known: Collection[str]) -> str | None:
    """The key that is meant: itself, or what stands behind its kind, such as a group's name."""
    keys = (word, *(f"{kind}:{word}" for kind in KINDS))
    return next((key for key in keys if key in known), None)
