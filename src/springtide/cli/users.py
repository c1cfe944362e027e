"""`tide user`: people of the cluster, who have an account and a home on all its nodes."""

import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from springtide.cli import output
from springtide.cli.client import Json
from springtide.cli.consent import NO_CHANGE, Consent
from springtide.cli.endings import Exit
from springtide.cli.keys import read_keys
from springtide.cli.output import JsonOption
from springtide.cli.parameters import DryRun, Yes, count, given
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.cli.text import Command, Group
from springtide.users import fingerprint

COLUMNS = ("user", "uid", "gid", "groups", "keys", "home", "since")
NOBODY = "no users; add one with `tide user add NAME --key FILE`"
LIMIT_S = 600.0
"""Many nodes may have to be asked to look, some in vain."""


user = typer.Typer(name="user", cls=Group, no_args_is_help=True, rich_markup_mode=None)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]


@user.callback()
def people() -> None:
    """People of the cluster: add, remove, list.

    They have an account, a home and their keys on all nodes, now and later.
    """


@user.command(cls=Command)
def add(
    name: NameArgument,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key", "-k", metavar="FILE|URL", help="Public keys they log in with; may be repeated."
        ),
    ] = None,
    remove_key: Annotated[
        list[str] | None,
        typer.Option(
            "--remove-key", metavar="FINGERPRINT|FILE", help="Keys to take back; may be repeated."
        ),
    ] = None,
    uid: Annotated[str | None, typer.Option("--uid", metavar="N", help="Not the next one.")] = None,
    gid: Annotated[str | None, typer.Option("--gid", metavar="N", help="Their group's.")] = None,
    gecos: Annotated[
        str | None, typer.Option("--gecos", metavar="TEXT", help="Their full name.")
    ] = None,
    shell: Annotated[
        str | None, typer.Option("--shell", metavar="PATH", help="Not the one of the cluster file.")
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", metavar="GROUP", help="A further group; may be repeated."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Fetch keys over http as well.")
    ] = False,
    dry_run: DryRun = False,
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Give somebody an account on all nodes, or more keys and groups.

    Whoever was here before gets the same ids again. An account of that name on the control host
    is used as it is.
    """
    wish: dict[str, Any] = {
        "name": name,
        "keys": [line for where in key or () for line in read_keys(where, insecure)],
        "gone_keys": [one for where in remove_key or () for one in fingerprints(where)],
        "groups": list(group or ()),
        **given(
            uid=count(uid, "--uid"),
            gid=count(gid, "--gid"),
            gecos=gecos,
            shell=shell,
            dry_run=dry_run,
        ),
    }
    answer = client(Choice(cluster, state)).post("/users", wish, timeout_s=LIMIT_S)
    _finish(answer, f"{name} {render_added(answer, dry_run)}", dry_run, json)


@user.command(cls=Command)
def remove(
    name: NameArgument,
    force: Annotated[bool, typer.Option("--force", help="Though they have jobs.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Take somebody's account from all nodes.

    The home is kept, and their ids are given to nobody else.
    """
    daemon = client(Choice(cluster, state))
    wish = {"name": name, "force": force}
    planned = daemon.post("/users/remove", {**wish, "dry_run": True})
    if dry_run:
        _finish(planned, f"{name} {render_removed(planned, dry_run)}", dry_run, json)
        return
    status = daemon.get("/status")
    Consent(yes).require(status["cluster"], f"remove {name} from all nodes")
    answer = daemon.post("/users/remove", wish, timeout_s=LIMIT_S)
    _finish(answer, f"{name} {render_removed(answer, dry_run)}", dry_run, json, "gone from")


@user.command(name="list", cls=Command)
def list_(
    json: JsonOption = False, cluster: ClusterOption = None, state: StateOption = None
) -> None:
    """Who has an account."""
    answer = client(Choice(cluster, state)).get("/users")
    if json:
        output.put_json(answer)
    elif answer["users"]:
        output.put_table(COLUMNS, render_users(answer["users"], time.time()))
    else:
        output.put(NOBODY)


def _finish(answer: Json, done: str, dry_run: bool, json: bool, where: str = "known on") -> None:
    """Nodes that could not be told leave it partly done."""
    if json:
        output.put_json(answer)
    else:
        nodes = render_nodes(answer, where)
        output.put(f"{done}; {nodes}" if nodes else done)
        for note in [*answer["notes"], *answer["left"]]:
            output.note(f"tide: {output.printable(note)}")
    if dry_run:
        output.note(NO_CHANGE)
    if answer["missing"] or answer["left"]:
        raise typer.Exit(Exit.PARTLY)


def fingerprints(where: str) -> list[str]:
    """Of a key that is named by its own, or of those in a file."""
    return [where] if where.startswith("SHA256:") else [*map(fingerprint, read_keys(where, False))]


def render_added(answer: Json, dry_run: bool) -> str:
    """What became of it: of somebody who was there, only what is other."""
    changes = answer["changes"]
    if changes is None:
        verb = "would be added" if dry_run else "added"
        return f"{verb}: {render_ids(answer['user'])}"
    if not changes:
        return "is so already"
    verb = "would be changed" if dry_run else "changed"
    return f"{verb}: {', '.join(output.printable(one) for one in changes)}"


def render_removed(answer: Json, dry_run: bool) -> str:
    if answer["changes"] is not None:
        return "was removed already"
    return "would be removed" if dry_run else "removed"


def render_ids(one: Json) -> str:
    kept = "" if one["own_account"] else ", as the control host has it"
    return f"uid {one['uid']}, gid {one['gid']}, home {one['home']}{kept}"


def render_nodes(answer: Json, where: str) -> str:
    """How many of those that are up know of it."""
    up, missing = answer["nodes"], answer["missing"]
    if not up:
        return ""
    said = f"{where} {up - len(missing)} of {up} nodes that are up"
    why = [f"{node}: {output.printable(text)}" for node, text in sorted(missing.items())]
    later = ["they get it when they look by themselves, or join again"] if missing else []
    return "; ".join([said, *why, *later])


def render_users(found: Iterable[Json], now: float) -> list[list[str]]:
    """A row each."""
    return [
        [
            *(one["name"], str(one["uid"]), str(one["gid"]), ",".join(one["groups"])),
            *(str(len(one["keys"])), one["home"], output.render_age(one["created_at"], now)),
        ]
        for one in found
    ]
