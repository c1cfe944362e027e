"""A cluster brought up: the deploy operation, watched, and what came of it.

For `tide deploy` and `tide start`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from springtide.cli import output
from springtide.cli.client import Client, Json
from springtide.cli.course import follow, report
from springtide.cli.endings import Complaint, Exit
from springtide.cli.progress import watching
from springtide.cli.whereabouts import CLUSTERS, deploying, option
from springtide.cli.words import OTHERS, try_out
from springtide.layout import STORED_SPEC, Layout
from springtide.model import Kind, OperationState
from springtide.nodeset import fold

MANY = 100_000
"""The most that the daemon answers at once."""


def bring_up(daemon: Client, news: Sequence[str] = ()) -> Exit:
    """Site, batch system and the nodes that are always up; says what came of it."""
    operation = operate(daemon)
    code = report(operation)
    if operation["state"] in (OperationState.DONE, OperationState.PARTLY):
        _tell(daemon, [*news, *changes(daemon, operation)])
    else:
        output.note(f"tide: {render_left(daemon.get('/status'), daemon.layout.state)}")
    return code


def operate(daemon: Client, *, quiet: bool = False) -> Json:
    """The deploy operation, once it has ended."""
    id = daemon.post("/operations", {"operation": Kind.DEPLOY.value})["operations"][0]["id"]
    with watching(lambda: [id], quiet=quiet) as progress:
        operation = follow(daemon, id, progress)
    if operation is None:
        raise Complaint(f"{daemon.layout.state} was removed meanwhile: the cluster is destroyed")
    return operation


def changes(daemon: Client, operation: Json) -> list[str]:
    """What the operation did beyond looking; nothing, if all was as it should be."""
    events = list(daemon.lines("/events", operation=operation["id"], limit=MANY))
    started = {event["node"] for event in events if event["what"] == "node registered"}
    changed = [event["detail"] for event in events if event["what"] == "batch system changed"]
    return changed + ([f"{fold(started)} started"] if started else [])


def _tell(daemon: Client, news: Sequence[str]) -> None:
    """What happened, and how to use the cluster."""
    from springtide.cli import controlled

    status = daemon.get("/status")
    ready, total = status["nodes"]["ready"], sum(status["nodes"].values())
    place = controlled.render_place(daemon.layout)
    own = (daemon.layout.conf / "slurm.conf").exists()
    usual = own and has_default((daemon.layout.conf / "slurm.conf").read_text())
    queue = "" if usual else queue_of(daemon.get("/nodes", world=0)["nodes"])
    show, submit = try_out(status["batch"]["kind"], queue)
    output.put(
        f"cluster {status['cluster']} is up: {'; '.join(news) or 'nothing had to be changed'}\n"
        f"control address {status['control_address']}, {ready} of {total} nodes ready\n{place}"
        f"{render_exports(daemon.layout, own)}  {show}\n"
        f"  {submit}"
    )


def render_exports(layout: Layout, own: bool) -> str:
    """What commands of a Slurm of its own, and ours, must be told to find the cluster."""
    slurm = f"  export SLURM_CONF={layout.conf / 'slurm.conf'}\n" if own else ""
    found = layout.state.parent == CLUSTERS
    return slurm if found else f"  export TIDE_STATE={layout.state}\n{slurm}"


def has_default(conf: str) -> bool:
    """Whether jobs need not name a partition of this slurm.conf."""
    lines = (line for line in conf.splitlines() if line.startswith("PartitionName="))
    return any("Default=YES" in line.split() for line in lines)


def queue_of(nodes: Iterable[Json]) -> str:
    """Where jobs get nodes of ours; empty if that is nowhere."""
    ours = (queue for node in nodes if node["state"] for queue in node["partitions"])
    return next(ours, "")


def render_left(status: Json, state: Path) -> str:
    """What a deploy that failed leaves behind, and what to do now."""
    left = ["the daemon"]
    if address := status["control_address"]:
        left.append(f"the network of {address}")
        ours = status["batch"].get("kind") not in OTHERS and not status["batch"]["problem"]
        left += ["slurmctld"] if ours else []
    verb = "stays" if len(left) == 1 else "stay"
    file = Path(status.get("file") or state / STORED_SPEC)
    again = deploying(state, file)
    return (
        f"{', '.join(left)} {verb}: correct what is wrong and run `{again}` again, "
        f"or remove all of it with `tide destroy {option(state)}`"
    )
