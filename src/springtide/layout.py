"""Where a cluster keeps its files: every path under its state directory, in one place."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

STORED_SPEC = "cluster.yaml"
SHOWN = 5
"""So many names of strange files are told."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The state directory of one cluster."""

    state: Path

    @property
    def stored_spec(self) -> Path:
        """The copy of the cluster's file, from which it can be served and destroyed without it."""
        return self.state / STORED_SPEC

    @property
    def record(self) -> Path:
        return self.state / "record.db"

    @property
    def lock(self) -> Path:
        return self.state / "daemon.lock"

    @property
    def socket(self) -> Path:
        return self.state / "tide.sock"

    @property
    def spool(self) -> Path:
        return self.state / "spool"

    @property
    def programs(self) -> Path:
        return self.state / "bin"

    @property
    def conf(self) -> Path:
        return self.state / "conf"

    @property
    def include(self) -> Path:
        """What an existing slurm.conf includes, if the cluster is attached to one."""
        return self.conf / "springtide.conf"

    @property
    def health(self) -> Path:
        """What runs the site's health check, in a place that nodes see."""
        return self.conf / "health"

    @property
    def known_hosts(self) -> Path:
        """What ssh knows nodes by, for everybody on the control host."""
        return self.conf / "ssh_known_hosts"

    @property
    def munge_key(self) -> Path:
        return self.state / "key" / "munge.key"

    @property
    def munge_socket(self) -> Path:
        return self.state / "munge" / "munge.socket"

    @property
    def instances(self) -> Path:
        return self.state / "containers"

    @property
    def command(self) -> Path:
        """Which machines that programs switch are ours."""
        return self.state / "command"

    @property
    def terraform(self) -> Path:
        return self.state / "terraform"

    @property
    def join(self) -> Path:
        """The secrets that nodes are let in by: of tokens, of TLS, of host keys."""
        return self.state / "join"

    @property
    def naming(self) -> Path:
        """What the name server of nodes reads, and its own files."""
        return self.state / "naming"

    @property
    def nfs(self) -> Path:
        """The configuration of an NFS server of the cluster's own, and what it remembers."""
        return self.state / "nfs"

    @property
    def users(self) -> Path:
        """The users of the cluster, in a place that nodes see."""
        return self.conf / "users"

    @property
    def images(self) -> Path:
        """Images that were made here."""
        return self.state / "images"

    @property
    def ansible(self) -> Path:
        return self.state / "ansible"

    @property
    def log(self) -> Path:
        return self.state / "log"

    @property
    def boots(self) -> Path:
        """What nodes said that did not come up."""
        return self.state / "boots"

    @property
    def run(self) -> Path:
        """Process ids, and what the control processes were last started with."""
        return self.state / "run"

    @property
    def control(self) -> Path:
        """What the control container was made from, if the cluster has one."""
        return self.state / "control"

    @property
    def slurmctld(self) -> Path:
        return self.state / "slurmctld"

    @property
    def accounting(self) -> Path:
        """The files of slurmdbd and of its database that nodes must not see."""
        return self.state / "accounting"

    @property
    def database(self) -> Path:
        """The account of all jobs."""
        return self.state / "database"

    @property
    def database_files(self) -> Path:
        return self.database / "data"

    @property
    def database_socket(self) -> Path:
        return self.database / "db.sock"

    @property
    def demo_shared(self) -> Path:
        """What the nodes of a demo see."""
        return self.state / "demo-shared"

    @property
    def entries(self) -> tuple[Path, ...]:
        """All that we make in the state directory; what shows that it is ours comes last."""
        return (
            *(self.socket, self.spool, self.programs, self.conf, self.munge_key.parent),
            *(self.munge_socket.parent, self.instances, self.log, self.run, self.slurmctld),
            *(
                self.command,
                self.terraform,
                self.join,
                self.naming,
                self.nfs,
                self.images,
                self.ansible,
                self.boots,
                self.accounting,
                self.database,
                self.control,
                self.demo_shared,
            ),
            *self.state.glob(_fresh_spec("*")),
            *(self.state / f"record.db-{suffix}" for suffix in ("journal", "shm", "wal")),
            *self._marks,
        )

    @property
    def _marks(self) -> tuple[Path, ...]:
        return (self.record, self.stored_spec, self.lock)

    @property
    def is_ours(self) -> bool:
        """Whether a cluster has its state here."""
        return any(path.exists() for path in self._marks)

    def found(self) -> Iterator[str]:
        """What is in the state directory, in order."""
        with suppress(FileNotFoundError):
            yield from sorted(path.name for path in self.state.iterdir())

    def keep_spec(self, content: bytes) -> None:
        """Write the copy, at once, also if others do so now; raises OSError."""
        fresh = self.state / _fresh_spec(uuid4().hex)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.stored_spec)
        finally:
            fresh.unlink(missing_ok=True)

    def refusal(self) -> str | None:
        """Why a new cluster must not be put here: its end would not tell its files from others'."""
        strange = [name for name in self.found() if not _is_usual(name)]
        if self.is_ours or not strange:
            return None
        more = ", …" if len(strange) > SHOWN else ""
        return (
            f"{self.state} holds files that are not of a cluster "
            f"({', '.join(strange[:SHOWN])}{more}); set `state` to a directory that is new or empty"
        )


def _is_usual(name: str) -> bool:
    """Whether a new cluster may find this: a mount point has its own directory for lost files, and
    another deploy may be writing its copy of the cluster file just now."""
    return name == "lost+found" or name.startswith(_fresh_spec(""))


def _fresh_spec(mark: str) -> str:
    """The name of a copy that is being written."""
    return f".{STORED_SPEC}.{mark}"
