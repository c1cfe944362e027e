"""`tide image`: images that nodes are made from are built, taken of nodes, listed and cleaned."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from springtide.cli import output
from springtide.cli.client import Client, Json
from springtide.cli.consent import NO_CHANGE, Consent
from springtide.cli.endings import Complaint, Exit
from springtide.cli.image_text import (
    NONE,
    names_of,
    render_cleaning,
    render_end,
    render_images,
    render_plan,
    render_snapshot,
)
from springtide.cli.log import render_text
from springtide.cli.output import JsonOption
from springtide.cli.parameters import DryRun, NoWait, Yes, count, given, hosts
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.cli.progress import Progress, looks, patiently
from springtide.cli.text import Command, Group

COLUMNS = ("image", "arch", "state", "from", "made", "by", "nodes", "new nodes of", "id")
CLEAN_S = 600.0
"""Providers take their time over each image."""
SHOWN = 20
"""So many lines of a log are shown unasked."""

image = typer.Typer(name="image", cls=Group, no_args_is_help=True, rich_markup_mode=None)
FamilyArgument = Annotated[
    str, typer.Argument(metavar="FAMILY", help="An image of the file that says how it is built.")
]


@image.callback()
def images() -> None:
    """Images of nodes: build, snapshot, list, clean.

    New nodes get the newest of a family; `tide rebuild` gives it to those that are up.
    """


@image.command("list", cls=Command)
def list_(
    json: JsonOption = False, cluster: ClusterOption = None, state: StateOption = None
) -> None:
    """What was made here, and who uses it."""
    answer = client(Choice(cluster, state)).get("/images")
    if json:
        output.put_json(answer)
    elif answer["images"]:
        output.put_table(COLUMNS, render_images(answer["images"], time.time()))
    else:
        output.put(NONE)


@image.command(cls=Command)
def build(
    family: FamilyArgument,
    script: Annotated[
        list[str] | None,
        typer.Option(
            "--script", "-s", metavar="FILE", help="A further program to run; may be repeated."
        ),
    ] = None,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Build the next image of a family.

    On a machine of its own, made from the family's base, with its scripts.
    """
    daemon = client(Choice(cluster, state))
    body = {"family": family, "scripts": [_read(path) for path in script or ()]}
    if dry_run:
        planned = daemon.post("/images/build", {**body, "dry_run": True})["images"]
        output.put("\n".join(render_plan(planned)))
        output.note(NO_CHANGE)
        return
    asked = daemon.post("/images/build", body)["images"]
    raise typer.Exit(conclude(daemon, asked, no_wait))


def _read(path: str) -> Json:
    try:
        return {"name": path, "text": Path(path).read_text()}
    except (OSError, UnicodeDecodeError) as error:
        raise Complaint(f"cannot read {path}: {error}", Exit.WRONG) from None


