"""The routes. Reading is open to every local user; changing needs rights (see `peers`)."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from springtide import boots, decide, maintenance
from springtide.api import change, images, shapes, steering, troubles, users
from springtide.api.asked import (
    body_of,
    daemon_of,
    expanded,
    operation_id,
    parse_kind,
    parse_options,
)
from springtide.api.boot import show_boot
from springtide.api.machines import show_machines
from springtide.api.peers import is_batch, peer_of
from springtide.api.rebuilds import show_rebuilds
from springtide.api.timeline import show_timeline, show_typical
from springtide.api.why import tell_why
from springtide.batch import slurm_rebuild
from springtide.daemon import Daemon
from springtide.engine import Refused
from springtide.model import Kind
from springtide.nodeset import NodeNameError, fold
from springtide.ports import BatchNode, CloudError, Instance, StoreError, Unavailable
from springtide.prologs import STARTS
from springtide.spec import SpecError, UnknownNodes
from springtide.spec.rebuilds import REBUILD_JOB, partition_names
from springtide.spool import BadRequest, parse_job, parse_request
from springtide.story import voice_of

MAX_ROWS = 100_000
"""Of one answer about the past."""
EVERYTHING = 1 << 40
STOPPED = "stopped; run `tide start`"
PATIENCE_S = 2.0
"""A status need not wait as long as Slurm's commands wait for a dead slurmctld."""
FOLLOW_S = 10.0
"""A followed stream says something at least this often, so that a dead reader is noticed."""


def create_app(daemon: Daemon) -> Starlette:
    """The application of one daemon."""
    routes = [
        Route("/status", status),
        Route("/nodes", nodes),
        Route("/nodes/{name}/boot", show_boot),
        Route("/nodes/{name}/timeline", show_timeline),
        Route("/timeline", show_typical),
        Route("/operations", operations),
        Route("/operations", change.operate, methods=["POST"]),
        Route("/operations/{id}", operation),
        Route("/operations/{id}/cancel", change.cancel, methods=["POST"]),
        Route("/rebuilds", show_rebuilds),
        Route("/drain", change.drain, methods=["POST"]),
        Route("/undrain", change.undrain, methods=["POST"]),
        Route("/apply", change.apply, methods=["POST"]),
        Route("/maintenance", steering.show_maintenance),
        Route("/maintenance", steering.change_maintenance, methods=["POST"]),
        Route("/holds", steering.show_holds),
        Route("/holds/lift", steering.lift, methods=["POST"]),
        Route("/machines", show_machines),
        Route("/users", users.show_users),
        Route("/users/kept", users.show_kept),
        Route("/users", users.add_user, methods=["POST"]),
        Route("/users/remove", users.remove_user, methods=["POST"]),
        Route("/images", images.show),
        Route("/images/build", images.build, methods=["POST"]),
        Route("/images/snapshot", images.snapshot, methods=["POST"]),
        Route("/images/clean", images.clean, methods=["POST"]),
        Route("/images/{name}/log", images.log),
        Route("/why/{what}", tell_why),
        Route("/events", events),
        Route("/plan", plan),
        Route("/hook/prolog", prolog, methods=["POST"]),
        Route("/hook/poll", poll, methods=["POST"]),
        Route("/hook/{program}", hook, methods=["POST"]),
    ]
    errors: Mapping[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
        BadRequest: _complaint(400),
        NodeNameError: _complaint(400),
        SpecError: _complaint(400),
        UnknownNodes: _complaint(404),
        CloudError: _complaint(503),
        Unavailable: _complaint(503),
        StoreError: _complaint(503),
        Refused: _complaint(409),
        HTTPException: _http_complaint,
    }
    app = Starlette(routes=routes, exception_handlers=errors)
    app.state.daemon = daemon
    return app


