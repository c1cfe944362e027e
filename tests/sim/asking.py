"""What the daemon's API answers in a simulation."""

import asyncio
import json
from typing import Any

from springtide.api.app import create_app
from springtide.daemon import Daemon


async def get(daemon: Daemon, path: str) -> list[Any]:
    """The answer to a request, line by line."""
    body = bytearray()
    codes = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        codes.append(message.get("status", 0))
        body.extend(message.get("body", b""))

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }
    await create_app(daemon)(scope, receive, send)
    assert codes[0] == 200, body
    return [json.loads(line) for line in body.decode().splitlines() if line]


async def why(daemon: Daemon, what: str) -> dict[str, Any]:
    """What `tide why` is told; everybody answered."""
    (answer,) = await get(daemon, f"/why/{what}")
    assert answer["problems"] == []
    found: dict[str, Any] = answer
    return found
