"""`tide rebuild`: nodes get what the cluster file wants them to run, in batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from springtide.cli import output
from springtide.cli.client import Client, Json
from springtide.cli.cluster_file import mention_edits
from springtide.cli.consent import NO_CHANGE, Consent
from springtide.cli.course import conclude
from springtide.cli.endings import Complaint, Exit
from springtide.cli.foresight import ask, render_plan
from springtide.cli.parameters import (
    BatchOption,
    DeadlineOption,
    DryRun,
    MaybeHosts,
    NoWait,
    PauseOption,
    Yes,
    count,
    given,
    hosts,
    parse_duration,
)
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.cli.rebuild_jobs import by_jobs
from springtide.cli.words import terms
from springtide.model import STARTING, Kind
from springtide.nodeset import fold

ImageOption = Annotated[
    str | None,
    typer.Option("--image", metavar="NAME", help="This one, instead of what the file wants."),
]
PartitionOption = Annotated[
    str | None,
    typer.Option(
        "--partition", metavar="NAME", help="Only nodes of this one, of users or for rebuild jobs."
    ),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Also nodes that are as they should be.")
]
JOBS = "jobs"
UP = frozenset({"ready", "draining", *STARTING})


@dataclass(frozen=True, slots=True)
class Rebuild:
    """How it was asked for."""

    image: str | None
    via: str | None
    command: str | None
    batch: str | None
    pause: str | None
    deadline: str | None
    force: bool

    @property
    def by_jobs(self) -> bool:
        return self.via == JOBS

    def options(self) -> Json:
        """What the daemon is told."""
        return given(
            image=self.image,
            via=self.via,
            command=self.command,
            batch=count(self.batch, "--batch"),
            pause=parse_duration(self.pause),
            limit=parse_duration(self.deadline),
            force=self.force,
        )

    def check(self, named: bool) -> None:
        """Complain of what does not go together."""
        if self.via not in (None, "reboot", "direct", JOBS):
            raise Complaint(f"--via is reboot or jobs, not {self.via[:40]!r}", Exit.WRONG)
        if self.image is not None and not named:
            raise Complaint(
                "--image needs a HOSTLIST; for all nodes set the image of their group in the "
                "cluster file, and run `tide apply` and `tide rebuild`",
                Exit.WRONG,
            )
        if self.command is not None and not self.by_jobs:
            raise Complaint("--command is for --via jobs: the jobs run it", Exit.WRONG)
        if self.by_jobs:
            self._check_jobs()

    def _check_jobs(self) -> None:
        if self.image is not None:
            raise Complaint(
                "with --via jobs nodes get what the cluster file wants; leave out --image",
                Exit.WRONG,
            )
        if (self.batch, self.pause, self.deadline) != (None, None, None):
            raise Complaint(
                "with --via jobs Slurm decides when nodes are rebuilt; leave out --batch, --pause "
                "and --deadline",
                Exit.WRONG,
            )


def rebuild(
    hostlist: MaybeHosts = None,
    image: ImageOption = None,
    partition: PartitionOption = None,
    via: Annotated[
        str | None,
        typer.Option(
            "--via",
            metavar="reboot|jobs",
            help="Slurm drains and reboots them; or a job for each node does, ahead of others.",
        ),
    ] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Drain them ourselves; Slurm reboots nothing.")
    ] = False,
    batch: BatchOption = None,
    pause: PauseOption = None,
    deadline: DeadlineOption = None,
    force: ForceOption = False,
    command: Annotated[
        str | None,
        typer.Option(
            "--command", metavar="TEXT", help="With --via jobs: run this, and rebuild nothing."
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    no_wait: NoWait = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Give nodes the image that the file wants.

    Those in service that have another one, when their jobs have ended. Twice changes nothing.
    """
    if direct and via is not None:
        raise Complaint("give --via or --direct, not both", Exit.WRONG)
    wish = Rebuild(image, "direct" if direct else via, command, batch, pause, deadline, force)
    wish.check(named=hostlist is not None or partition is not None)
    options = wish.options()
    daemon = client(Choice(cluster, state))
    plan = foresee(daemon, wish, chosen_nodes(daemon, hostlist, partition))
    mention_edits(daemon)
    if not plan["count"]:
        output.put(render_nobody(wish, _serving(daemon, hostlist, partition), plan["notes"]))
    elif dry_run:
        output.put(render_wish(wish, plan))
        output.note(NO_CHANGE)
    else:
        raise typer.Exit(_rebuild(daemon, wish, plan, options, Consent(yes), no_wait))


def foresee(daemon: Client, wish: Rebuild, names: list[str] | None) -> Json:
    """A command is tried on all nodes in service, whatever they run."""
    force = wish.force or wish.command is not None
    return ask(daemon, Kind.REBUILD, names, **given(image=wish.image, force=force))


