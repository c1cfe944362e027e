"""Clusters whose control is in a container, for `tide deploy`, `tide destroy` and `tide daemon`.

Imported late: only few commands need it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from springtide.cli.endings import Complaint, Exit
from springtide.cli.whereabouts import option
from springtide.control import cable, container, inside
from springtide.layout import Layout
from springtide.ports import CloudError
from springtide.providers.containers import site
from springtide.spec import Cluster

FELL = b"the daemon ended with status"
"""What the container says before it starts a daemon again."""


def refuse_move(spec: Cluster) -> None:
    """Control cannot go elsewhere while nodes are where it is."""
    layout = Layout(spec.state)
    if site.read_ground(layout.instances) is None:
        return
    there = "container" if layout.control.exists() else "here"
    if there != spec.control:
        raise Complaint(
            f"control of {spec.cluster} is {_places[there]}, and cannot go elsewhere: set "
            f"`control: {there}`, or destroy it first with `tide destroy {option(spec.state)}`",
            Exit.WRONG,
        )


_places = {"here": "on this machine itself", "container": "in a container"}


def refuse_outside(spec: Cluster) -> None:
    """A daemon on this machine itself would make the nodes beside the container."""
    if spec.control == "container" and not inside.is_inside():
        raise Complaint(
            f"the daemon of {spec.cluster} runs in a container, which makes sure that it does: "
            f"start it with `tide deploy {option(spec.state)}`",
            Exit.WRONG,
        )


def have(spec: Cluster) -> list[str]:
    """See that a cluster's container is there, if it has one; answers what was done for that."""
    if spec.control == "here":
        return []
    layout = Layout(spec.state)
    with _complaining(spec):
        return container.have(spec, layout.log / "daemon.out")


def fallen(spec: Cluster, output: Path, said: int) -> Callable[[], bool]:
    """Whether the daemon in the container did not come up."""

    def look() -> bool:
        with output.open("rb") as stream:
            stream.seek(said)
            return FELL in stream.read() or container.find(Layout(spec.state)) is None

    return look


@contextmanager
def leaving(layout: Layout) -> Iterator[None]:
    """Destroy a cluster in the block, and its container goes as well, if it has one."""
    if not layout.control.exists():
        yield
        return
    if os.geteuid() != 0:
        raise Complaint("control of this cluster is in a container, which only root can remove")
    with container.leaving(layout) as there:
        yield
        if there is not None:
            there.see_off()


@contextmanager
def _complaining(spec: Cluster) -> Iterator[None]:
    try:
        yield
    except CloudError as error:
        raise Complaint(f"cannot have control of {spec.cluster} in a container: {error}") from error


def render_place(layout: Layout) -> str:
    """A line about the container, if there is one."""
    if not layout.control.exists() or os.geteuid() != 0:
        return ""
    process, ground = container.find(layout), site.read_ground(layout.instances)
    if process is None or ground is None:
        return ""
    return (
        f"control runs in container {container.host_name(ground.cluster)} (process {process.pid}); "
        f"this machine is {cable.host_address(ground)} to it\n"
    )
