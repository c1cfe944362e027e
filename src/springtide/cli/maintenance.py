"""`tide maintenance`: whether what looks wrong is repaired, or only told."""

import time
from typing import Annotated

import typer

from springtide.cli import output
from springtide.cli.client import Json
from springtide.cli.consent import NO_CHANGE
from springtide.cli.endings import Complaint, Exit
from springtide.cli.output import JsonOption
from springtide.cli.parameters import DryRun
from springtide.cli.place import Choice, ClusterOption, StateOption, client

OFF = "off: what looks wrong is repaired"
STILL = "nothing is repaired or replaced; jobs start and stop nodes as ever"
LEAVE = "`tide maintenance off` ends it"


def maintenance(
    wanted: Annotated[
        str | None, typer.Argument(metavar="on|off", help="Left out, it is only shown.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", "-r", metavar="TEXT", help="Why; others will wonder.")
    ] = None,
    dry_run: DryRun = False,
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Have nothing repaired for a while.

    What looks wrong is still told. Jobs start and stop nodes as ever.
    """
    body = parse_wish(wanted, reason)
    daemon = client(Choice(cluster, state))
    answer = before = daemon.get("/maintenance")
    if body is not None and not dry_run:
        answer = daemon.post("/maintenance", body)
    if json:
        output.put_json(answer)
    else:
        output.put(f"maintenance {render_maintenance(answer['maintenance'], time.time())}")
    if body and body["on"] and (found := before["maintenance"]):
        output.note(f"tide: {render_before(found, time.time())}")
    if dry_run:
        output.note(NO_CHANGE)


def parse_wish(wanted: str | None, reason: str | None) -> Json | None:
    """What the daemon is asked for; None is nothing but to show it."""
    if wanted not in (None, "on", "off"):
        raise Complaint(f"maintenance is on or off, not {wanted!r}", Exit.WRONG)
    if wanted == "on" and not (reason or "").strip():
        raise Complaint("say why: --reason TEXT; others will wonder", Exit.WRONG)
    if wanted != "on" and reason is not None:
        raise Complaint("a reason is for `tide maintenance on`", Exit.WRONG)
    return None if wanted is None else {"on": wanted == "on", "reason": reason or ""}


def render_before(found: Json, now: float) -> str:
    """That somebody had begun with it, who may not be done."""
    since = output.render_age(found["since_at"], now)
    return f"it was on already, by {found['by']} {since}: {found['reason']}"


def render_maintenance(found: Json | None, now: float) -> str:
    if found is None:
        return OFF
    since = output.render_age(found["since_at"], now)
    return f"on, by {found['by']} {since}: {found['reason']}; {STILL}; {LEAVE}"
