"""The floor: the same containers, made by bare scripts that check and remember nothing.

Bridge, keys, slurm.conf, boot script and the node's first process are Springtide's own, so that
only the making differs. Without its cure it is what Slurm does by itself: batch jobs start on
booting nodes at the next tick of a 30-second timer.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.place import describe, remove, undisturbed
from bench.queue import Queue
from springtide.batch import slurm_place, slurm_service, slurm_text
from springtide.batch.slurm_conf import control_host, render, slurm_of, slurmctld_log
from springtide.batch.slurm_control import Control
from springtide.compose import compose
from springtide.layout import Layout
from springtide.model import Node
from springtide.ports import Launch, Site
from springtide.providers.containers import Mount
from springtide.providers.containers.instances import homes, intend, write_intent
from springtide.providers.containers.mounts import Tree, entries, render_fstab
from springtide.providers.containers.site import Ground, read_ground
from springtide.providers.containers.start import (
    INIT,
    PATH,
    Start,
    control_names,
    render_host_links,
    render_node_links,
)
from springtide.spec import Cluster, parse
from springtide.steps import Parts

SCRIPTS = Path(__file__).with_name("bare")
ASKED_AT = 1_111_111_111
"""Stands in boot scripts for when a node was asked for, which its environment tells: a slurmd that
starts in that second might not be heard, so Springtide's own nodes wait until it is over."""
POWER = """\
#!/bin/sh
echo "{what} $1" >{directory}/power
"""
PROLOG = """\
#!/bin/sh
/usr/bin/mkfifo {directory}/gates/$SLURM_JOB_ID
echo "$SLURM_JOB_ID $SLURM_JOB_NODELIST" >{directory}/waiting
read -r go <{directory}/gates/$SLURM_JOB_ID
"""


@contextmanager
def floor(directory: Path, name: str, *, cure: bool) -> Iterator[Queue]:
    """A cluster of bare scripts for the length of the block."""
    out, state = directory / "out", directory / "state"
    for path in (out, state):
        path.mkdir(parents=True)
    spec = parse(json.dumps(describe(name, state, out)), name)
    parts = compose(spec).parts
    with ExitStack() as stack:
        stack.callback(remove, parts)
        site = asyncio.run(_prepare(parts))
        ground = read_ground(Layout(state).instances)
        assert ground is not None
        asyncio.run(_write_nodes(parts, ground, out))
        _write_programs(directory, spec)
        _start_slurm(parts, site, _programs(directory, cure))
        for command in _scripts(directory):
            stack.enter_context(_running(command, parts, ground))
        layout = Layout(state)
        yield Queue(spec.cluster, layout.conf / "slurm.conf", slurmctld_log(layout), out)


async def _prepare(parts: Parts) -> Site:
    site = await parts.home.prepare(parts.spec.cluster)
    await parts.configurator.prepare(site)
    await parts.configurator.install()
    return site


# Nodes


async def _write_nodes(parts: Parts, ground: Ground, out: Path) -> None:
    """Whatever can be known of nodes beforehand, their names too, for each has its address; the
    records let the provider remove them."""
    layout = Layout(parts.spec.state)
    addresses = {node: str(ground.subnet[2 + at]) for at, node in enumerate(parts.spec.managed)}
    await parts.configurator.publish(ground.site, addresses)
    shown = [Mount(path, path, read_only=True) for path in (layout.conf, layout.munge_key.parent)]
    mounts = [*shown, Mount(out, out, read_only=False)]
    tree = Tree(Path("/"), mounts, [layout.state, layout.instances])
    for node, address in addresses.items():
        launch = Launch(parts.spec.cluster, node, 1, "g", "host", "default")
        instance = intend(launch, address, time.time())
        boot = parts.configurator.user_data(Node(node, "g", changed_at=ASKED_AT), ground.site)
        told = boot.replace(str(ASKED_AT), '"$TIDE_ASKED_AT"')
        assert told != boot, "nodes do not wait for a later second"
        _write_node(homes(layout.instances) / node, Start(instance, ground, tree, told))


def _write_node(home: Path, plan: Start) -> None:
    for path in (home / "seed", home / "rw"):
        path.mkdir(parents=True)
    write_intent(home, plan.instance)
    (home / "address").write_text(f"{plan.instance.address}\n")
    (home / "seed" / "boot").write_text(plan.user_data)
    (home / "host.links").write_text(render_host_links(plan))
    (home / "node.links").write_text(render_node_links(plan))
    (home / "fstab").write_text(render_fstab(entries(home, plan.tree)))


# Programs


def _write_programs(directory: Path, spec: Cluster) -> None:
    owner = slurm_service.account(spec.batch.user)
    (directory / "bin").mkdir()
    (directory / "gates").mkdir()
    (directory / "nodes").symlink_to(homes(Layout(spec.state).instances))
    for fifo in (directory / "power", directory / "waiting"):
        os.mkfifo(fifo, 0o600)
    for path in (directory / "power", directory / "waiting", directory / "gates"):
        os.chown(path, owner.pw_uid, owner.pw_gid)
    _write_program(directory, "resume", POWER.format(what="up", directory=directory))
    _write_program(directory, "suspend", POWER.format(what="down", directory=directory))
    _write_program(directory, "prolog", PROLOG.format(directory=directory))


def _write_program(directory: Path, name: str, text: str) -> None:
    path = directory / "bin" / name
    path.write_text(text)
    path.chmod(0o755)


def _scripts(directory: Path) -> list[list[str]]:
    power = ["bash", f"{SCRIPTS}/power.bash", str(directory), str(INIT), control_names()]
    return [power, ["bash", f"{SCRIPTS}/waiter.bash", str(directory)]]


@contextmanager
def _running(command: list[str], parts: Parts, ground: Ground) -> Iterator[None]:
    environment = {
        "PATH": PATH,
        "SLURM_CONF": str(Layout(parts.spec.state).conf / "slurm.conf"),
        "TIDE_CLUSTER": parts.spec.cluster,
        "TIDE_GENERATION": "1",
        "TIDE_CONTROL_ADDRESS": str(ground.control_address),
    }
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            yield
        finally:
            with undisturbed():
                os.killpg(process.pid, signal.SIGKILL)


# Slurm


def _programs(directory: Path, cure: bool) -> dict[str, str | None]:
    """By key of slurm.conf, which is otherwise Springtide's."""
    return {
        "ResumeProgram": str(directory / "bin" / "resume"),
        "SuspendProgram": str(directory / "bin" / "suspend"),
        "PrologSlurmctld": str(directory / "bin" / "prolog") if cure else None,
        "ResumeFailProgram": None,
        "RebootProgram": None,
    }


def _start_slurm(parts: Parts, site: Site, programs: dict[str, str | None]) -> None:
    spec, layout = parts.spec, Layout(parts.spec.state)
    batch, conf = slurm_of(spec), layout.conf / "slurm.conf"
    version = slurm_text.release(asyncio.run(parts.batch.version()))
    text = render(spec, site, state=layout.state, version=version)
    control = Control(layout.state, batch.user, conf)
    control.prepare()
    slurm_place.write(conf, _with_programs(text, programs))
    control.start(control_host(spec), site.control_address, batch.port)


def _with_programs(text: str, programs: dict[str, str | None]) -> str:
    kept = [line for line in text.splitlines() if line.partition("=")[0] not in programs]
    return "\n".join([*kept, *(f"{key}={path}" for key, path in programs.items() if path), ""])
