"""`tide timeline`: where the time of a node's start went."""

from collections.abc import Iterable
from typing import Annotated

import typer

from springtide.cli import output
from springtide.cli.client import Json
from springtide.cli.endings import Complaint, Exit
from springtide.cli.output import JsonOption
from springtide.cli.parameters import hosts, number
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.nodeset import fold

COLUMNS = ("phase", "at", "took", "remark")
TYPICAL = ("phase", "boots", "at", "took", "slowest", "node")


def timeline(
    nodes: Annotated[str, typer.Argument(metavar="NODES", help="One node, or a host list.")],
    generation: Annotated[
        str | None,
        typer.Option("--generation", "-g", metavar="N", help="Of that instance of the node."),
    ] = None,
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Where the time of a node's last start went.

    From the request to service, by what the daemon saw and the node told; of several nodes, the
    median of each phase.
    """
    names = hosts(nodes)
    if generation is not None and len(names) != 1:
        raise Complaint(f"--generation is of one node; {nodes} are {len(names)}", Exit.WRONG)
    wanted = None if generation is None else number(generation, "--generation")
    daemon = client(Choice(cluster, state))
    if len(names) == 1:
        answer = daemon.get(f"/nodes/{names[0]}/timeline", generation=wanted)
    else:
        answer = daemon.get("/timeline", names=fold(names))
        if not answer["boots"]:
            raise Complaint(f"{fold(names)}: nothing is known of any boot", Exit.WRONG)
    if json:
        output.put_json(answer)
    elif len(names) == 1:
        output.note(f"tide: {render_origin(answer)}")
        output.put_table(COLUMNS, render_rows(answer["phases"]))
    else:
        output.note(f"tide: medians of {answer['boots']} boots")
        output.put_table(TYPICAL, render_typical(answer["phases"]))


def render_origin(answer: Json) -> str:
    which = "" if answer["generation"] is None else f" {answer['generation']}"
    asked = f"requested at {output.render_time(answer['requested_at'])}"
    rest = "" if answer["over"] else ", and not over yet"
    return f"boot{which} of {answer['node']}, {asked}{rest}"


def render_rows(rows: Iterable[Json]) -> list[list[str]]:
    return [
        [row["phase"], f"+{row['at_s']:.2f}s", f"{row['took_s']:.2f}s", row["remark"]]
        for row in rows
    ]


def render_typical(rows: Iterable[Json]) -> list[list[str]]:
    return [
        [
            row["phase"],
            str(row["count"]),
            f"+{row['at_s']:.2f}s",
            f"{row['took_s']:.2f}s",
            f"{row['slowest_s']:.2f}s",
            row["slowest"],
        ]
        for row in rows
    ]
