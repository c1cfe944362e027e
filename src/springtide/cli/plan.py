"""`tide plan`: the table of operations and steps, or what one operation would do."""

from typing import Annotated

import typer

from springtide.cli import output
from springtide.cli.client import Client, Json
from springtide.cli.endings import Complaint, Exit
from springtide.cli.output import JsonOption
from springtide.cli.parameters import MaybeHosts, hosts
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.model import CHANGES_SITE, PLANS, Kind, Step
from springtide.nodeset import fold

NO_CHANGE = "nothing was changed"


def plan(
    operation: Annotated[
        str | None, typer.Argument(metavar="OPERATION", help="Such as resume.")
    ] = None,
    hostlist: MaybeHosts = None,
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """What operations do, step by step.

    With OPERATION what it would do now. Changes nothing.
    """
    if operation is None:
        _put_table(json)
        return
    kind = parse_kind(operation)
    names = None if kind in CHANGES_SITE else _needed(kind, hostlist)
    put_plan(ask(client(Choice(cluster, state)), kind, names), json)


def parse_kind(text: str) -> Kind:
    try:
        return Kind(text)
    except ValueError:
        known = ", ".join(kind.value for kind in Kind)
        raise Complaint(
            f"there is no operation {text[:40]!r}; known are {known}", Exit.WRONG
        ) from None


def _needed(kind: Kind, hostlist: str | None) -> list[str]:
    if hostlist is None:
        raise Complaint(f"{kind} needs a host list: tide plan {kind} HOSTLIST", Exit.WRONG)
    return hosts(hostlist)


def ask(daemon: Client, kind: Kind, names: list[str] | None = None) -> Json:
    """What the daemon would do."""
    nodes = None if names is None else fold(names)
    return daemon.get("/plan", operation=kind.value, nodes=nodes)


def put_plan(answer: Json, json: bool = False) -> None:
    if json:
        output.put_json(answer)
    else:
        output.put(render_plan(answer))


def render_plan(answer: Json) -> str:
    pairs = [("plan", answer["operation"])]
    pairs.append(("nodes", f"{answer['count']}: {answer['nodes']}" if answer["count"] else "none"))
    pairs += [(f"now {state}", nodes) for state, nodes in answer["states"].items()]
    pairs += [(f"step {number}", step) for number, step in enumerate(answer["steps"], 1)]
    if answer["price_per_hour"] is not None:
        pairs.append(("per hour", f"{answer['price_per_hour']:g}"))
    return output.render_pairs(pairs)


def _put_table(json: bool) -> None:
    """The table of the code itself; no daemon is asked."""
    if json:
        operations = {kind.value: [step.value for step in steps] for kind, steps in PLANS.items()}
        output.put_json({"steps": [step.value for step in Step], "operations": operations})
    else:
        output.put_table(("step", *(kind.value for kind in PLANS)), render_steps())


def render_steps() -> list[list[str]]:
    """A row for each step, in the canonical order; x marks the operations that take it."""
    return [[step.value, *("x" if step in PLANS[kind] else "" for kind in PLANS)] for step in Step]
