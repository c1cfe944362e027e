"""`tide log`: what a node said while it booted, now or when it last failed to come up."""

from typing import Annotated

import typer

from springtide.cli import output
from springtide.cli.client import Json
from springtide.cli.endings import Complaint, Exit
from springtide.cli.output import JsonOption
from springtide.cli.parameters import hosts, number
from springtide.cli.place import Choice, ClusterOption, StateOption, client


def log(
    node: Annotated[str, typer.Argument(metavar="NODE", help="One node.")],
    generation: Annotated[
        str | None,
        typer.Option("--generation", "-g", metavar="N", help="Of that instance of the node."),
    ] = None,
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """What a node said while it booted.

    Of a node that has an instance, what that says; else what was kept of its last failed boot,
    with the reason.
    """
    names = hosts(node)
    if len(names) != 1:
        raise Complaint(f"name one node; {node} are {len(names)}", Exit.WRONG)
    wanted = None if generation is None else number(generation, "--generation")
    answer = client(Choice(cluster, state)).get(f"/nodes/{names[0]}/boot", generation=wanted)
    if json:
        output.put_json(answer)
        return
    output.note(f"tide: {render_origin(answer)}")
    output.put(render_text(answer["text"]))


def render_origin(answer: Json) -> str:
    which = f"boot {answer['generation']} of {answer['node']}"
    if answer["live"]:
        return which if answer["text"] else f"{which}, which has said nothing"
    return f"{which} failed at {output.render_time(answer['kept_at'])}"


def render_text(text: str) -> str:
    """A terminal that shows it must not obey it, nor turn its letters round."""
    lines = text.rstrip("\n").split("\n")
    return "\n".join(output.printable(line.rstrip("\r"), spaces=True) for line in lines)
