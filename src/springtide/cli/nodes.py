"""`tide nodes`: every configured node, as record, batch system and provider see it."""

import time
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Annotated

import typer

from springtide.cli import output
from springtide.cli.client import Json
from springtide.cli.cluster_file import mention_edits
from springtide.cli.images import COLUMNS as IMAGE_COLUMNS
from springtide.cli.images import render_images
from springtide.cli.output import JsonOption
from springtide.cli.parameters import MaybeHosts, hosts
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.nodeset import fold

COLUMNS = ("nodes", "group", "state", "slurm", "instance", "address", "changed", "reason")
UNMANAGED = "not ours"


def nodes(
    hostlist: MaybeHosts = None,
    images: Annotated[
        bool, typer.Option("--images", help="What they run, what the file wants, and since when.")
    ] = False,
    each: Annotated[bool, typer.Option("--each", "-1", help="One row for each node.")] = False,
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Every configured node and its states.

    Powered-down ones too; nodes that look the same share a row.
    """
    names = None if hostlist is None else fold(hosts(hostlist))
    daemon = client(Choice(cluster, state))
    answer = daemon.get("/nodes", names=names)
    if json:
        output.put_json(answer)
        return
    for problem in answer["problems"]:
        output.note(f"tide: incomplete: {problem}")
    if images:
        mention_edits(daemon)
        output.put_table(IMAGE_COLUMNS, render_images(answer["nodes"], each, time.time()))
    else:
        output.put_table(COLUMNS, render_rows(answer["nodes"], each, time.time()))


def render_rows(found: Sequence[Json], each: bool, now: float) -> list[list[str]]:
    """A row for each node, or for all nodes that look the same."""
    if each:
        return [_row([node], now) for node in found]
    alike: dict[tuple[str, ...], list[Json]] = {}
    for node in found:
        alike.setdefault(_looks(node), []).append(node)
    return [_row(group, now) for group in alike.values()]


def _row(alike: Sequence[Json], now: float) -> list[str]:
    group, state, seen, instance, reason = _looks(alike[0])
    names = fold(node["name"] for node in alike)
    addresses = _addresses(node["address"] for node in alike)
    age = output.render_ages((node["changed_at"] for node in alike), now)
    return [names, group, state, seen, instance, addresses, age, reason]


def _looks(node: Json) -> tuple[str, ...]:
    """What nodes in one row have in common."""
    return (
        node["group"],
        node["state"] or UNMANAGED,
        _batch_state(node["batch"]),
        ",".join(instance["state"] for instance in node["instances"]),
        _reason(node),
    )


def _batch_state(batch: Json | None) -> str:
    """State and flags as scontrol writes them."""
    return "" if batch is None else "+".join([batch["state"], *batch["flags"]])


def _reason(node: Json) -> str:
    """Ours, or the batch system's if it has another."""
    theirs = node["batch"]["reason"] if node["batch"] else ""
    if theirs and theirs not in node["reason"]:
        return f"{node['reason']}; Slurm: {theirs}" if node["reason"] else theirs
    return str(node["reason"])


def _addresses(found: Iterable[str | None]) -> str:
    """One address or two, or the first and the last of several."""
    known = sorted({address for address in found if address}, key=_by_number)
    if len(known) <= 2:
        return ",".join(known)
    return f"{known[0]}…{known[-1]}"


def _by_number(address: str) -> tuple[int, int, str]:
    try:
        number = ip_address(address)
        return number.version, int(number), address
    except ValueError:
        return 0, 0, address
