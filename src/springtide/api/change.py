"""The routes that change something; who may ask is decided per peer."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from springtide.api import shapes
from springtide.api.asked import (
    body_of,
    daemon_of,
    expanded,
    operation_id,
    parse_kind,
    parse_options,
    text_of,
    who_may_change,
)
from springtide.api.peers import Peer
from springtide.daemon import Daemon
from springtide.model import Kind
from springtide.people import Answer
from springtide.spec import Cluster, parse
from springtide.spec.leaving import Changes, diff
from springtide.spec.source import MAX_SIZE
from springtide.spool import BadRequest

KILL = "kill"
CANCEL_S = 5.0
"""So long whoever cancels waits for the end."""


async def operate(request: Request) -> Response:
    peer = who_may_change(request)
    daemon, body = daemon_of(request), await body_of(request)
    word = str(body.get("operation"))
    kind = Kind.SUSPEND if word == KILL else parse_kind(word)
    options = _options(kind, body)
    if word == KILL or kind in (Kind.STOP, Kind.DESTROY):
        _refuse_protected(daemon, body, word)
    _refuse_nonsense(word, options)
    if options.get("command") is not None and peer.uid != 0:
        raise HTTPException(403, f"{peer.name} may not run commands: rebuild jobs run as root")
    if options.get("via") == "jobs":
        return JSONResponse({"jobs": await _by_jobs(daemon, body, options)}, 202)
    return JSONResponse(shapes.answer(await _do(daemon, word, body, options, peer)), 202)


def _options(kind: Kind, body: Mapping[str, Any]) -> dict[str, Any]:
    given = body.get("options") or {}
    if not isinstance(given, dict):
        raise BadRequest("options is no JSON object")
    return parse_options(kind, given)


def _refuse_nonsense(word: str, options: Mapping[str, Any]) -> None:
    """What would be passed over must not be believed."""
    by_jobs = options.get("via") == "jobs"
    wrong = {"batch", "pause", "limit"} if by_jobs else {"command"}
    if word == Kind.SUSPEND:
        wrong = {"now"}
    if found := sorted(wrong.intersection(options)):
        raise BadRequest(f"{found[0]} means nothing here: {word} does not go by it")


async def _do(
    daemon: Daemon, word: str, body: Mapping[str, Any], options: dict[str, Any], peer: Peer
) -> Answer:
    people, by = daemon.people, peer.name
    match word:
        case Kind.DEPLOY:
            return await people.deploy(by)
        case Kind.DESTROY:
            return await people.destroy(by, options)
        case Kind.STOP:
            return await people.stop(by, options)
        case Kind.REBUILD:
            return await people.rebuild(_names(daemon, body, daemon.spec.managed), by, options)
        case Kind.UPDATE:
            return await people.update(_names(daemon, body, daemon.spec.managed), by, options)
        case Kind.RESUME:
            return await people.resume(_names(daemon, body), by)
        case Kind.SUSPEND:
            return await people.suspend(_names(daemon, body), by)
        case "kill":
            return await people.kill(_names(daemon, body), by)
    raise BadRequest(f"{word} follows from the cluster file: change that and apply it")


def _names(
    daemon: Daemon, body: Mapping[str, Any], default: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """The nodes that are named; all of them only where that is what no name means."""
    text = body.get("nodes")
    if text is None and default is not None:
        return default
    return tuple(expanded(daemon, str(text or "")))


async def _by_jobs(
    daemon: Daemon, body: Mapping[str, Any], options: Mapping[str, Any]
) -> Mapping[str, str]:
    names, command = _names(daemon, body, daemon.spec.managed), options.get("command")
    return await daemon.people.rebuild_by_jobs(names, command, options)


def _refuse_protected(daemon: Daemon, body: Mapping[str, Any], word: str) -> None:
    name = daemon.spec.cluster
    if daemon.spec.protected and body.get("confirm") != name:
        raise HTTPException(409, f"{name} is protected: confirm with its name to {word} it")


async def cancel(request: Request) -> Response:
    peer = who_may_change(request)
    id = operation_id(request)
    with suppress(TimeoutError):  # what is left is cleaned up, whether somebody waits or not
        async with asyncio.timeout(CANCEL_S):
            await daemon_of(request).engine.cancel(id, peer.name)
    return JSONResponse({"cancelled": id})


async def drain(request: Request) -> Response:
    peer = who_may_change(request)
    daemon, body = daemon_of(request), await body_of(request)
    reason = text_of(body, "reason")
    answer = await daemon.people.drain(_names(daemon, body), reason, peer.name)
    return JSONResponse(shapes.answer(answer))


async def undrain(request: Request) -> Response:
    peer = who_may_change(request)
    daemon, body = daemon_of(request), await body_of(request)
    force = body.get("force") is True
    answer = await daemon.people.undrain(_names(daemon, body), peer.name, force)
    return JSONResponse(shapes.answer(answer))


# --- another cluster file --------------------------------------------------------------------


async def apply(request: Request) -> Response:
    """With `dry_run` only what it would change."""
    peer = who_may_change(request)
    daemon, body = daemon_of(request), await body_of(request)
    text = text_of(body, "spec", MAX_SIZE)
    wanted = parse(text, text_of(body, "file") or "the cluster file")
    sizes = _sizes(body) | ({} if peer.uid == 0 else _resized(daemon, wanted))
    daemon.people.planner.refuse_against_calendar(wanted, sizes)
    warnings = daemon.people.planner.warnings(wanted)
    if body.get("dry_run") is True:
        changes, plans = await daemon.people.foresee(wanted)
        return JSONResponse(shapes.applying(changes, plans, warnings))
    async with daemon.people.applying:
        changes, plans = await daemon.people.planner.plan_apply(wanted)
        _refuse_more_than_sizes(peer, changes)
        if any(plan.kind is Kind.SHRINK for plan in plans):
            _refuse_protected(daemon, body, "shrink")
        base = text_of(body, "base")
        store = partial(daemon.layout.keep_spec, text.encode())
        answer = await daemon.people.apply(wanted, peer.name, store, base)
    if peer.uid == 0 and (file := text_of(body, "file")):
        await daemon.parts.keep_file(file)
    return JSONResponse({**shapes.answer(answer), **shapes.applying(changes, plans, warnings)}, 202)


def _sizes(body: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of groups that somebody named, if that is where the file comes from."""
    given = body.get("sizes") or {}
    if isinstance(given, dict) and all(type(size) is int for size in given.values()):
        return given
    raise BadRequest("sizes is no JSON object of groups and numbers")


def _resized(daemon: Daemon, wanted: Cluster) -> dict[str, int]:
    """The sizes that are others in a file: all that somebody may change who is not root."""
    return {key: size for key, (_, size) in diff(daemon.parts.wanted, wanted).sizes.items()}


def _refuse_more_than_sizes(peer: Peer, changes: Changes) -> None:
    """A cluster file can say what root runs, so only root may say that."""
    if peer.uid != 0 and not changes.only_sizes:
        raise HTTPException(403, f"{peer.name} may only resize groups; root may change the rest")