@image.command(cls=Command)
def snapshot(
    node: Annotated[str, typer.Argument(metavar="NODE", help="One node in service.")],
    family: Annotated[
        str | None,
        typer.Option("--family", metavar="F", help="Its family; left out, that of its group."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="N", help="A family of its own, called so.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    no_wait: NoWait = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Make an image of a node, without who it was.

    A machine with a disk of its own leaves service for that, and is made anew after it.
    """
    if len(hosts(node)) != 1:
        raise Complaint(f"name one node; {node} are {len(hosts(node))}", Exit.WRONG)
    if family and name:
        raise Complaint("give --family or --name, not both", Exit.WRONG)
    daemon = client(Choice(cluster, state))
    if family:
        _refuse_unknown(daemon, family)
    body = {"node": node, **given(family=family or name)}
    plan = daemon.post("/images/snapshot", {**body, "dry_run": True})
    lines = "\n".join([*render_snapshot(plan), *_use(daemon, plan["images"][0])])
    if dry_run:
        output.put(lines)
        output.note(NO_CHANGE)
        return
    output.note(lines)
    if plan["disturbed"]:
        cluster_name = daemon.get("/status")["cluster"]
        Consent(yes).require(cluster_name, f"take {node} out of service for it")
    asked = daemon.post("/images/snapshot", body)["images"]
    raise typer.Exit(conclude(daemon, asked, no_wait))


def _refuse_unknown(daemon: Client, family: str) -> None:
    """A slip of the pen makes no family."""
    answer = daemon.get("/images")
    made = (one["family"] for one in (*answer["families"], *answer["images"]))
    known = list(dict.fromkeys(made))
    if family not in known:
        there = f"there are {', '.join(known)}" if known else "there is none yet"
        raise Complaint(
            f"there is no family {family}; {there}. A new one is made with `--name {family}`",
            Exit.WRONG,
        )


def _use(daemon: Client, one: Json) -> list[str]:
    """How nodes get an image of a family that the file does not have."""
    if one["family"] in [known["family"] for known in daemon.get("/images")["families"]]:
        return []
    return [
        f"  the cluster file has no family {one['family']}: write it there for groups to use it, "
        f"or give the image to nodes with `tide rebuild HOSTLIST --image {one['name']}`"
    ]


@image.command(cls=Command)
def clean(
    family: Annotated[
        str | None,
        typer.Argument(metavar="FAMILY", help="A family, or one image of it; left out, all."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="N", help="The newest so many, not what the file says."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Delete old images, and what is left of failed ones.

    What nodes run, or new ones would get, stays. An image that is named, such as compute@3, goes
    and new ones get the one before; as long as nodes run it, that fails.
    """
    daemon = client(Choice(cluster, state))
    body = given(family=family, keep=count(keep, "--keep"))
    plan = daemon.post("/images/clean", {**body, "dry_run": True})
    output.put("\n".join(render_cleaning(plan, "delete")))
    if dry_run or not plan["gone"]:
        output.note(NO_CHANGE)
        raise typer.Exit(Exit.FAILED if family in plan["kept"] and not dry_run else Exit.DONE)
    names = ", ".join(names_of(plan["gone"]))
    Consent(yes).require(daemon.get("/status")["cluster"], f"delete {names}")
    done = daemon.post("/images/clean", body, CLEAN_S)
    stayed = {one["name"] for one in plan["gone"]} - {one["name"] for one in done["gone"]}
    for each in sorted(stayed):
        output.note(f"tide: {each} stays: {done['kept'].get(each, 'it is used by now')}")
    output.put(f"deleted: {', '.join(names_of(done['gone'])) or 'nothing'}")
    if stayed:
        raise typer.Exit(Exit.PARTLY if done["gone"] else Exit.FAILED)


@image.command(cls=Command)
def log(
    name: Annotated[str, typer.Argument(metavar="IMAGE", help="Such as compute@3.")],
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """What was said while an image was built."""
    found = client(Choice(cluster, state)).get(f"/images/{quote(name, safe='@')}/log")
    if json:
        output.put_json(found)
        return
    for one in found["images"]:
        output.note(f"tide: {render_end(one)}")
        output.put(render_text(one["log"]))


# --- watching --------------------------------------------------------------------------------


def conclude(daemon: Client, asked: Sequence[Json], no_wait: bool) -> Exit:
    """Until all are made or failed; Ctrl-C ends the watching, not the work."""
    name = asked[0]["name"]
    if no_wait:
        output.put(f"{name}: asked for; see `tide image list`")
        return Exit.DONE
    progress = Progress()
    try:
        ended = _watch(daemon, name, progress)
    except KeyboardInterrupt:
        progress.clear()
        output.note(f"tide: interrupted; {name} is made by the daemon; see `tide image list`")
        return Exit.INTERRUPTED
    finally:
        progress.clear()
    return _tell(daemon, ended)


def _watch(daemon: Client, name: str, progress: Progress) -> list[Json]:
    ended: list[Json] = []
    for _ in looks():
        found = patiently(lambda: daemon.get("/images"), progress)["images"]
        ended = [one for one in found if one["name"] == name]
        under_way = [one for one in ended if one["state"] == "building"]
        if not under_way:
            break
        words = dict.fromkeys(one["doing"] or "it begins" for one in under_way)
        progress.now(f"… {name}: {'; '.join(words)}")
    return ended


def _tell(daemon: Client, ended: Sequence[Json]) -> Exit:
    failed = [one for one in ended if one["state"] == "failed"]
    for one in ended:
        put = output.note if one in failed else output.put
        put(f"tide: {render_end(one)}" if one in failed else render_end(one))
    if not failed:
        return Exit.DONE
    said = daemon.get(f"/images/{failed[0]['name']}/log")["images"]
    for one in said:
        for line in _unsaid(one)[-SHOWN:]:
            output.note(f"  {line}")
    output.note(f"tide: all of it: `tide image log {failed[0]['name']}`")
    return Exit.FAILED if len(failed) == len(ended) else Exit.PARTLY


def _unsaid(one: Json) -> list[str]:
    """Its log without the last line, if that is why it failed: it was told already."""
    lines = render_text(one["log"]).split("\n")
    told = one["detail"] and lines[-1].endswith(one["detail"])
    return lines[:-1] if told else lines
