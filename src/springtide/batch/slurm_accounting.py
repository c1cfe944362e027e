"""The account of a cluster's jobs: a slurmdbd and a MariaDB of our own. Called by `slurm_control`.

The database has no port and no password: it is a socket, and it knows people by their Unix
accounts. Turned off, both stop, and what they have kept stays for the next time.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from springtide.batch import slurm_service, slurm_text
from springtide.batch.running import ran
from springtide.batch.slurm_conf import control_host, slurm_of, state_save
from springtide.batch.slurm_database import (
    DATABASE,
    DATABASE_USER,
    greets,
    install,
    render_grants,
    render_mariadb,
)
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
from springtide.spec import Cluster

PORT_KEY = "batch.accounting.port"
COMMAND_S = 30.0
PROGRAMS = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacctmgr")


class Accounting:
    """slurmdbd and its database, for one cluster; also for one that wants none any more."""

    def __init__(self, cluster: Cluster, conf: Path) -> None:
        batch = slurm_of(cluster)
        self._cluster = cluster.cluster
        self._host = control_host(cluster)
        self._user = batch.user
        self._port = batch.accounting.port if batch.accounting else None
        self._conf = conf
        self._layout = Layout(cluster.state)
        self._mariadbd = self._describe_mariadbd()
        self._slurmdbd = self._describe_slurmdbd()

    @property
    def wanted(self) -> bool:
        return self._port is not None

    @property
    def running(self) -> bool:
        """Whether this cluster's slurmdbd does."""
        return slurm_service.find(self._slurmdbd) is not None

    # Services

    @property
    def services(self) -> tuple[Service, ...]:
        """In the order of their starts."""
        return self._mariadbd, self._slurmdbd

    def _describe_mariadbd(self) -> Service:
        place, log = self._layout.accounting, self._layout.log / "mariadbd.log"
        command = (
            "mariadbd",
            f"--defaults-file={place / 'mariadb.cnf'}",
            f"--init-file={place / 'grants.sql'}",
        )
        named = self._layout.run / "mariadbd.pid"
        return Service("mariadbd", DATABASE_USER, command, named, log, log)

    def _describe_slurmdbd(self) -> Service:
        """It takes its file from where slurm.conf would be, but not among those nodes see."""
        return Service(
            "slurmdbd",
            self._user,
            ("slurmdbd", "-D"),
            self._layout.run / "slurmdbd.pid",
            self._layout.log / "slurmdbd.log",
            Path(os.devnull),  # it repeats its log
            environment={
                "SLURM_CONF": str(self._layout.accounting / "slurm.conf"),
                "MYSQL_UNIX_PORT": str(self._layout.database_socket),
            },
        )

    # Places

    def prepare(self) -> None:
        """Only if it is wanted, like all that follows but stopping."""
        if not self.wanted:
            return
        for program in PROGRAMS:
            check_installed(program)
        check_reachable(self._layout.state, DATABASE_USER)
        directory(self._layout.accounting, "root", 0o755)
        directory(self._layout.database, DATABASE_USER, 0o711)
        for service in self.services:
            name_anew(service)

    # Starting

    def start(self, hosts: Path, address: str) -> list[str]:
        """Have both running and know the cluster; answers which of them were started."""
        if self._port is None:
            return []
        started = [
            *self._start_mariadbd(hosts),
            *self._start_slurmdbd(hosts, address, self._port),
        ]
        self._register()
        return started

    def _start_mariadbd(self, hosts: Path) -> list[str]:
        place, path = self._layout.accounting, self._layout.database_socket
        texts = {
            place / "mariadb.cnf": render_mariadb(self._layout),
            place / "grants.sql": render_grants(self._user),
        }
        _leave_other(self._mariadbd, texts)
        for file, text in texts.items():
            write(file, text)
        if slurm_service.find(self._mariadbd):
            return []
        install(self._layout.database_files, place / "mariadb.cnf")
        path.unlink(missing_ok=True)
        slurm_service.start(self._mariadbd, self._host, hosts, lambda: greets(path))
        return ["mariadbd"]

    def _start_slurmdbd(self, hosts: Path, address: str, port: int) -> list[str]:
        path = self._layout.accounting / "slurmdbd.conf"
        if not self.running or f"DbdPort={port}\n" not in read(path):
            check_port(address, port, "slurmdbd", PORT_KEY)
        text = render_slurmdbd(self._layout, self._host, address, port, self._user)
        _leave_other(self._slurmdbd, {path: text})
        write(path, text, mode=0o600, user=self._user)
        if self.running:
            return []
        slurm_service.start(self._slurmdbd, self._host, hosts, lambda: not is_free(address, port))
        return ["slurmdbd"]

    # The cluster in the database

    def _register(self) -> None:
        """slurmctld must find its cluster there when it first starts, or it does not.

        One that ran without accounting has numbered its cluster by itself, and would not start
        with the number that the database gives it: so it forgets its own first.
        """
        shown = self._sacctmgr("-n", "-P", "show", "cluster", self._cluster, "format=cluster")
        if self._cluster not in shown.split():
            (state_save(self._layout) / "clustername").unlink(missing_ok=True)
            self._sacctmgr("-i", "add", "cluster", self._cluster)

    def _sacctmgr(self, *arguments: str) -> str:
        environment = {"PATH": slurm_service.PATH, "LC_ALL": "C", "SLURM_CONF": str(self._conf)}
        try:
            done = ran(["sacctmgr", *arguments], environment, COMMAND_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self._silent(str(error)) from error
        if done.returncode:
            raise self._silent(slurm_text.error_text(done.stderr or done.stdout))
        return done.stdout

    def _silent(self, why: str) -> Unavailable:
        pid = process.pid if (process := slurm_service.find(self._slurmdbd)) else None
        todo = f"kill process {pid} and deploy again" if pid else "deploy again"
        return Unavailable(
            f"slurmdbd does not answer as it should; see {self._slurmdbd.log}, or {todo}: {why}"
        )

    # Stopping

    def stop_unwanted(self) -> None:
        """After a slurmctld that wants it no more has taken the place of one that did."""
        if not self.wanted:
            self.stop()

    def stop(self) -> None:
        slurm_service.stop(self._slurmdbd)
        slurm_service.stop(self._mariadbd)


def _leave_other(service: Service, texts: Mapping[Path, str]) -> None:
    """Stop what runs with other texts, before they change: else nobody knew that it must."""
    if any(read(path) != text for path, text in texts.items()):
        slurm_service.stop(service)


def render_slurmdbd(layout: Layout, host: str, address: str, port: int, user: str) -> str:
    """slurmdbd.conf; the database's account has the name of the Unix account, and no password."""
    settings = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={layout.munge_socket}",
        # Listen where the host name leads, which is the control address alone.
        "CommunicationParameters": "NoInAddrAny",
        "DbdHost": host,
        "DbdAddr": address,
        "DbdPort": str(port),
        "SlurmUser": user,
        "LogFile": str(layout.log / "slurmdbd.log"),
        "PidFile": str(state_save(layout) / "slurmdbd.pid"),
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": user,
        "StorageLoc": DATABASE,
    }
    head = "# Written by Springtide from the cluster file: change that, not this."
    return "\n".join([head, *(f"{key}={value}" for key, value in settings.items()), ""])
