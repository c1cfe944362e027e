"""What comes with a request: its daemon, its sender, its body, and names in it, all checked.

For the routes of `app` and `change`; `joining` takes only how a body is read.
"""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from springtide.api.peers import Peer, may_change, peer_of
from springtide.daemon import Daemon
from springtide.model import Kind
from springtide.nodeset import expand
from springtide.spool import BadRequest

MAX_BODY = 80 << 20
MAX_ID = 2**63 - 1
"""The record counts in 64 bits."""
STRANGERS = 1000
"""So many names beyond the cluster's own are read, so that they can be told from its own."""
MAX_TEXT = 500

VIAS = ("reboot", "direct", "jobs")
OPTIONS: Mapping[Kind, Mapping[str, type]] = {
    Kind.REBUILD: {
        "via": str,
        "image": str,
        "command": str,
        "batch": int,
        "pause": float,
        "limit": float,
        "force": bool,
    },
    Kind.UPDATE: {"batch": int, "pause": float, "limit": float},
    Kind.STOP: {"now": bool, "limit": float},
    Kind.SUSPEND: {"now": bool},
    Kind.DESTROY: {"leave_batch": bool},
}
"""What may be said of how an operation is to be done."""


def daemon_of(request: Request) -> Daemon:
    daemon = request.app.state.daemon
    assert isinstance(daemon, Daemon)
    return daemon


async def raw_body(request: Request, most: int) -> bytes:
    """More is refused before it is all there."""
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > most:
            raise HTTPException(413, f"more than {most} bytes")
    return bytes(raw)


async def body_of(request: Request) -> dict[str, Any]:
    """The body as a JSON object; too much or something else is refused."""
    raw = await raw_body(request, MAX_BODY)
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest("the body is no JSON object")
    return body


def who_may_change(request: Request) -> Peer:
    daemon, peer = daemon_of(request), peer_of(request)
    if not may_change(peer, daemon.spec):
        allowed = f"root, {daemon.spec.batch.user}"
        if daemon.spec.admin_group:
            allowed += f" and members of {daemon.spec.admin_group}"
        raise HTTPException(403, f"user {peer.name} may not change this cluster; {allowed} may")
    return peer


def expanded(daemon: Daemon, text: str) -> list[str]:
    """No more names than could be meant: others are refused before they fill the memory."""
    return expand(text, limit=len(daemon.spec.node_group) + STRANGERS)


def operation_id(request: Request) -> int:
    text = request.path_params["id"]
    if not text.isdecimal() or len(text) > len(str(MAX_ID)) or int(text) > MAX_ID:
        raise HTTPException(404, f"there is no operation {text[:40]}")
    return int(text)


def parse_kind(text: str) -> Kind:
    try:
        return Kind(text)
    except ValueError:
        known = ", ".join(kind.value for kind in Kind)
        raise BadRequest(f"there is no operation {text[:40]!r}; known are {known}") from None


def parse_options(kind: Kind, given: Mapping[str, Any]) -> dict[str, Any]:
    """How an operation is to be done; what is not known for it is refused."""
    known = OPTIONS.get(kind, {})
    if strange := [key for key in given if key not in known]:
        has = ", ".join(known) or "none"
        raise BadRequest(f"{kind} has no option {strange[0][:40]!r}; known are {has}")
    options = {key: _option(key, value, known[key]) for key, value in given.items()}
    if options.get("via", "direct") not in VIAS:
        raise BadRequest(f"via is one of {', '.join(VIAS)}, not {options['via'][:40]!r}")
    return options


def _option(key: str, value: Any, kind: type) -> Any:
    """A value in a body, or as text in an address."""
    if kind is bool:
        if value not in (True, False, "1", "0", "true", "false"):
            raise BadRequest(f"{key} is true or false")
        return value in (True, "1", "true")
    if kind is str:
        if not isinstance(value, str) or len(value) > MAX_TEXT or not value.isprintable():
            raise BadRequest(f"{key} is a text of at most {MAX_TEXT} characters")
        return value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not isfinite(number) or number < 0 or (kind is int and number != int(number)):
        raise BadRequest(f"{key} is a number from 0, not {str(value)[:40]!r}")
    return kind(number)


def text_of(body: Mapping[str, Any], key: str, limit: int = MAX_TEXT) -> str:
    """A text in the body, empty if there is none."""
    value = body.get(key) or ""
    if not isinstance(value, str) or len(value) > limit:
        raise BadRequest(f"{key} is a text of at most {limit} characters")
    return value
