"""The routes for images: what was made, builds, snapshots, cleaning.

Everybody may look; to change something takes the rights that other changes take. What scripts run
as root is root's to say.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from springtide import images
from springtide.api.asked import body_of, daemon_of, text_of, who_may_change
from springtide.api.peers import may_change, peer_of
from springtide.builds import Builds
from springtide.configure.building import Script
from springtide.daemon import Daemon
from springtide.model import MadeImage, NodeState
from springtide.nodeset import fold
from springtide.spool import BadRequest

Json = dict[str, Any]

MAX_SCRIPT = 1 << 20
MAX_SCRIPTS = 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


async def show(request: Request) -> Response:
    daemon = daemon_of(request)
    spec, made = daemon.spec, daemon.builds.made
    families = [
        {
            "family": key,
            "base": image.build.base,
            "keep": image.build.keep,
            "groups": images.users_of(spec, key),
            "newest": {g: images.resolve(spec, made, key, g) for g in images.users_of(spec, key)},
        }
        for key, image in spec.images.items()
        if image.build
    ]
    return JSONResponse({"images": [_shape(daemon, one) for one in made], "families": families})


async def log(request: Request) -> Response:
    """What the builder said, for those who may change things only, as with logs of boots."""
    daemon, peer, name = daemon_of(request), peer_of(request), request.path_params["name"]
    if not may_change(peer, daemon.spec):
        raise HTTPException(403, f"{peer.name} may not read logs of builds; ask an admin")
    found = [one for one in daemon.builds.made if one.name == name]
    if not found:
        raise HTTPException(404, _no_image(name, daemon.builds.made))
    return JSONResponse({"images": [{**_shape(daemon, one), "log": one.log} for one in found]})


def _no_image(name: str, made: Iterable[MadeImage]) -> str:
    """A family has several."""
    images = list(dict.fromkeys(one.name for one in made if one.family == name))
    if images:
        return f"{name[:80]} is a family of images; name one of them: {', '.join(images)}"
    return f"there is no image {name[:80]}; see `tide image list`"


async def build(request: Request) -> Response:
    peer = who_may_change(request)
    builds, body = daemon_of(request).builds, await body_of(request)
    family, scripts = text_of(body, "family"), _scripts(body)
    if scripts and peer.uid != 0:
        raise HTTPException(403, f"{peer.name} may not say what root runs; root may")
    if body.get("dry_run") is True:
        planned = [image for image, _ in await builds.plan_build(family, peer.name)]
    else:
        planned = await builds.build(family, peer.name, scripts)
    return JSONResponse(_answer(request, planned), 202)


def _scripts(body: Mapping[str, Any]) -> list[Script]:
    given = body.get("scripts") or []
    if not isinstance(given, list) or len(given) > MAX_SCRIPTS:
        raise BadRequest(f"scripts is a list of at most {MAX_SCRIPTS}")
    found = []
    for one in given:
        if not isinstance(one, dict) or "\0" in str(one.get("text")):
            raise BadRequest("a script has a name and a text")
        found.append(Script(text_of(one, "name"), text_of(one, "text", MAX_SCRIPT)))
    return found


async def snapshot(request: Request) -> Response:
    peer = who_may_change(request)
    builds, body = daemon_of(request).builds, await body_of(request)
    node, family = text_of(body, "node"), text_of(body, "family") or None
    if family is not None:
        _refuse_name(builds, family)
    if body.get("dry_run") is True:
        image = await builds.plan_snapshot(node, family, peer.name)
    else:
        image = await builds.snapshot(node, family, peer.name)
    answer = _answer(request, [image])
    return JSONResponse({**answer, "disturbed": builds.is_disturbed(image)}, 202)


def _refuse_name(builds: Builds, family: str) -> None:
    if not _NAME.fullmatch(family):
        raise BadRequest(f"no family can be called {family[:80]!r}: use letters, digits, _ . and -")
    image = builds.spec.images.get(family)
    if image is not None and image.build is None:
        raise BadRequest(f"{family} is an image of the cluster file, and no family")


async def clean(request: Request) -> Response:
    """With `dry_run` only what would go."""
    peer = who_may_change(request)
    daemon, body = daemon_of(request), await body_of(request)
    family, keep = text_of(body, "family") or None, body.get("keep")
    if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool) or keep < 0):
        raise BadRequest("keep is a whole number from 0")
    if body.get("dry_run") is True:
        plan = await daemon.builds.plan_clean(family, keep)
        gone, kept = plan.going, plan.kept
    else:
        done = await daemon.builds.clean(family, keep, peer.name)
        gone, kept = done.gone, done.kept
    shown = [_shape(daemon, one) for one in gone]
    return JSONResponse({"gone": shown, "kept": dict(kept)})


def _answer(request: Request, made: list[MadeImage]) -> Json:
    return {"images": [_shape(daemon_of(request), one) for one in made]}


def _shape(daemon: Daemon, one: MadeImage) -> Json:
    spec, nodes = daemon.spec, daemon.parts.record.nodes.values()
    runs = [n.name for n in nodes if n.image == one.name and n.state is not NodeState.OFF]
    return {
        "name": one.name,
        "family": one.family,
        "number": one.number,
        "arch": one.arch,
        "state": one.state.value,
        "doing": daemon.builds.doing.get(one.label, ""),
        "detail": one.detail,
        "group": one.group,
        "provider": one.provider,
        "id": one.id,
        "made_from": one.made_from,
        "made_by": one.made_by,
        "created_at": one.created_at,
        "nodes": fold(runs),
        "groups": [key for key in spec.groups if daemon.parts.wanted_image(key) == one.name],
    }
