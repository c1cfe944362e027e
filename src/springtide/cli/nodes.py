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
from springtide.cli.words import OTHERS, SLURM, kind_of, terms
from springtide.nodeset import expand, fold

COLUMNS = ("nodes", "group", "state", "slurm", "instance", "address", "changed", "reason")
UNMANAGED = "not ours"
OFF = "powered down"
OURS = "springtide: "
"""How reasons begin that we have the batch system keep."""


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
        kind = kind_of(answer)
        rows = render_rows(answer["nodes"], each, time.time(), terms(kind).system)
        output.put_table(
            [kind if one == SLURM and kind in OTHERS else one for one in COLUMNS], rows
        )


def render_rows(
    found: Sequence[Json], each: bool, now: float, system: str = "Slurm"
) -> list[list[str]]:
    """A row for each node, or for all nodes that look the same."""
    if each:
        return [_row([node], now, system) for node in found]
    alike: dict[tuple[str, ...], list[Json]] = {}
    for node in found:
        alike.setdefault(_looks(node, system), []).append(node)
    return [_row(group, now, system) for group in alike.values()]


def _row(alike: Sequence[Json], now: float, system: str) -> list[str]:
    group, state, seen, instance, reason = _looks(alike[0], system)
    names = fold(node["name"] for node in alike)
    address = {node["name"]: node["address"] for node in alike}
    addresses = _addresses(address[name] for name in expand(names))
    age = output.render_ages((node["changed_at"] for node in alike), now)
    return [names, group, state, seen, instance, addresses, age, reason]


def _looks(node: Json, system: str) -> tuple[str, ...]:
    """What nodes in one row have in common."""
    return (
        node["group"],
        node["state"] or UNMANAGED,
        _batch_state(node["batch"]),
        ",".join(instance["state"] for instance in node["instances"]),
        output.brief(_reason(node, system)),
    )


def _batch_state(batch: Json | None) -> str:
    """State and flags as scontrol writes them.

    A batch system that is read knows nothing of a node that is off, or nothing that would help.
    """
    if batch is None or (batch.get("power") == OFF and not batch["flags"]):
        return ""
    return "+".join([batch["state"], *batch["flags"]])


def _reason(node: Json, system: str) -> str:
    """Ours, or the batch system's if it has another."""
    theirs = node["batch"]["reason"] if node["batch"] else ""
    theirs = theirs.removeprefix(OURS) if node["reason"] else theirs
    if theirs and theirs not in node["reason"]:
        return f"{node['reason']}; {system}: {theirs}" if node["reason"] else theirs
    return str(node["reason"])


def _addresses(found: Iterable[str | None]) -> str:
    """One address or two as they come, or the lowest and the highest of several."""
    known = list(dict.fromkeys(address for address in found if address))
    if len(known) <= 2:
        return ",".join(known)
    return f"{min(known, key=_by_number)}…{max(known, key=_by_number)}"


def _by_number(address: str) -> tuple[int, int, str]:
    try:
        number = ip_address(address)
        return number.version, int(number), address
    except ValueError:
        return 0, 0, address
