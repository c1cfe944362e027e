"""The routes for boot timelines: of one node, and of several what is typical."""

from dataclasses import asdict
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from springtide.api.asked import daemon_of, expanded
from springtide.api.boot import generation_of
from springtide.daemon import Daemon
from springtide.spool import BadRequest
from springtide.timeline import Timeline, timeline, typical

EVENTS = 1000
"""Of a node, the last so many are looked at: its last boots."""
MOST = 1000
"""Nodes of one question."""


async def show_timeline(request: Request) -> Response:
    daemon, name = daemon_of(request), request.path_params["name"]
    _require(daemon, [name])
    generation = generation_of(request)
    found = await _timeline(daemon, name, generation)
    if found is None:
        which = "" if generation is None else f" {generation}"
        raise HTTPException(404, f"nothing is known of a boot{which} of {name}")
    return JSONResponse(_shape(found))


async def show_typical(request: Request) -> Response:
    """Medians over the last boot of each of these nodes that had one."""
    daemon = daemon_of(request)
    names = list(dict.fromkeys(expanded(daemon, request.query_params.get("names", ""))))
    if not 0 < len(names) <= MOST:
        raise BadRequest(f"name 1 to {MOST} nodes")
    _require(daemon, names)
    found = [one for name in names if (one := await _timeline(daemon, name, None))]
    rows = [asdict(row) for row in typical(found)]
    return JSONResponse({"nodes": len(names), "boots": len(found), "phases": rows})


def _require(daemon: Daemon, names: list[str]) -> None:
    """Nodes that left the file have a past as well, while the record knows them."""
    daemon.spec.require(name for name in names if name not in daemon.parts.record.nodes)


async def _timeline(daemon: Daemon, name: str, generation: int | None) -> Timeline | None:
    store = daemon.parts.record.store
    events = await store.events(node=name, limit=EVENTS)
    return timeline(name, events, await store.phases(name), generation)


def _shape(found: Timeline) -> dict[str, Any]:
    return {
        "node": found.node,
        "generation": found.generation,
        "requested_at": found.requested_at,
        "over": found.over,
        "phases": [asdict(row) for row in found.rows],
    }
