"""The routes for people of the cluster: everybody may look, some may add and remove."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from springtide import users
from springtide.api.asked import body_of, daemon_of, text_of, who_may_change
from springtide.roster import By, Outcome, Unknown, changed_of
from springtide.spool import BadRequest
from springtide.users import NotAllowed, User, UserError, Wish

MAX_GROUPS = 64


async def show_users(request: Request) -> Response:
    found = await daemon_of(request).roster.present()
    return JSONResponse({"users": [_shape(user) for user in found]})


async def show_kept(request: Request) -> Response:
    kept = await daemon_of(request).roster.kept()
    return JSONResponse({"homes": list(kept.homes), "groups": list(kept.groups)})


async def add_user(request: Request) -> Response:
    peer, body = who_may_change(request), await body_of(request)
    roster = daemon_of(request).roster
    wish, by = parse_wish(body), By(peer.name, peer.uid == 0)
    try:
        if body.get("dry_run") is True:
            added = await roster.decide(wish, by)
            return _answer(Outcome(added.user, changes=changed_of(added)))
        return _answer(await roster.add(wish, by))
    except NotAllowed as error:
        raise HTTPException(403, str(error)) from error
    except UserError as error:
        raise HTTPException(409, str(error)) from error


async def remove_user(request: Request) -> Response:
    peer, body = who_may_change(request), await body_of(request)
    roster, force = daemon_of(request).roster, body.get("force") is True
    name = text_of(body, "name")
    try:
        if body.get("dry_run") is True:
            return _answer(await roster.leaving(name, force))
        return _answer(await roster.remove(name, peer.name, force))
    except Unknown as error:
        raise HTTPException(404, str(error)) from error
    except UserError as error:
        raise HTTPException(409, str(error)) from error


def parse_wish(body: dict[str, Any]) -> Wish:
    """What a body asks for; what cannot be is refused in words."""
    try:
        wish = Wish(
            users.parse_name(text_of(body, "name")),
            _id(body, "uid"),
            _id(body, "gid"),
            users.parse_gecos(text_of(body, "gecos")) if body.get("gecos") is not None else None,
            users.parse_shell(text_of(body, "shell")) if body.get("shell") is not None else None,
            tuple(users.parse_name(name, "group") for name in _texts(body, "groups")),
            tuple(dict.fromkeys(_keys(body))),
            tuple(users.parse_fingerprint(one) for one in _texts(body, "gone_keys")),
        )
    except UserError as error:
        raise BadRequest(str(error)) from error
    for print_ in map(users.fingerprint, wish.keys):
        if print_ in wish.gone_keys:
            raise BadRequest(f"key {print_} is to be added and taken back: say one of both")
    return wish


def _keys(body: dict[str, Any]) -> tuple[str, ...]:
    texts = _texts(body, "keys")
    return users.parse_keys("\n".join(texts)) if texts else ()


def _id(body: dict[str, Any], key: str) -> int | None:
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadRequest(f"{key} is a whole number")
    return users.parse_id(value, key)


def _texts(body: dict[str, Any], key: str) -> list[str]:
    value = body.get(key) or []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadRequest(f"{key} is a list of texts")
    if len(value) > MAX_GROUPS or any(len(one) > users.MAX_KEY for one in value):
        raise BadRequest(f"{key} has at most {MAX_GROUPS} texts of {users.MAX_KEY} characters")
    return value


def _answer(outcome: Outcome) -> Response:
    return JSONResponse(
        {
            "user": _shape(outcome.user),
            "notes": list(outcome.notes),
            "nodes": outcome.nodes,
            "missing": outcome.missing,
            "left": list(outcome.left),
            "changes": None if outcome.changes is None else list(outcome.changes),
        }
    )


def _shape(user: User) -> dict[str, Any]:
    shown = ("name", "uid", "gid", "gecos", "home", "shell", "created_at")
    return {
        **{key: getattr(user, key) for key in shown},
        "groups": list(user.groups),
        "keys": [
            {"fingerprint": users.fingerprint(key), "comment": _comment(key)} for key in user.keys
        ],
        "own_account": user.made,
    }


def _comment(key: str) -> str:
    return key.split(" ", 2)[2] if key.count(" ") > 1 else ""
