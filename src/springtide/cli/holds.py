"""`tide holds`: where nothing is launched for a while, why, and until when."""

import time
from collections.abc import Iterable
from typing import Annotated

import typer

from springtide.cli import output
from springtide.cli.client import Client, Json
from springtide.cli.consent import NO_CHANGE
from springtide.cli.output import JsonOption
from springtide.cli.parameters import DryRun
from springtide.cli.place import Choice, ClusterOption, StateOption, client

COLUMNS = ("hold", "since", "until", "why")
NOTHING = "nothing is held"
OVER = "tried next"
LIFTED = "until lifted"
FOR_EVER_S = 365 * 86400.0
"""What lasts longer does not end by itself."""


def holds(
    lift: Annotated[
        str | None,
        typer.Option("--lift", metavar="KEY|GROUP", help="End this one: try again at once."),
    ] = None,
    dry_run: DryRun = False,
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Where nothing is launched, why, and until when.

    Most end by themselves: when their time is over one node is tried.
    """
    daemon = client(Choice(cluster, state))
    if lift is not None and not dry_run:
        _lift(daemon, lift, json)
        return
    answer = daemon.get("/holds")
    if json:
        output.put_json(answer)
    elif answer["holds"]:
        output.put_table(COLUMNS, render_holds(answer["holds"], time.time()))
    else:
        output.put(NOTHING)
    if dry_run:
        output.note(NO_CHANGE)


def _lift(daemon: Client, key: str, json: bool) -> None:
    answer = daemon.post("/holds/lift", {"key": key})
    if json:
        output.put_json(answer)
    else:
        output.put(f"{answer['lifted']}: held no more; the next job that needs it tries it")


def render_holds(found: Iterable[Json], now: float) -> list[list[str]]:
    """A row each."""
    return [
        [
            hold["key"],
            output.render_age(hold["since_at"], now),
            render_until(hold["until_at"], now),
            hold["text"],
        ]
        for hold in found
    ]


def render_until(until_at: float, now: float) -> str:
    """How long still; after that the next job that needs it has one node tried."""
    left_s = until_at - now
    if left_s > FOR_EVER_S:
        return LIFTED
    return f"in {output.render_duration(left_s)}" if left_s > 0 else OVER
