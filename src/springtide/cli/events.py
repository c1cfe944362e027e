"""`tide events`: what happened, oldest first, and with --follow what happens."""

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from json import dumps
from typing import Annotated

import typer

from springtide.cli import output
from springtide.cli.client import Away, Client, Json
from springtide.cli.endings import Complaint, Exit
from springtide.cli.output import JsonOption
from springtide.cli.parameters import LimitOption, hosts, number, parse_duration
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.nodeset import fold

TOGETHER_S = 1.0
"""Equal events that are no further apart than this share a line."""
QUIET_S = 0.1
"""Followed events are printed when none has come for this long, or so many have."""
WAKE_S = 1.0
"""Python hears of an interruption that comes just before it begins to wait only when that ends."""
MANY = 1000
ALL = 100_000
"""The most that the daemon answers at once."""
ALWAYS_DIFFERENT = frozenset({"instance created", "address known"})
"""Events whose detail names one instance: they share a line though their details differ."""


def events(
    host: Annotated[str | None, typer.Argument(metavar="HOST", help="Only this node.")] = None,
    operation: Annotated[
        str | None, typer.Option("--operation", "-o", metavar="ID", help="Only this operation.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="And those to come.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Of so long, such as 10m.")
    ] = None,
    limit: LimitOption = str(MANY),
    each: Annotated[bool, typer.Option("--each", "-1", help="One line for each event.")] = False,
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """What happened, oldest first.

    Equal events of an operation share a line.
    """
    id = None if operation is None else number(operation, "--operation")
    which: dict[str, object] = {"node": _one(host), "operation": id}
    newest, since_s = number(limit, "--limit"), parse_duration(since)
    daemon = client(Choice(cluster, state))
    past = list(daemon.lines("/events", limit=newest, **which))
    _put(past if since_s is None else recent(past, time.time() - since_s), each, json)
    if follow:
        for some in _to_come(daemon, past[-1]["id"] if past else 0, which):
            _put(some, each, json)
    elif not past:
        _explain_nothing(daemon, host, id)


def recent(found: Iterable[Json], since: float) -> list[Json]:
    return [event for event in found if event["at"] >= since]


def _one(host: str | None) -> str | None:
    if host is None:
        return None
    names = hosts(host)
    if len(names) != 1:
        raise Complaint(f"name one node, or none for all; {host} are {len(names)}", Exit.WRONG)
    return names[0]


def _explain_nothing(daemon: Client, host: str | None, operation: int | None) -> None:
    """Perhaps there is no such node or operation; the daemon says so."""
    if host is not None:
        daemon.get("/nodes", names=host, world=0)
    if operation is not None:
        daemon.get(f"/operations/{operation}")
    output.note("no events yet")


def _put(found: list[Json], each: bool, json: bool) -> None:
    for line in [dumps(event) for event in found] if json else render_events(found, each):
        output.put(line)


# --- following ---------------------------------------------------------------------------


def _to_come(daemon: Client, after: int, which: dict[str, object]) -> Iterator[list[Json]]:
    """Events as they happen, those of one moment together. Ends with the daemon."""
    came: queue.SimpleQueue[Json | Complaint] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(daemon, after, which, came), daemon=True).start()
    while True:
        some = [_next(came)]
        while len(some) < MANY:
            try:
                some.append(came.get(timeout=QUIET_S))
            except queue.Empty:
                break
        yield [event for event in some if not isinstance(event, Complaint)]
        if isinstance(some[-1], Complaint):
            raise some[-1]


def _next(came: "queue.SimpleQueue[Json | Complaint]") -> Json | Complaint:
    while True:
        with suppress(queue.Empty):
            return came.get(timeout=WAKE_S)


def _listen(
    daemon: Client,
    after: int,
    which: dict[str, object],
    came: "queue.SimpleQueue[Json | Complaint]",
) -> None:
    try:
        for event in daemon.lines("/events", follow=1, after=after, limit=ALL, **which):
            came.put(event)
        came.put(Away(f"the daemon on {daemon.layout.socket} has stopped"))
    except Complaint as complaint:
        came.put(complaint)


# --- rendering ---------------------------------------------------------------------------


def render_events(found: Iterable[Json], each: bool) -> list[str]:
    return [_line(alike) for alike in ([[e] for e in found] if each else fold_events(found))]


def fold_events(found: Iterable[Json]) -> list[list[Json]]:
    """Neighbours that differ only in their node, put together."""
    groups: list[list[Json]] = []
    for event in found:
        if groups and _alike(groups[-1][0], event):
            groups[-1].append(event)
        else:
            groups.append([event])
    return groups


def _alike(one: Json, other: Json) -> bool:
    if one["node"] is None or other["node"] is None:
        return False
    same = all(one[key] == other[key] for key in ("what", "operation"))
    detail = one["detail"] == other["detail"] or one["what"] in ALWAYS_DIFFERENT
    return same and detail and other["at"] - one["at"] <= TOGETHER_S


def _line(alike: list[Json]) -> str:
    first = alike[0]
    nodes = fold(event["node"] for event in alike) if first["node"] else ""
    what = f"{nodes} {first['what']}".lstrip()
    if len({event["detail"] for event in alike}) > 1:
        what += " …"
    elif first["detail"]:
        what += f": {output.printable(first['detail'])}"
    return f"{_time(first['at'])}  {first['operation'] or output.NOTHING:>4}  {what}"


def _time(at: float) -> str:
    return f"{output.render_time(at)}.{int(at % 1 * 1000):03d}"
