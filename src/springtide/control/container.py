"""The control container: made, found again, given what its file names since, seen off.

Nothing is kept in memory: `control/process` tells its first process, by boot, pid and start.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from springtide.control import cable, inside, places
from springtide.layout import Layout
from springtide.ports import Rejected, Transient
from springtide.providers.containers import links, site
from springtide.providers.containers.errors import require_root, translated
from springtide.providers.containers.files import replace_quickly
from springtide.providers.containers.instances import (
    Process,
    await_process,
    is_alive,
    open_process,
    read_process,
)
from springtide.providers.containers.locks import directory_lock, machine_lock
from springtide.providers.containers.site import Ground
from springtide.spec import Cluster

INIT = Path(__file__).with_name("init.sh")
NAMESPACES = ("--net", "--mount", "--uts", "--pid", "--ipc", "--propagation", "slave")
COMMAND = ("unshare", *NAMESPACES, "--fork", "--kill-child=KILL", "/bin/sh", str(INIT))
ENDING = "ending"
"""What the first process says when it was asked to end."""
START_S = 30.0
END_S = 60.0
"""Longer than `init.sh` waits for services, also where little else gets on."""
LOOK_S = 0.01


def host_name(cluster: str) -> str:
    return f"{cluster}-control"


def find(layout: Layout) -> Process | None:
    """The first process of the cluster's container, if it is alive."""
    process = read_process(layout.control)
    return process if process and is_alive(process) else None


def have(spec: Cluster, output: Path) -> list[str]:
    """See that the container is there and reachable; answers what had to be done for it."""
    require_root()
    layout = Layout(spec.state)
    with translated(f"control container of {spec.cluster}"):
        layout.control.mkdir(parents=True, exist_ok=True)
        with directory_lock(layout.control), machine_lock():
            known = _staying(layout.control)
            ground = cable.claim(spec, connected=known is not None)
            if known:
                return cable.connect(ground, known)
            process = _start(spec, ground, output)
            cable.connect(ground, process)
    return [f"container {host_name(spec.cluster)} was started"]


def _staying(home: Path) -> Process | None:
    """The first process, if it is alive; one that was asked to end is waited for."""
    process = await_process(home)
    handle = open_process(process) if process else None
    if handle is None:
        return None
    try:
        if ENDING not in _read(home / "process").splitlines():
            return process
        if not _ended(handle, END_S):
            raise Transient(f"it was asked to end, and has not in {END_S:.0f} s: try again")
    finally:
        os.close(handle)
    return None


def _start(spec: Cluster, ground: Ground, output: Path) -> Process:
    home = Layout(spec.state).control
    _write_files(spec, ground, home)
    (home / "process").unlink(missing_ok=True)
    with output.open("ab") as log:
        launcher = subprocess.Popen(
            [*COMMAND, host_name(spec.cluster), str(spec.state.resolve()), *_daemon(spec)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            env={**os.environ, inside.VARIABLE: "container"},
            start_new_session=True,
            umask=0o022,
        )
    return _await_ready(home, launcher)


def _daemon(spec: Cluster) -> Sequence[str]:
    """From the copy of its file: what was deployed from may be out of its sight."""
    daemon = (sys.executable, "-P", "-m", "springtide.cli.main", "daemon")
    return (*daemon, "--state", str(spec.state))


def _await_ready(home: Path, launcher: "subprocess.Popen[bytes]") -> Process:
    """One that a deploy started before it was killed may have come first."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        ended = launcher.poll() is not None
        process = read_process(home)
        if process and process.ready and is_alive(process):
            return process
        if ended and not (process and is_alive(process)):
            raise Rejected("the control container did not start")
        time.sleep(LOOK_S)
    raise Transient(f"the control container takes more than {START_S:.0f} s to start")


# What it is made from


def _write_files(spec: Cluster, ground: Ground, home: Path) -> None:
    shown = places.decide_places(
        places.shared_directories(spec), _needed(spec), _mounted(Path("/proc/self/mountinfo"))
    )
    for name, text in (
        ("writable", places.render_lines(shown.writable)),
        ("private", places.render_private(shown.private)),
        ("read-only", places.render_lines(shown.read_only)),
        ("hosts", places.render_hosts(host_name(spec.cluster), str(ground.control_address))),
        ("nsswitch.conf", places.render_switch(_read(Path("/etc/nsswitch.conf")))),
    ):
        replace_quickly(home / name, text)
        (home / name).chmod(0o644)


def _needed(spec: Cluster) -> list[Path]:
    """What the daemon must see beside what it writes: images, programs, and our own code."""
    ours = (Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parent)
    images = [image.path for image in spec.images.values() if image.path]
    scripts = [path for one in spec.images.values() if one.build for path in one.build.scripts]
    prolog = getattr(spec.batch, "prolog", None)
    named = [*ours, *images, *scripts, *([prolog] if prolog else []), spec.state]
    return [*named, *(path.resolve() for path in named)]


def _mounted(table: Path) -> Iterator[Path]:
    return places.parse_mounts(table.read_text())


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


# Its end


@dataclass(frozen=True, slots=True)
class Container:
    """One that is about to end, with a descriptor that stays its first process."""

    process: int
    layout: Layout
    ground: Ground | None

    def see_off(self) -> None:
        """Its cluster is destroyed: wait for its end, and remove what it had on this machine."""
        if not _ended(self.process, END_S):
            signal.pidfd_send_signal(self.process, signal.SIGKILL)
            _ended(self.process, END_S)
        if self.ground is not None:
            with machine_lock():
                links.remove(self.ground.bridge)
                site.restore_thresholds(self.ground.thresholds)
        with suppress(OSError):
            self.layout.state.rmdir()


@contextmanager
def leaving(layout: Layout) -> Iterator[Container | None]:
    """The container of a cluster that is about to be destroyed, if it has one."""
    process = find(layout)
    handle = open_process(process) if process else None
    if handle is None:
        yield None
        return
    try:
        yield Container(handle, layout, site.read_ground(layout.instances))
    finally:
        os.close(handle)


def _ended(process: int, limit_s: float) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(limit_s * 1000))
