"""A machine for the agent to work on.

The machine is this one with other directories for all that a node writes, seen by the agent alone:
it is in namespaces of its own, where everything else is read-only. Programs that are not ours
(slurmd, munged, mount) stand in for themselves, and record that they were called.
"""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from springtide.node.bundle import PLACE, agent
from tests.unit.agent_control import Control

DEADLINE_S = 200.0
LAST = "slurmd -b -N n-7 --conf-server 10.0.0.1:6817"
"""What a boot ends with."""
FIRST_PERSON = 1000
PLACES = ("etc", "root", "run", "srv", "usr/local", "var/lib", "var/spool")
ENTER = """\
set -eu
machine=$1
shift
for place in {places}; do
    mount --bind "$machine/$place" "/$place"
done
mount -t tmpfs tmpfs /tmp
mount -o remount,bind,ro /
cd /
hostname image
exec "$@"
"""
PROGRAMS = {
    "slurmd": '[ "$1" != -V ] || { echo "slurm-wlm $(cat /etc/slurm-version)"; exit; }\nrecord',
    "munged": 'record "as $(id -un)"\n: >/run/munge/up',
    "munge": "[ -e /run/munge/up ] && echo MUNGE:credential:",
    "unmunge": 'read -r credential && [ "$credential" = MUNGE:credential: ]',
    "mount": '[ -e /srv/.server-is-up ] || { echo "mount.nfs4: no answer" >&2; exit 32; }\n'
    'record\nfor last; do :; done\n/usr/bin/mount -t tmpfs nas:/export "$last"',
    "chronyc": "record",
    "update-ca-certificates": "record",
    "ansible-pull": "record\necho 'ok=3 changed=1'\n[ ! -e /etc/broken-playbook ]",
}
PROGRAM = """\
#!/bin/sh
record() { echo "${0##*/} $* " >>/run/calls; env >>/run/environments; }
"""


def until(is_so: Callable[[], Any], what: str = "") -> None:
    ends = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < ends, f"waited in vain {what}"
        time.sleep(0.02)


def slow_is_fine(process: "subprocess.Popen[bytes]") -> int:
    return process.wait(DEADLINE_S)


@dataclass(slots=True)
class Machine:
    """Its files lie under `root`."""

    root: Path
    running: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str:
        path = self.path(name)
        return path.read_text() if path.exists() else ""

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    @property
    def calls(self) -> list[str]:
        return [line.strip() for line in self.text("run/calls").splitlines()]

    @property
    def console(self) -> str:
        return self.text("console")

    def phases(self) -> list[str]:
        lines = [line.split() for line in self.console.splitlines() if "springtide: phase" in line]
        return [words[2] for words in lines if "failed:" not in words]

    def start(self, command: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        """In namespaces of its own; they end with it."""
        apart = ["unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
        enter = ENTER.format(places=" ".join(PLACES))
        with self.path("console").open("ab") as console:
            process = subprocess.Popen(
                [*apart, "sh", "-c", enter, "sh", str(self.root), *command],
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        self.running.append(process)
        return process

    def agent(
        self, control: Control, *words: str, first: Sequence[str] = (), **more: str
    ) -> "subprocess.Popen[bytes]":
        """`first` is a program that runs it."""
        self.path(PLACE).parent.mkdir(parents=True, exist_ok=True)
        self.path(PLACE).write_bytes(agent())
        command = [*first, "/usr/bin/python3", PLACE, *words]
        return self.start(command, {**control.environment, **more})

    def boot(
        self, control: Control, first: Sequence[str] = (), **more: str
    ) -> "subprocess.Popen[bytes]":
        """A machine that starts has nothing in /run."""
        for name in ("munge/up", "springtide/clock"):
            self.path(f"run/{name}").unlink(missing_ok=True)
        for name in ("calls", "environments"):
            self.write(f"run/{name}", "", 0o666)
        return self.agent(control, "boot", first=first, **more)

    def booted(self, control: Control, **more: str) -> str:
        code = slow_is_fine(self.boot(control, **more))
        assert code == 0, self.console
        return self.console

    def ended(self, control: Control, *words: str) -> tuple[int, str]:
        """What a command of the agent's says, and its exit code."""
        before = len(self.console)
        code = slow_is_fine(self.agent(control, *words))
        return code, self.console[before:]

    def stop(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


@contextmanager
def fresh_machine(root: Path) -> Iterator[Machine]:
    machine = Machine(root)
    for place in (*PLACES, "etc/ssh", "etc/chrony/sources.d", "usr/local/share/ca-certificates"):
        machine.path(place).mkdir(parents=True, exist_ok=True)
    for name in ("passwd", "group"):
        machine.write(f"etc/{name}", system_lines(Path("/etc", name)))
    machine.write("etc/shadow", "root:*:19000:0:99999:7:::\n", 0o640)
    machine.write("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
    machine.write("etc/hosts", "127.0.0.1 localhost head\n")
    machine.write("etc/slurm-version", "22.05.8\n")
    machine.write("etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAA image\n")
    machine.write("etc/ssh/sshd_config", "Include /etc/ssh/sshd_config.d/*.conf\n")
    for name, text in PROGRAMS.items():
        body = text.replace("record", 'record "$@"')
        machine.write(f"usr/local/sbin/{name}", PROGRAM + body + "\n", 0o755)
    machine.write("srv/.server-is-up", "")
    try:
        yield machine
    finally:
        machine.stop()


def system_lines(path: Path) -> str:
    """Without people: other tests may have some on this machine."""
    lines = path.read_text().splitlines(keepends=True)
    return "".join(line for line in lines if int(line.split(":")[2]) < FIRST_PERSON)


def failing(machine: Machine, control: Control) -> str:
    """Of a boot that fails, what was reported; it goes on trying."""
    machine.boot(control)
    until(control.failures, machine.console)
    assert not [call for call in machine.calls if call.startswith("slurmd")]
    return control.failures()[0]
