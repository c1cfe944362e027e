"""Starting a node: its files are written, then its first process runs by itself.

Called with the lock of the node's directory held. One short-lived program is started for
each node; it forks what becomes the node, which holds nothing of ours and outlives us.
"""

import os
import select
import socket
import subprocess
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import BinaryIO

from springtide.ports import Instance, Transient
from springtide.providers.containers import links
from springtide.providers.containers.files import replace_quickly
from springtide.providers.containers.instances import START_LIMIT_S, await_process, is_alive
from springtide.providers.containers.mounts import Tree, entries, render_fstab
from springtide.providers.containers.site import Ground

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
INIT = Path(__file__).with_name("init.sh")
NAMESPACES = ("--net", "--mount", "--uts", "--pid", "--ipc")
COMMAND = ("setsid", "--fork", "unshare", *NAMESPACES, "--fork", "--kill-child=KILL", "/bin/sh")
LOG_TAIL = 4096
NODE_NETWORK = "/proc/self/fd/6"
"""A path, for what `ip` takes a pid to mean depends on its version."""


@dataclass(frozen=True, slots=True)
class Start:
    """All that a node is started from."""

    instance: Instance
    ground: Ground
    tree: Tree
    user_data: str


def start(home: Path, plan: Start, again: bool) -> None:
    """Write the files, run the first process, and wait until the boot script has its turn.

    `again` is after a process that is dead. Its claim on the node goes last: whoever takes the
    node then, be it a start that survived its daemon, finds the new files.
    """
    _write_files(home, plan)
    if again:
        _sweep(home, plan.instance)
    if not _run(home, render_environment(plan)) and not _is_running(home):
        raise Transient(f"{plan.instance.id} did not start: {_last_words(home)}")


def render_environment(plan: Start) -> dict[str, str]:
    """The whole environment of the boot script."""
    return {
        "PATH": PATH,
        "TIDE_CLUSTER": plan.instance.cluster,
        "TIDE_NODE": plan.instance.node,
        "TIDE_GENERATION": str(plan.instance.generation),
        "TIDE_ADDRESS": plan.instance.address or "",
        "TIDE_CONTROL_ADDRESS": str(plan.ground.control_address),
    }


def render_host_links(plan: Start) -> str:
    """The cable between the bridge and the node, whose network init.sh has as descriptor 6."""
    instance = plan.instance
    port = links.port_name(instance.cluster, instance.node)
    mac = links.hardware_address(IPv4Address(instance.address))
    return (
        f"link add {port} master {plan.ground.bridge} up type veth "
        f"peer name eth0 address {mac} netns {NODE_NETWORK}\n"
    )


def render_node_links(plan: Start) -> str:
    return (
        "link set lo up\n"
        f"address add {plan.instance.address}/{plan.ground.subnet.prefixlen} dev eth0\n"
        "link set eth0 up\n"
        f"route add default via {plan.ground.control_address}\n"
    )


def control_names() -> str:
    """The names under which nodes know this machine, the full one first."""
    name = socket.gethostname()
    return " ".join(dict.fromkeys((name, name.partition(".")[0])))


def _sweep(home: Path, instance: Instance) -> None:
    """Remove what a start left whose process has died."""
    links.unplug(links.port_name(instance.cluster, instance.node))
    for name in ("boot.log", "process"):
        (home / name).unlink(missing_ok=True)


def _write_files(home: Path, plan: Start) -> None:
    """Each at once and whole: a start that survived its daemon may be reading them."""
    for name in ("seed", "rw"):
        (home / name).mkdir(mode=0o700, exist_ok=True)
    replace_quickly(home / "seed" / "boot", plan.user_data)
    replace_quickly(home / "host.links", render_host_links(plan))
    replace_quickly(home / "node.links", render_node_links(plan))
    replace_quickly(home / "fstab", render_fstab(entries(home, plan.tree)))


def _run(home: Path, environment: dict[str, str]) -> bool:
    """True once the node says it is ready, false if it ended before."""
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as answer:
        try:
            launcher = _spawn(home, environment, theirs)
        finally:
            os.close(theirs)
        with launcher:
            return _is_ready(answer)


def _spawn(home: Path, environment: dict[str, str], answer: int) -> subprocess.Popen[bytes]:
    """Start the launcher, which forks the node and ends."""
    with (
        open("/proc/self/ns/net", "rb") as network,  # noqa: PTH123 - no file to read
        (home / "boot.log").open("ab") as log,
    ):
        return subprocess.Popen(
            [*COMMAND, str(INIT), control_names()],
            stdin=network,
            stdout=answer,
            stderr=log,
            cwd=home,
            env=environment,
            umask=0o022,
        )


def _is_ready(answer: BinaryIO) -> bool:
    waiting = select.poll()
    waiting.register(answer, select.POLLIN)
    if not waiting.poll(START_LIMIT_S * 1000):
        raise Transient(f"it took more than {START_LIMIT_S:.0f} s to start")
    return answer.readline() == b"ready\n"


def _is_running(home: Path) -> bool:
    """One that a daemon started before it was killed may have come first."""
    process = await_process(home)
    return process is not None and is_alive(process)


def _last_words(home: Path) -> str:
    """The end of its log, without mere continuations."""
    text = (home / "boot.log").read_bytes()[-LOG_TAIL:].decode(errors="replace")
    lines = [line for line in text.splitlines() if line and not line[0].isspace()]
    return "; ".join(lines[-2:]) or "it ended without a word"
