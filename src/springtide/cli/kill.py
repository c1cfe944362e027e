"""`tide kill`: instances away at once, whatever runs on them."""

from collections.abc import Iterable
from typing import Annotated

import typer

from springtide.cli import output
from springtide.cli.client import Client, Json
from springtide.cli.consent import NO_CHANGE, Consent
from springtide.cli.course import conclude
from springtide.cli.endings import Complaint, Exit
from springtide.cli.foresight import ask, render_mind, render_plan
from springtide.cli.parameters import DryRun, MaybeHosts, NoWait, YesReally, hosts
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.cli.power import mention_min
from springtide.cli.words import kind_of, terms
from springtide.model import Kind, NodeState
from springtide.nodeset import fold

AllOption = Annotated[
    bool, typer.Option("--all", help="Every node, also those that are powered down.")
]
PrefixOption = Annotated[
    str | None,
    typer.Option("--prefix", metavar="TEXT", help="Nodes whose names begin so."),
]


def kill(
    hostlist: MaybeHosts = None,
    all_nodes: AllOption = False,
    prefix: PrefixOption = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", "--force", help="Do not ask.")] = False,
    yes_really: YesReally = None,
    no_wait: NoWait = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Remove instances at once.

    Their jobs go back to the queue, and what they have done is lost.
    """
    daemon = client(Choice(cluster, state))
    names = targets(daemon, hostlist, all_nodes, prefix)
    plan = ask(daemon, Kind.SUSPEND, names, now=1)
    if dry_run:
        output.put(render_plan(plan, "kill"))
        output.note(NO_CHANGE)
        return
    output.note(render_plan(plan, "kill"))
    status, nodes = daemon.get("/status"), fold(names)
    Consent(yes, yes_really).require(
        status["cluster"],
        f"kill {nodes} of cluster {status['cluster']}",
        protected=status["protected"],
        mind=render_mind(plan),
    )
    mention_min(daemon, names)
    found = daemon.get("/nodes", names=nodes)
    body = {"operation": "kill", "nodes": nodes, "confirm": status["cluster"]}
    code = conclude(daemon, daemon.post("/operations", body)["operations"], no_wait)
    if not code and not no_wait:
        output.put(f"{nodes}: off")
    for line in render_strangers(found["nodes"], terms(kind_of(found)).daemon):
        output.note(f"tide: {line}")
    raise typer.Exit(code)


def render_strangers(rows: Iterable[Json], program: str = "slurmd") -> list[str]:
    """From how nodes were before: whose program answered though we had made no instance."""
    strange = [row for row in rows if _is_strange(row)]
    return [
        f"{row['name']}: a {program} at {row['batch']['address']} had answered in its name, and is "
        "no instance of ours; stop it there, or it comes back when it is restarted"
        for row in strange
    ]


def _is_strange(row: Json) -> bool:
    batch = row["batch"] or {}
    return row["state"] == NodeState.OFF and not row["instances"] and bool(batch.get("registered"))


def targets(daemon: Client, hostlist: str | None, all_nodes: bool, prefix: str | None) -> list[str]:
    """The nodes that are meant: said in one way, and never all by an empty word."""
    if (hostlist is not None) + all_nodes + (prefix is not None) != 1:
        raise Complaint("kill needs a HOSTLIST, or --all, or --prefix TEXT", Exit.WRONG)
    if hostlist is not None:
        return hosts(hostlist)
    if prefix is not None and not prefix.strip():
        raise Complaint("an empty prefix would mean every node; say --all for that", Exit.WRONG)
    rows = daemon.get("/nodes", world=0)["nodes"]
    managed = [row["name"] for row in rows if row["state"] is not None]
    names = [name for name in managed if name.startswith(prefix or "")]
    if not names:
        which = f"whose name begins with {prefix!r}" if prefix else "that could be killed"
        raise Complaint(f"there is no node {which}", Exit.WRONG)
    return names
