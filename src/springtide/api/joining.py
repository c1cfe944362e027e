"""The routes for nodes, on the join port; who asks is known by a token or a key alone.

See `springtide.node` for the protocol. Nothing else is served there.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from springtide.api.asked import raw_body
from springtide.joining import (
    BadAsked,
    Joining,
    NotAdmitted,
    parse_join,
    parse_report,
)
from springtide.node import bundle
from springtide.ports import StoreError

MAX_BODY = 256 << 10
Complaint = Callable[[Request, Exception], Awaitable[Response]]


def create_joining(joining: Joining) -> Starlette:
    """The application of one cluster."""
    routes = [
        Route("/agent", agent),
        Route("/join", join, methods=["POST"]),
        Route("/refresh", refresh, methods=["POST"]),
        Route("/report", report, methods=["POST"]),
    ]
    errors: Mapping[Any, Complaint] = {
        BadAsked: _complain,
        NotAdmitted: _complain,
        StoreError: _complain,
        HTTPException: _complain,
        Exception: _complain,
    }
    app = Starlette(routes=routes, exception_handlers=errors)
    app.state.joining = joining
    return app


async def _complain(request: Request, error: Exception) -> Response:
    """What is nobody's fault may be asked again; what else went wrong is no node's business."""
    match error:
        case BadAsked():
            return _error(str(error), 400, final=True)
        case NotAdmitted():
            return _error(str(error), 403 if error.final else 503, final=error.final)
        case HTTPException():
            return _error(error.detail, error.status_code, final=True)
        case StoreError():
            return _error("the control host cannot use its record now", 503, final=False)
        case _:
            return _error("the daemon has failed; its log says why", 500, final=False)


def _error(text: str, status: int, *, final: bool) -> Response:
    return JSONResponse({"error": text, "final": final}, status)


async def agent(request: Request) -> Response:
    """The program that nodes run; there is nothing secret in it."""
    return Response(bundle.agent(), media_type="application/octet-stream")


async def join(request: Request) -> Response:
    asked = parse_join(await _body(request), "token")
    return JSONResponse(await _joining(request).join(asked, _peer(request)))


async def refresh(request: Request) -> Response:
    asked = parse_join(await _body(request), "key")
    return JSONResponse(await _joining(request).refresh(asked, _peer(request)))


async def report(request: Request) -> Response:
    asked = parse_report(await _body(request))
    return JSONResponse(await _joining(request).report(asked, _peer(request)))


def _joining(request: Request) -> Joining:
    joining = request.app.state.joining
    assert isinstance(joining, Joining)
    return joining


def _peer(request: Request) -> str:
    return request.client.host if request.client else "?"


async def _body(request: Request) -> dict[str, Any]:
    raw = await raw_body(request, MAX_BODY)
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise BadAsked("the body is no JSON") from None
    if not isinstance(body, dict):
        raise BadAsked("the body is no JSON object")
    return body
