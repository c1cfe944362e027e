"""Programs, ports, directories and files of the control processes: looked for, checked, made.

Called by `slurm` and by those that it starts its control processes with.
"""

import errno
import os
import shutil
import socket
from contextlib import closing
from pathlib import Path

from springtide.batch.slurm_service import PATH, Service, account, find
from springtide.file_errors import closed_to, naming
from springtide.ports import Unavailable

PACKAGES = {
    "dnsmasq": "dnsmasq-base",
    "ganesha.nfsd": "nfs-ganesha-vfs",
    "mariadb-install-db": "mariadb-server",
    "mariadbd": "mariadb-server",
    "munged": "munge",
    "sacctmgr": "slurm-client",
}
"""Those of programs that are not called as their package is."""


def check_installed(program: str) -> None:
    if shutil.which(program, path=PATH) is None:
        package = PACKAGES.get(program, program)
        raise Unavailable(f"{program} not found; install the package {package}")


# Ports


def check_port(
    address: str, port: int, program: str = "slurmctld", key: str = "batch.port"
) -> None:
    if not is_free(address, port):
        raise Unavailable(
            f"port {port} of {address} is taken by another program, so {program} cannot start; "
            f"stop that program, or set {key} to a free port"
        )


def is_free(address: str, port: int) -> bool:
    """Whether a server could listen there. Nobody is spoken to, so nobody logs an error."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise Unavailable(
                f"cannot listen on {address}, port {port}: {error.strerror}"
            ) from error
    return True


# Files


def write(path: Path, text: str, *, mode: int = 0o644, user: str = "root") -> None:
    """Whole or not at all, also when the power fails; unchanged text is left alone."""
    if path.exists() and path.read_text() == text:
        return
    owner = account(user)
    fresh = path.with_name(f".{path.name}.new")
    with naming(fresh), fresh.open("w") as file:
        os.fchmod(file.fileno(), mode)
        os.fchown(file.fileno(), owner.pw_uid, owner.pw_gid)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def name_anew(service: Service) -> None:
    """If it runs since long ago: the line that names it, given to kill, would end everything."""
    if process := find(service):
        write(service.started, f"{process.start}\n")
        write(service.named, f"{process.pid}\n")


def directory(path: Path, user: str, mode: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    owner = account(user)
    os.chown(path, owner.pw_uid, owner.pw_gid)
    path.chmod(mode)


def check_reachable(state: Path, user: str) -> None:
    """A directory above that keeps the user out must not look like a broken slurmctld."""
    account(user)
    if closed := closed_to(user, state):
        raise Unavailable(
            f"user {user} may not enter {closed}; run `chmod o+x {closed}`, or set `state` to a "
            "directory that it can reach"
        )