def render_wish(wish: Rebuild, plan: Json) -> str:
    """The plan, or what a command is tried on: that takes no node out of service."""
    if wish.command is None and wish.by_jobs:
        first = "submit a job for each node, ahead of all others; when it starts:"
        return render_plan({**plan, "steps": [first, *plan["steps"]]})
    if wish.command is None:
        return render_plan(plan)
    count = "a job" if plan["count"] == 1 else f"{plan['count']} jobs, one for each node"
    return f"run {wish.command!r} on {plan['nodes']} by {count}; nothing is rebuilt"


def _serving(daemon: Client, hostlist: str | None, partition: str | None) -> bool:
    """Whether any of the nodes is in service."""
    names = chosen_nodes(daemon, hostlist, partition)
    rows = daemon.get("/nodes", world=0)["nodes"]
    return any(r["state"] in UP for r in rows if names is None or r["name"] in names)


def render_nobody(wish: Rebuild, serving: bool, notes: Sequence[str] = ()) -> str:
    if wish.force or wish.command or not serving:
        return f"none of these nodes is in service: {NO_CHANGE}"
    if notes:
        return "\n".join([f"no node has to be rebuilt: {NO_CHANGE}", *notes])
    wants = f"image {wish.image}" if wish.image else "what the file wants"
    return f"all nodes in service run {wants}: {NO_CHANGE}"


def chosen_nodes(daemon: Client, hostlist: str | None, partition: str | None) -> list[str] | None:
    """The named nodes, of a partition if one is named; None is all of them."""
    names = None if hostlist is None else hosts(hostlist)
    if partition is None:
        return names
    where = _partitions(daemon.get("/nodes", world=0)["nodes"], partition)
    members = [name for name, has in where.items() if partition in has]
    if strangers := [name for name in names or () if name not in members]:
        raise Complaint(render_strangers(partition, strangers, where), Exit.WRONG)
    return names or members


def _partitions(rows: Sequence[Json], like: str) -> dict[str, list[str]]:
    """Partitions of nodes that we touch: of users, or for rebuild jobs, as the named one is."""
    ours = [row for row in rows if row["state"] is not None]
    users = {row["name"]: row["partitions"] for row in rows}
    jobs = {row["name"]: [key] for row in ours if (key := row["rebuild_partition"])}
    if any(like in has for has in jobs.values()):
        return {row["name"]: jobs.get(row["name"], []) for row in ours}
    if not any(like in has for has in users.values()):
        known = dict.fromkeys(key for has in (*users.values(), *jobs.values()) for key in has)
        listed = ", ".join(known)
        raise Complaint(f"there is no partition {like[:40]!r}; known are {listed}", Exit.WRONG)
    return {row["name"]: row["partitions"] for row in ours}


def render_strangers(
    partition: str, names: Sequence[str], where: Mapping[str, Sequence[str]]
) -> str:
    """Where nodes are that are not in a partition: the first of them, and those that are there."""
    found = where.get(names[0])
    alike = [name for name in names if where.get(name) == found]
    said = f"{fold(alike)} {'is' if len(alike) == 1 else 'are'} not in partition {partition}"
    if found is None:
        return said
    return f"{said}, but in {' and '.join(found)}" if found else f"{said}, nor in any other"


def _rebuild(
    daemon: Client, wish: Rebuild, plan: Json, options: Json, consent: Consent, no_wait: bool
) -> Exit:
    output.note(render_wish(wish, plan))
    status = daemon.get("/status")
    name, see = status["cluster"], terms(status["batch"]["kind"]).show_closed
    what = f"run {wish.command!r} on" if wish.command else "rebuild"
    consent.require(name, f"{what} {plan['nodes']}")
    body = {"operation": Kind.REBUILD.value, "nodes": plan["nodes"], "options": options}
    if wish.command is not None:
        code = by_jobs(daemon, body, no_wait=True)
        output.note("see `squeue` while they last, and `scontrol show job ID` for how they ended")
        return code
    if wish.by_jobs:
        return by_jobs(daemon, body, no_wait)
    code = conclude(daemon, daemon.post("/operations", body)["operations"], no_wait)
    if code in (Exit.FAILED, Exit.PARTLY) and (down := _down(daemon, plan["nodes"])):
        output.note(
            f"tide: {down} did not come back and takes no jobs (see `{see}`); mend what is wrong, "
            f"then `tide resume {down}`"
        )
    return code


def _down(daemon: Client, names: str) -> str:
    """Nodes that the batch system has down, as a host list."""
    rows = daemon.get("/nodes", names=names)["nodes"]
    return fold(row["name"] for row in rows if (row["batch"] or {}).get("state") == "DOWN")
