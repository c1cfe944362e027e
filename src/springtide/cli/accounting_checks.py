"""What an account of jobs needs of this machine, for clusters that ask for one.

`checks` makes these beside its own.
"""

import pwd
import shutil
from collections.abc import Iterable

from springtide.batch.slurm_accounting import PORT_KEY, PROGRAMS, Accounting
from springtide.batch.slurm_database import DATABASE_USER
from springtide.batch.slurm_place import PACKAGES, is_free
from springtide.cli.subject import Check, Subject, search_path
from springtide.ports import Unavailable
from springtide.spec import Slurm

HERE = "127.0.0.1"
"""Who listens on all addresses of a port is in the way here too; other clusters are not."""


def look_at_accounting(subject: Subject) -> Iterable[Check]:
    batch = subject.spec.batch
    if not isinstance(batch, Slurm) or batch.accounting is None:
        return
    yield _programs()
    yield _account()
    yield _port(subject, batch.accounting.port)


def _programs() -> Check:
    missing = [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]
    if not missing:
        return Check("accounting programs", True, f"{', '.join(PROGRAMS)} are there")
    packages = " ".join(dict.fromkeys(PACKAGES.get(name, name) for name in missing))
    todo = f"run `apt-get install {packages}`, or leave batch.accounting out"
    return Check("accounting programs", False, f"{', '.join(missing)} not found", todo)


def _account() -> Check:
    name = f"user {DATABASE_USER}"
    try:
        pwd.getpwnam(DATABASE_USER)
    except KeyError:
        todo = f"run `useradd --system {DATABASE_USER}`, or install the package mariadb-server"
        return Check(name, False, f"{name} does not exist", todo)
    return Check(name, True, f"{name} exists")


def _port(subject: Subject, port: int) -> Check:
    name = f"port {port}"
    todo = f"stop the program that has it (see `ss -ltnp`), or set {PORT_KEY} to a free port"
    if subject.spec.control == "container":
        return Check(name, True, "in a network of its own")
    if Accounting(subject.spec, subject.daemon.layout.conf / "slurm.conf").running:
        return Check(name, True, "used by this cluster's slurmdbd")
    try:
        free = is_free(HERE, port)
    except Unavailable as error:
        return Check(name, False, str(error), todo)
    text = "free" if free else "taken by another program"
    return Check(name, free, text, "" if free else todo)
