"""`tide plan`: the table of operations and steps, or what one operation would do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from springtide.cli import cluster_file, output
from springtide.cli.changing import daemon_for, foresee
from springtide.cli.client import Json
from springtide.cli.endings import Complaint, Exit
from springtide.cli.foresight import ask, render_plan
from springtide.cli.kill import AllOption, PrefixOption, targets
from springtide.cli.output import JsonOption
from springtide.cli.parameters import given
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.cli.rebuild import ForceOption, ImageOption, PartitionOption, chosen_nodes
from springtide.cli.resize import numbers, rewrite
from springtide.cli.stop import NowOption
from springtide.model import CHANGES_SITE, IN_ROUNDS, PLANS, Kind, Step

WELL = "all is as the file says: nothing would change"


@dataclass(frozen=True, slots=True)
class Asked:
    """What was said beside the operation's name."""

    words: Sequence[str]
    options: Json
    """For the daemon."""
    partition: str | None
    all_nodes: bool
    prefix: str | None
    choice: Choice

    def one(self, what: str) -> str | None:
        """The only word."""
        if len(self.words) > 1:
            raise Complaint(f"name one {what}, not {len(self.words)}", Exit.WRONG)
        return self.words[0] if self.words else None


def plan(
    operation: Annotated[
        str | None, typer.Argument(metavar="OPERATION", help="Such as rebuild, apply, resize.")
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WHAT", help="As for that command: HOSTLIST, FILE, or GROUP=N."),
    ] = None,
    image: ImageOption = None,
    partition: PartitionOption = None,
    force: ForceOption = False,
    now: NowOption = False,
    all_nodes: AllOption = False,
    prefix: PrefixOption = None,
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """What operations do, step by step.

    With OPERATION what it would do now: nodes, steps, jobs, price. Changes nothing.
    """
    if operation is None:
        _put_table(json)
        return
    options = given(image=image, force=force, now=now)
    asked = Asked(words or (), options, partition, all_nodes, prefix, Choice(cluster, state))
    if special := SPECIAL.get(operation):
        answer, text = special(asked)
    else:
        answer = _of_kind(parse_kind(operation), asked)
        text = render_plan(answer)
    if json:
        output.put_json(answer)
    else:
        output.put(text)


def parse_kind(text: str) -> Kind:
    try:
        return Kind(text)
    except ValueError:
        known = ", ".join([*(kind.value for kind in Kind), *SPECIAL])
        raise Complaint(
            f"there is no operation {text[:40]!r}; known are {known}", Exit.WRONG
        ) from None


def _of_kind(kind: Kind, asked: Asked) -> Json:
    hostlist = asked.one("host list")
    if hostlist is None and kind not in CHANGES_SITE | IN_ROUNDS:
        raise Complaint(f"{kind} needs a host list: tide plan {kind} HOSTLIST", Exit.WRONG)
    if hostlist is not None and kind in CHANGES_SITE:
        raise Complaint(f"{kind} is about the whole cluster; leave out {hostlist}", Exit.WRONG)
    daemon = client(asked.choice)
    names = chosen_nodes(daemon, hostlist, asked.partition)
    return ask(daemon, kind, names, **asked.options)


# --- commands that are no operations of the table, but lead to some ------------------------


def _of_apply(asked: Asked) -> tuple[Json, str]:
    file = asked.one("file")
    daemon = daemon_for(file, asked.choice)
    status = daemon.get("/status")
    change = foresee(daemon, status, cluster_file.find(daemon, status, file))
    return change.foreseen, change.render() or WELL


def _of_resize(asked: Asked) -> tuple[Json, str]:
    if not asked.words:
        raise Complaint("resize needs sizes: tide plan resize GROUP=N …", Exit.WRONG)
    daemon = client(asked.choice)
    status = daemon.get("/status")
    _, after = rewrite(daemon, status, asked.words)
    change = foresee(daemon, status, after, numbers(asked.words))
    return change.foreseen, change.render() or WELL


def _of_kill(asked: Asked) -> tuple[Json, str]:
    daemon = client(asked.choice)
    names = targets(daemon, asked.one("host list"), asked.all_nodes, asked.prefix)
    answer = ask(daemon, Kind.SUSPEND, names, now=True)
    return answer, render_plan(answer, "kill")


def _of_start(asked: Asked) -> tuple[Json, str]:
    answer = _of_kind(Kind.DEPLOY, asked)
    return answer, render_plan(answer, "start")


SPECIAL: Mapping[str, Callable[[Asked], tuple[Json, str]]] = {
    "apply": _of_apply,
    "resize": _of_resize,
    "kill": _of_kill,
    "start": _of_start,
}


# --- the table -------------------------------------------------------------------------------


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
