"""Services that outlive the daemon: started in namespaces of their own, found again, stopped.

Called by `slurm_control` in a thread; every wait has a deadline. Nothing is kept in memory: a
file has the id of a service's process and nothing else, for people will `kill $(cat …)`. Ids
come round, so another beside it has the time when the process started.
"""

import os
import pwd
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from springtide.batch.slurm_text import error_text, last_errors
from springtide.ports import Unavailable

START_S = 30.0
STOP_S = 15.0
KILL_S = 5.0
LOOK_S = 0.01
LOG_TAIL = 20_000
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

LAUNCH = """\
cut -d ' ' -f 22 /proc/$$/stat >"$2.new"
mv "$2.new" "$2"
echo $$ >"$1.new"
mv "$1.new" "$1"
hostname "$3"
mount --bind "$4" /etc/hosts
output=$5
shift 5
exec "$@" >>"$output" 2>&1
"""
"""In its namespaces a process first says who it is, so that it cannot get lost."""


@dataclass(frozen=True, slots=True)
class Service:
    """A program in the foreground, and where it leaves what it says."""

    name: str
    user: str
    command: tuple[str, ...]
    named: Path
    """Has the id of its process."""
    log: Path
    output: Path
    """Its standard output and error; the log, unless it writes that by itself."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Beside the search path."""

    @property
    def started(self) -> Path:
        """Has the start of that process."""
        return self.named.with_suffix(".started")


@dataclass(frozen=True, slots=True)
class Process:
    """A process by its id and the clock ticks between boot and its start."""

    pid: int
    start: int

    @property
    def alive(self) -> bool:
        """Its ports are taken until its last thread has ended, though the first is a zombie."""
        stat = read(f"/proc/{self.pid}/stat")
        if parse_stat(stat) != self:
            return False
        fields = stat.rsplit(")", 1)[1].split()
        return fields[0] not in "ZX" or int(fields[17]) > 1


def parse_stat(stat: str) -> Process | None:
    """From /proc/<pid>/stat, whose second field may hold anything."""
    try:
        return Process(int(stat.split(" ", 1)[0]), int(stat.rsplit(")", 1)[1].split()[19]))
    except (IndexError, ValueError):
        return None


def named(service: Service) -> Process | None:
    """The process that a service was started as, dead or alive.

    One that runs since long ago has left all of its /proc/<pid>/stat in the one file.
    """
    text = read(service.named)
    try:
        return Process(int(text), int(read(service.started)))
    except ValueError:
        return parse_stat(text)


def find(service: Service) -> Process | None:
    """The running process of a service, whoever of us started it."""
    process = named(service)
    if process is None or not process.alive:
        return None
    # After a reboot another process may have this id and time. While a process becomes
    # another program its command cannot be read.
    command = read(f"/proc/{process.pid}/cmdline").split("\0")
    return process if command == [""] or set(service.command) <= set(command) else None


# Starting


def start(service: Service, host: str, hosts: Path, ready: Callable[[], bool]) -> None:
    """Start it with this host name and hosts file; returns when it is ready."""
    _forget(service)
    said = _own_log(service)
    _launch(service, host, hosts)
    process = named(service)
    if not _wait(lambda: ready() or not (process and process.alive)):
        raise Unavailable(
            f"{service.name} does not answer {START_S:g} s after its start; see {service.log}"
        )
    if not (process and process.alive):
        raise Unavailable(obituary(service, said))


def _own_log(service: Service) -> int:
    """A log that the program may write, in a directory that it may not; answers its size."""
    owner = account(service.user)
    service.log.touch(mode=0o640)
    os.chown(service.log, owner.pw_uid, owner.pw_gid)
    return service.log.stat().st_size


def _launch(service: Service, host: str, hosts: Path) -> None:
    """Hand the program over to init, so that it is nobody's child and needs no reaping by us."""
    spaces = ["setsid", "--fork", "unshare", "--mount", "--uts", "--propagation", "slave"]
    setup: list[str | Path] = [
        "sh",
        "-ec",
        LAUNCH,
        "sh",
        service.named,
        service.started,
        host,
        hosts,
        service.output,
    ]
    try:
        # LAUNCH lets go of the pipe when it is done, so its errors are read to their end.
        done = subprocess.run(
            [*spaces, *setup, *as_user(service.user), *service.command],
            env={"PATH": PATH, "LC_ALL": "C", **service.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            timeout=START_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"cannot start {service.name}: {error}") from error
    if said := error_text(done.stderr.decode(errors="replace")):
        raise Unavailable(f"cannot start {service.name}: {said}")


def as_user(user: str) -> tuple[str, ...]:
    entry = account(user)
    return ("setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--init-groups", "--")


def account(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        raise Unavailable(
            f"there is no user {user} on this machine; create it, or set batch.user"
        ) from None


def _wait(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(LOOK_S)
    return True


def obituary(service: Service, said: int | None = None) -> str:
    """Why a service died at its start, from what its log says since then, or at its end."""
    text = ""
    with suppress(OSError), service.log.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - LOG_TAIL) if said is None else said)
        text = last_errors(log.read().decode(errors="replace"))
    by_hand = f"run `{' '.join(service.command)}` as {service.user} to see why"
    return f"{service.name} died at its start: {text or by_hand} (log: {service.log})"


# Stopping


def stop(service: Service) -> None:
    """Stop it if it runs: ask first, then make it."""
    if process := find(service):
        _stop(service, process)
    _forget(service)


def _forget(service: Service) -> None:
    service.named.unlink(missing_ok=True)
    service.started.unlink(missing_ok=True)


def _stop(service: Service, process: Process) -> None:
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if process.alive:  # so the handle means it, and cannot come to mean another
            _end(handle, service, process)
    finally:
        os.close(handle)


def _end(handle: int, service: Service, process: Process) -> None:
    signal.pidfd_send_signal(handle, signal.SIGTERM)
    if _ended(handle, STOP_S):
        return
    os.killpg(process.pid, signal.SIGKILL)
    if not _ended(handle, KILL_S):
        raise Unavailable(
            f"{service.name} (process {process.pid}) cannot be killed; look at it by hand"
        )


def _ended(handle: int, limit_s: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(limit_s * 1000))


def read(path: str | Path) -> str:
    """A file's text, empty if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
