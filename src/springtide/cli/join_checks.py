"""What nodes that join need of this machine: programs that make keys, a port, and files.

`checks` and `attached` make these beside their own.
"""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from springtide.batch.slurm_place import is_free
from springtide.cli.subject import Check, Subject, search_path
from springtide.ports import Unavailable
from springtide.spec import Cluster

HERE = "127.0.0.1"
"""Who listens on all addresses of a port is in the way here too; other clusters are not."""
PACKAGES = {"openssl": "openssl", "ssh-keygen": "openssh-client"}
CLOSED = "nodes cannot join"
"""How the daemon's status names it."""
CERTIFICATE = "-----BEGIN CERTIFICATE-----"
"""What a file in PEM has."""


def look_at_join(subject: Subject) -> Iterable[Check]:
    spec = subject.spec
    if not any(spec.gets(group) for group in spec.groups):
        return
    missing = [name for name in PACKAGES if shutil.which(name, path=search_path()) is None]
    if missing:
        packages = " ".join(PACKAGES[name] for name in missing)
        todo = f"run `apt-get install {packages}`"
        yield Check("keys", False, f"{', '.join(missing)} not found", todo)
    else:
        yield Check("keys", True, f"{' and '.join(PACKAGES)} are there")
    yield _port(subject)
    yield from _files(spec)


def _files(spec: Cluster) -> Iterator[Check]:
    """Those that nodes are given: without one of them none could join."""
    given = {feature for group in spec.groups for feature in spec.gets(group)}
    for path in spec.certificates if "certificates" in given else ():
        if wrong := _unusable(path, CERTIFICATE):
            yield Check("certificates", False, wrong, "put it there, or correct `certificates`")
    if spec.users.sssd and "users" in given and (wrong := _unusable(spec.users.sssd)):
        yield Check("sssd", False, wrong, "put it there, or correct users.sssd")


def _unusable(path: Path, needed: str = "") -> str:
    try:
        text = path.read_text()
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}; nodes could not join"
    except UnicodeDecodeError:
        return f"{path} is no text; nodes could not join"
    if not text.strip():
        return f"{path} is empty"
    return "" if needed in text else f"{path} has no certificate in PEM (no `{needed}`)"


def _port(subject: Subject) -> Check:
    port = subject.spec.join.port
    name, todo = f"join port {port}", "stop the program that has it (see `ss -ltnp`), or set "
    if subject.status is not None:
        closed = subject.status["troubles"].get(CLOSED, [])
        text = "; ".join(closed) or "nodes can join"
        return Check(name, not closed, text, f"{todo}join.port" if closed else "")
    try:
        free = is_free(HERE, port)
    except Unavailable as error:
        return Check(name, False, str(error), f"{todo}join.port to a free one")
    text = "free" if free else "taken by another program"
    return Check(name, free, text, "" if free else f"{todo}join.port to a free one")