def _complaint(code: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def complain(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, code)

    return complain


async def _http_complaint(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


# --- reading -------------------------------------------------------------------------


async def status(request: Request) -> Response:
    daemon = daemon_of(request)
    store = daemon.parts.record.store
    running = await store.operations(unfinished=True)
    return JSONResponse(
        {
            **shapes.status(daemon, running, await _batch(daemon)),
            **shapes.maintaining(await maintenance.read(store)),
            **shapes.held(daemon),
            "calendar": shapes.calendar(daemon),
            "troubles": await troubles.shown(daemon),
            "boots": shapes.boots(daemon, await store.boot_times(boots.LOOKED_AT)),
        }
    )


async def _batch(daemon: Daemon) -> dict[str, Any]:
    about = {"kind": daemon.spec.batch.kind, "version": None, "problem": None, "lacks": None}
    if daemon.parts.stopped:
        return {**about, "problem": STOPPED}
    try:
        async with asyncio.timeout(PATIENCE_S):
            await daemon.parts.batch.jobs()
            version = await daemon.parts.batch.version()
        return {**about, "version": version, "lacks": await troubles.lacking(daemon) or None}
    except Unavailable as error:
        return {**about, "problem": await troubles.away(daemon, str(error))}
    except TimeoutError:
        silent = f"no answer within {PATIENCE_S:g} s; look whether slurmctld runs"
        return {**about, "problem": voice_of(daemon.spec).say(silent)}


async def nodes(request: Request) -> Response:
    """Every node, also powered-down ones: record, batch system's view and instances."""
    daemon = daemon_of(request)
    names = _named(daemon, request.query_params.get("names"))
    seen: Mapping[str, BatchNode] = {}
    instances: list[Instance] = []
    problems: list[str] = []
    if request.query_params.get("world", "1") == "1":
        seen, instances, problems = await _world(daemon)
    found = decide.instances_of(instances, names)
    groups = {node.group for node in daemon.parts.record.of(names)}
    configs = {group: daemon.parts.config_of(group) for group in groups}
    rebuilds = {} if daemon.spec.polled else slurm_rebuild.partition_of(daemon.spec)
    rows = [
        {
            **shapes.node(daemon, name, seen.get(name), found[name], configs),
            "rebuild_partition": rebuilds.get(name),
        }
        for name in names
    ]
    kind = daemon.spec.batch.kind
    return JSONResponse({"nodes": rows, "problems": problems, "batch_kind": kind})


def _named(daemon: Daemon, text: str | None) -> tuple[str, ...]:
    """The named nodes, or all: to be looked at, so also those that we never touch."""
    known = daemon.spec.node_group
    if text is None:
        return tuple(known)
    names = tuple(dict.fromkeys(expanded(daemon, text)))
    daemon.spec.require(name for name in names if name not in known)
    return names


async def _world(
    daemon: Daemon,
) -> tuple[Mapping[str, BatchNode], list[Instance], list[str]]:
    """What batch system and providers say; who does not answer is named."""
    seen: Mapping[str, BatchNode] = {}
    instances: list[Instance] = []
    problems = []
    try:
        seen = {} if daemon.parts.stopped else await daemon.parts.batch.nodes()
    except Unavailable as error:
        problems.append(str(error))
    for provider in daemon.parts.distinct_providers():
        try:
            instances += await provider.list(daemon.spec.cluster)
        except CloudError as error:
            problems.append(str(error))
    return seen, instances, problems


async def operations(request: Request) -> Response:
    daemon, limit = daemon_of(request), _limit(request, 100)
    found, voice = await daemon.parts.record.store.operations(limit=limit), voice_of(daemon.spec)
    waits = daemon.engine.waits_for
    shown = [shapes.operation_(one, voice, waits(one.id)) for one in found]
    return JSONResponse({"operations": shown})


async def operation(request: Request) -> Response:
    daemon, id = daemon_of(request), operation_id(request)
    found = await daemon.parts.record.store.operation(id)
    if found is None:
        raise HTTPException(404, f"there is no operation {id}")
    waits = daemon.engine.waits_for(id)
    return JSONResponse(shapes.operation_(found, voice_of(daemon.spec), waits))


def _limit(request: Request, default: int) -> int:
    limit = _number(request, "limit", default)
    if limit > MAX_ROWS:
        raise BadRequest(f"limit must be at most {MAX_ROWS}, not {limit}")
    return limit


def _number(request: Request, key: str, default: int) -> int:
    text = request.query_params.get(key, str(default))
    if not text.isdigit() or len(text) > 18:
        raise BadRequest(f"{key} must be a whole number, not {text[:40]!r}")
    return int(text)


async def events(request: Request) -> Response:
    """Events as lines of JSON, and with `follow=1` those to come."""
    daemon = daemon_of(request)
    operation_id = _number(request, "operation", 0) or None
    lines = _events(
        daemon,
        after=_number(request, "after", 0),
        node=request.query_params.get("node"),
        operation=operation_id,
        limit=_limit(request, 1000),
        follow=request.query_params.get("follow") == "1",
    )
    return StreamingResponse(lines, media_type="application/x-ndjson")


async def _events(daemon: Daemon, after: int, follow: bool, **which: Any) -> AsyncIterator[str]:
    """The limit is for the past; of what is to come nothing is left out."""
    changed = asyncio.Event()
    with daemon.parts.record.listening(lambda _: changed.set()):
        while True:
            changed.clear()
            for one in await daemon.parts.record.store.events(after=after, **which):
                after = one.id
                yield json.dumps(shapes.event(one, voice_of(daemon.spec))) + "\n"
            if not follow:
                return
            which["limit"] = EVERYTHING
            try:
                async with asyncio.timeout(FOLLOW_S):
                    await changed.wait()
            except TimeoutError:
                yield "\n"


async def plan(request: Request) -> Response:
    """The table of operations, or what one operation would do; changes nothing."""
    asked = dict(request.query_params)
    operation, text = asked.pop("operation", None), asked.pop("nodes", "")
    if operation is None:
        return JSONResponse(shapes.table())
    if operation == change.KILL:
        operation, asked = Kind.SUSPEND, {**asked, "now": "1"}
    daemon, kind = daemon_of(request), parse_kind(operation)
    names = expanded(daemon, text) if text else ()
    made = await daemon.people.planner.plan(kind, names, parse_options(kind, asked))
    return JSONResponse(shapes.plan(made))


# --- asked by the hook -----------------------------------------------------------------


def _from_batch(request: Request) -> Daemon:
    daemon, peer = daemon_of(request), peer_of(request)
    if not is_batch(peer, daemon.spec):
        raise HTTPException(403, f"only {daemon.spec.batch.user} and root call the hook")
    return daemon


async def hook(request: Request) -> Response:
    daemon = _from_batch(request)
    asked = parse_request(request.path_params["program"], await body_of(request))
    unknown = await daemon.receive(asked)
    return JSONResponse({"received": True, "unknown": fold(unknown)}, 202)


async def poll(request: Request) -> Response:
    """A hook of a polled batch system: something changed. A burst of calls is one look a second."""
    daemon = _from_batch(request)
    asyncio.get_running_loop().call_later(daemon.spec.timing.gather, daemon.poller.wake)
    return JSONResponse({"received": True}, 202)


async def prolog(request: Request) -> Response:
    daemon, body = _from_batch(request), await body_of(request)
    names = expanded(daemon, str(body.get("nodes") or ""))
    ours = [name for name in names if name in daemon.parts.record.nodes]
    job = parse_job(body.get("job"))
    rebuilds = body.get("partition") in partition_names(daemon.spec.rebuild.partitions)
    if rebuilds and is_rebuild_job(body):
        return JSONResponse({"why": await daemon.rebuild_for_job(job, ours)})
    why = await daemon.prolog(job, ours, afresh=rebuilds)
    spent = [name for name in ours if _is_fresh(daemon, name)]
    if spent and why in STARTS and not rebuilds:
        await daemon.prologs.spend(spent)
    return JSONResponse({"why": why})


def is_rebuild_job(body: Mapping[str, Any]) -> bool:
    """Not whoever calls a job so: Slurm 22.05 lets others name root's partition beside theirs."""
    return body.get("uid") == "0" and str(body.get("name")).startswith(REBUILD_JOB)


def _is_fresh(daemon: Daemon, name: str) -> bool:
    group = daemon.spec.node_group.get(name)
    return group is not None and daemon.spec.groups[group].fresh
