"""The route for what a node said while it booted: now, or when it last failed to come up.

For those who may change things only: what a machine says at boot may hold more than users should
know.
"""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from springtide.api.asked import daemon_of
from springtide.api.peers import may_change, peer_of
from springtide.daemon import Daemon
from springtide.ports import CloudError, Instance, Provider
from springtide.spool import BadRequest
from springtide.steps.bootlogs import read_kept

MOST_DIGITS = 18


async def show_boot(request: Request) -> Response:
    daemon, name = daemon_of(request), request.path_params["name"]
    _refuse_strangers(request, daemon)
    if name not in daemon.spec.node_group:
        daemon.spec.require([name])
    generation = generation_of(request)
    kept = _kept(daemon, name, generation)
    try:
        answer = both(await _live(daemon, name, generation), kept)
    except CloudError:
        if kept is None:
            raise
        answer = kept
    if answer is None:
        raise HTTPException(404, _nothing(name, generation))
    return JSONResponse({"node": name, **answer})


def both(live: dict[str, Any] | None, kept: dict[str, Any] | None) -> dict[str, Any] | None:
    """What an instance says, and what its node sent us when it gave up: not all clouds show all."""
    if live is None or kept is None or live["generation"] != kept["generation"]:
        return live or kept
    if live["text"].strip() in kept["text"]:
        return {**live, "text": kept["text"]}
    return {**live, "text": f"{live['text']}\n{kept['text']}"}


def _refuse_strangers(request: Request, daemon: Daemon) -> None:
    peer = peer_of(request)
    if not may_change(peer, daemon.spec):
        raise HTTPException(403, f"{peer.name} may not read boot logs; ask an admin of the cluster")


def generation_of(request: Request) -> int | None:
    text = request.query_params.get("generation")
    if text is None:
        return None
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise BadRequest(f"generation is a whole number, not {text[:40]!r}")
    return int(text)


async def _live(daemon: Daemon, name: str, generation: int | None) -> dict[str, Any] | None:
    """The console of the node's instance, if it has one of that generation."""
    node = daemon.parts.record.nodes.get(name)
    if node is None:
        return None
    provider = daemon.parts.providers.get(node.group, daemon.parts.home)
    listed = [one for one in await provider.list(daemon.spec.cluster) if one.node == name]
    newest = max(listed, key=lambda one: one.generation, default=None)
    if newest is None or generation not in (None, newest.generation):
        return None
    return await _console(provider, newest)


async def _console(provider: Provider, instance: Instance) -> dict[str, Any] | None:
    text = (await provider.console([instance])).get(instance.id)
    if text is None:
        return None
    return {"generation": instance.generation, "live": True, "kept_at": None, "text": text}


def _kept(daemon: Daemon, name: str, generation: int | None) -> dict[str, Any] | None:
    found = read_kept(daemon.layout.boots, name, generation)
    if found is None:
        return None
    about = {"generation": found.generation, "live": False, "kept_at": found.kept_at}
    return {**about, "text": found.text}


def _nothing(name: str, generation: int | None) -> str:
    if generation is not None:
        return (
            f"no log of boot {generation} of {name} was kept; `tide events {name}` tells its past"
        )
    return f"{name} has no instance, and no boot of it failed of late"
