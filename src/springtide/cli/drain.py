"""`tide drain` and `tide undrain`: whether nodes take jobs, and by whose wish not."""

import os
import pwd
from collections.abc import Iterable
from functools import partial
from typing import Annotated

import typer

from springtide.cli import output
from springtide.cli.client import Client, Json
from springtide.cli.consent import NO_CHANGE
from springtide.cli.endings import Complaint, Exit
from springtide.cli.parameters import DryRun, HostsArgument, hosts
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.cli.words import SLURM, jobs_on, kind_of
from springtide.nodeset import fold
from springtide.ports import ITSELF, OURS


def drain(
    hostlist: HostsArgument,
    reason: Annotated[
        str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; the batch system shows it.")
    ],
    dry_run: DryRun = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Have nodes take no new jobs.

    Those that run go on. No operation of ours undoes it; `tide undrain` does.
    """
    names = fold(hosts(hostlist))
    if not reason.strip():
        raise Complaint("say why: --reason TEXT; others will wonder", Exit.WRONG)
    daemon = client(Choice(cluster, state))
    found = _found(daemon, names)
    render = partial(render_drain, found["nodes"], kind=kind_of(found))
    if dry_run:
        output.put("\n".join(render("would be drained")))
        output.note(NO_CHANGE)
        return
    daemon.post("/drain", {"nodes": names, "reason": reason})
    output.put("\n".join(render("drained")))


def undrain(
    hostlist: HostsArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Also what somebody else has drained or put down.")
    ] = False,
    dry_run: DryRun = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Have drained nodes take jobs again.

    Also those that a person has put down.
    """
    names = fold(hosts(hostlist))
    daemon = client(Choice(cluster, state))
    if dry_run:
        rows = _found(daemon, names)["nodes"]
        output.put("\n".join(render_undrain(rows, None if force else _me())))
        output.note(NO_CHANGE)
        return
    answer = daemon.post("/undrain", {"nodes": names, "force": force})
    if asked := answer["asked"]:
        output.put(f"{asked}: takes jobs again")
    if settled := answer["settled"]:
        output.put(f"{settled}: not drained")


def _found(daemon: Client, names: str) -> Json:
    answer = daemon.get("/nodes", names=names)
    for problem in answer["problems"]:
        output.note(f"tide: incomplete: {problem}")
    return answer


def render_drain(rows: Iterable[Json], verb: str, kind: str = SLURM) -> list[str]:
    """From how they were before: those that a person drained already stay theirs."""
    seen = [(row["name"], row["batch"] or {}) for row in rows]
    nobodys = (OURS, ITSELF)
    fresh = [one for one in seen if not one[1].get("drained") or one[1]["owner"] in nobodys]
    busy = [name for name, batch in fresh if batch.get("busy")]
    lines = [f"{fold(name for name, _ in fresh)}: {verb}"] if fresh else []
    if busy:
        see = jobs_on(kind, fold(busy))
        lines.append(f"{fold(busy)}: its jobs go on to their end; see `{see}`")
    drained = [one for one in seen if one not in fresh]
    return lines + [f"{names}: drained already, {whose}" for names, whose in _owned(drained)]


def render_undrain(rows: Iterable[Json], me: str | None) -> list[str]:
    """What would become of them; `me` is who asks, None is somebody who insists."""
    seen = [(row["name"], row["batch"] or {}) for row in rows]
    out = [(name, batch) for name, batch in seen if _is_out(batch)]
    mine = [(n, batch) for n, batch in out if me is None or batch["owner"] in (None, me)]
    theirs = [(n, batch) for n, batch in out if (n, batch) not in mine]
    others = [name for name, batch in seen if not _is_out(batch)]
    lines = [f"{names}: {wish}; would take jobs again" for names, wish in _wishes(mine)]
    lines += [f"{names}: {wish}; --force would undo it" for names, wish in _wishes(theirs)]
    return lines + ([f"{fold(others)}: not drained"] if others else [])


def _is_out(batch: Json) -> bool:
    """Whether it is drained, or a person has put it down."""
    put_down = batch.get("state") == "DOWN" and batch["owner"] not in (None, OURS, ITSELF)
    return batch.get("drained") or put_down


def _wishes(nodes: Iterable[tuple[str, Json]]) -> list[tuple[str, str]]:
    """Nodes by what was done to them, by whom, and why."""
    seen = tuple(nodes)
    drained = _owned(one for one in seen if one[1]["drained"])
    down = _owned(one for one in seen if not one[1]["drained"])
    return [(names, f"drained {whose}") for names, whose in drained] + [
        (names, f"put down {whose}") for names, whose in down
    ]


def _me() -> str:
    """As the daemon knows us."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def _owned(drained: Iterable[tuple[str, Json]]) -> list[tuple[str, str]]:
    """Nodes by who drained them, and why."""
    by_wish: dict[str, list[str]] = {}
    for name, batch in drained:
        why = f": {output.printable(batch['reason'])}" if batch["reason"] else ""
        by_wish.setdefault(f"by {batch['owner'] or 'somebody'}{why}", []).append(name)
    return [(fold(names), whose) for whose, names in by_wish.items()]
