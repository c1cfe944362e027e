"""munged and slurmctld of our own on this machine, and the files they need. Called by `slurm`.

Each has a host name and a hosts file to itself. slurmctld listens where its host name leads,
which so becomes the control address, and two clusters can have the same port; and neither
waits for a name server, which would take munged 20 seconds.
"""

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from springtide.batch import slurm_service
from springtide.batch.running import ran
from springtide.batch.slurm_accounting import Accounting
from springtide.batch.slurm_conf import slurmctld_log, state_save
from springtide.batch.slurm_place import (
    check_installed,
    check_port,
    check_reachable,
    directory,
    is_free,
    name_anew,
    write,
)
from springtide.batch.slurm_service import Service, read
from springtide.layout import Layout
from springtide.ports import Unavailable

MUNGE_USER = "munge"
NOBODY = "127.0.0.1"
PING_S = 10.0
ACCOUNTED = "AccountingStorageType=accounting_storage/slurmdbd"
FIRST_SAVES = ("assoc_usage", "qos_usage")
"""What slurmctld saves of accounting, the first time minutes after its first start."""


class Control:
    """The control processes of one cluster."""

    def __init__(
        self,
        state: Path,
        user: str,
        conf: Path,
        nodes: Sequence[str] = (),
        accounting: Accounting | None = None,
    ) -> None:
        self._layout = Layout(state)
        self._user = user
        self._conf = conf
        self._nodes = nodes
        self._accounting = accounting
        self._run = self._layout.run
        self._munged = self._describe_munged()
        self._slurmctld = self._describe_slurmctld()

    def _describe_munged(self) -> Service:
        place, log = self._layout.munge_socket.parent, self._layout.log / "munged.log"
        command = (
            "munged",
            "--foreground",
            f"--key-file={self._layout.munge_key}",
            f"--socket={self._layout.munge_socket}",
            f"--pid-file={place / 'munged.pid'}",
            f"--seed-file={place / 'munged.seed'}",
        )
        return Service("munged", MUNGE_USER, command, self._run / "munged.pid", log, log)

    def _describe_slurmctld(self) -> Service:
        """In the foreground it repeats its log on its output, which nobody needs twice."""
        command = ("slurmctld", "-D", "-f", str(self._conf))
        named, log = self._run / "slurmctld.pid", slurmctld_log(self._layout)
        return Service("slurmctld", self._user, command, named, log, Path(os.devnull))

    # Places

    def prepare(self) -> None:
        """The directories, each with the least rights that work."""
        for service in (self._munged, self._slurmctld):
            check_installed(service.command[0])
            name_anew(service)
        directory(self._layout.state, "root", 0o755)
        check_reachable(self._layout.state, self._user)
        for path in (self._run, self._layout.log, self._conf.parent):
            directory(path, "root", 0o755)
        directory(state_save(self._layout), self._user, 0o700)
        directory(self._layout.munge_socket.parent, MUNGE_USER, 0o711)
        if self._accounting:
            self._accounting.prepare()

    @property
    def loaded(self) -> str:
        """The configuration that slurmctld was last made to run with."""
        return read(self._run / "slurm.conf")

    @loaded.setter
    def loaded(self, text: str) -> None:
        write(self._run / "slurm.conf", text)

    # Services

    @property
    def running(self) -> bool:
        return slurm_service.find(self._slurmctld) is not None

    def missing(self) -> list[str]:
        """What was started, and not stopped by us, and does not run."""
        return [one.name for one in self._wanted() if slurm_service.find(one) is None]

    def _wanted(self) -> list[Service]:
        """Nothing before the first start, nor after a stop: then no configuration is loaded."""
        if not (loaded := self.loaded):
            return []
        wanted = self._accounting and self._accounting.wanted and ACCOUNTED in loaded
        account = self._accounting.services if self._accounting and wanted else ()
        return [self._munged, *account, self._slurmctld]

    def silent(self) -> list[str]:
        """What does not run, though without it no command of Slurm's is answered."""
        needed = (self._munged, self._slurmctld)
        return [one.name for one in needed if slurm_service.find(one) is None]

    def why_dead(self) -> str:
        """Why slurmctld ended, by the end of its log; empty if it runs."""
        return "" if self.running else slurm_service.obituary(self._slurmctld)

    @property
    def log(self) -> Path:
        return self._slurmctld.log

    def start(self, host: str, address: str, port: int) -> list[str]:
        """Have all running, and answers what was started; what runs already is left alone."""
        started = self.start_others(host, address)
        if not self.running:
            check_port(address, port)
            self._forgive_early_death()
            hosts = self._run / "hosts"

            def answers() -> bool:
                """It binds its port long before that, and may die in between."""
                return not is_free(address, port) and self._pings()

            slurm_service.start(self._slurmctld, host, hosts, answers)
            started.append("slurmctld")
        if self._accounting:
            self._accounting.stop_unwanted()
        return started

    def _forgive_early_death(self) -> None:
        """Lets a slurmctld start that died before it first saved the usage of accounts.

        26.05 refuses to start without these files unless the start is its cluster's first, which
        it tells by this one. `slurmctld -i` would let it start, too, but also without its jobs.
        """
        place = state_save(self._layout)
        saved = [(place / name, place / f"{name}.old") for name in FIRST_SAVES]
        accounted = self._accounting and self._accounting.wanted
        if accounted and not all(new.exists() or old.exists() for new, old in saved):
            (place / "clustername").unlink(missing_ok=True)

    def _pings(self) -> bool:
        environment = {"PATH": slurm_service.PATH, "LC_ALL": "C", "SLURM_CONF": str(self._conf)}
        try:
            said = ran(["scontrol", "ping"], environment, PING_S).stdout
        except (OSError, subprocess.TimeoutExpired):
            return False
        return "is UP" in said

    def start_others(self, host: str, address: str) -> list[str]:
        """What slurmctld needs: if it cannot be had, the slurmctld that runs is not stopped."""
        hosts = self._run / "hosts"
        known = render_hosts(read("/etc/hosts"), host, address)
        write(hosts, known + render_absent(self._nodes))
        started = []
        if not slurm_service.find(self._munged):
            self._start_munged(host, hosts)
            started.append("munged")
        if self._accounting:
            started += self._accounting.start(hosts, address)
        return started

    def _start_munged(self, host: str, hosts: Path) -> None:
        key, path = self._layout.munge_key, self._layout.munge_socket
        if not key.exists():
            raise Unavailable(f"{key} is missing; run `tide deploy` to make it")
        path.unlink(missing_ok=True)
        slurm_service.start(self._munged, host, hosts, path.is_socket)

    def stop_slurmctld(self) -> None:
        slurm_service.stop(self._slurmctld)

    def stop(self) -> None:
        """Stop what we started; gone already is fine. From here on nothing is missed."""
        (self._run / "slurm.conf").unlink(missing_ok=True)
        slurm_service.stop(self._slurmctld)
        if self._accounting:
            self._accounting.stop()
        slurm_service.stop(self._munged)


# Hosts


def render_hosts(hosts: str, name: str, address: str) -> str:
    """A hosts file in which this name has this address, and everything else stays."""
    kept = [line for line in (_without(line, name) for line in hosts.splitlines()) if line]
    return "\n".join([f"{address} {name}", *kept]) + "\n"


def render_absent(nodes: Iterable[str]) -> str:
    """Nodes that have no address yet, at one where nobody answers.

    slurmctld looks a name up ten times, a second apart and with its locks held, before it
    gives up; and it speaks to nodes that are given back before they had an address.
    """
    return "".join(f"{NOBODY} {name}\n" for name in nodes)


def _without(line: str, name: str) -> str:
    entry, mark, comment = line.partition("#")
    address, *names = entry.split() or [""]
    if name not in names:
        return line
    others = [other for other in names if other != name]
    return " ".join([address, *others, *([mark + comment] if mark else [])]) if others else ""
