"""Machines of `bay.sh` for tests of joining: a network for them, and their end."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from springtide.cli.client import Away
from tests.e2e.real import RealCluster, until

PROGRAM = Path(__file__).with_suffix(".sh")


def provider(bridge: str, control: str) -> str:
    """The block of a cluster file that has them switched."""
    words = f"{PROGRAM}, ACT, SHARED/../bay, {bridge}, SHARED/.."
    acts = {"create": "on", "delete": "off", "list": "list"}
    lines = [f"  {key}: [{words.replace('ACT', act)}]" for key, act in acts.items()]
    head = ["provider:", "  kind: command", f"  control_address: {control}"]
    return "\n".join([*head, *lines])


@contextmanager
def network(bridge: str, control: str) -> Iterator[None]:
    """Where the control host has this address."""
    ip("link", "delete", bridge, check=False)
    ip("link", "add", bridge, "type", "bridge")
    try:
        ip("address", "add", f"{control}/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        yield
    finally:
        ip("link", "delete", bridge, check=False)


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


@contextmanager
def deployed(real: RealCluster, bridge: str, nodes: Sequence[str]) -> Iterator[None]:
    """The cluster, with its machines."""
    with opened(real, bridge, nodes):
        done = real.deploy()
        assert done["state"] == "done", done
        yield


@contextmanager
def opened(real: RealCluster, bridge: str, nodes: Sequence[str]) -> Iterator[None]:
    """For machines, of which nothing is left; of what fails, their last words are shown."""
    (real.root / "bay").mkdir()
    try:
        yield
    except BaseException:
        show(real)
        raise
    finally:
        switch_off(real, bridge, nodes)


def switch_off(real: RealCluster, bridge: str, nodes: Sequence[str]) -> None:
    """For good: the daemon would miss them, and what it had begun may switch one on yet."""
    with suppress(Away, ProcessLookupError):
        os.kill(real.client.daemon_pid(), signal.SIGKILL)
    command = [str(PROGRAM), "off", str(real.root / "bay"), bridge, str(real.root)]
    names = "".join(f"{name} 0\n" for name in nodes)

    def gone() -> bool:
        subprocess.run(command, input=names, text=True, check=True)
        return not list(Path("/sys/class/net", bridge, "brif").glob("*"))

    until(gone)


def show(real: RealCluster) -> None:
    for log in sorted((real.root / "bay").glob("*/log")):
        print(f"=== {log.parent.name}", *log.read_text().splitlines()[-60:], sep="\n")


def inside(real: RealCluster, node: str) -> Path:
    """A machine's files as it sees them."""
    return Path("/proc", (real.root / "bay" / node / "inner").read_text().strip(), "root")


def is_on(real: RealCluster, node: str) -> bool:
    return (real.root / "bay" / node / "pid").exists()
