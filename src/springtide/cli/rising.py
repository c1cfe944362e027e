"""A cluster brought up: the deploy operation, watched, and what came of it.

For `tide deploy` and `tide start`.
"""

from collections.abc import Sequence
from pathlib import Path

from springtide.cli import output
from springtide.cli.client import Client, Json
from springtide.cli.course import follow, report
from springtide.cli.endings import Complaint, Exit
from springtide.cli.progress import watching
from springtide.cli.whereabouts import option
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
    conf = daemon.layout.conf / "slurm.conf"
    use = f"  export SLURM_CONF={conf}\n" if conf.exists() else ""
    output.put(
        f"cluster {status['cluster']} is up: {'; '.join(news) or 'nothing had to be changed'}\n"
        f"control address {status['control_address']}, {ready} of {total} nodes ready\n{place}"
        f"{use}  sinfo\n"
        "  sbatch -N1 --wrap hostname"
    )


def render_left(status: Json, state: Path) -> str:
    """What a deploy that failed leaves behind, and what to do now."""
    left = ["the daemon"]
    if address := status["control_address"]:
        left.append(f"the network of {address}")
        left += [] if status["batch"]["problem"] else ["slurmctld"]
    verb = "stays" if len(left) == 1 else "stay"
    return (
        f"{', '.join(left)} {verb}: correct what is wrong and run `tide deploy` again, "
        f"or remove all of it with `tide destroy {option(state)}`"
    )
