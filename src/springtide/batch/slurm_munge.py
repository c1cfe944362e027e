"""Whether a key is the one that a munged uses: by trying, for nobody may ask it.

Nodes run a munged of their own with that key; one with another key would be refused by Slurm
without a word that helps.
"""

import os
import socket
import subprocess
import tempfile
from pathlib import Path

from springtide.batch import slurm_service
from springtide.batch.slurm_control import MUNGE_USER
from springtide.batch.slurm_service import PATH, Service, account
from springtide.batch.slurm_text import error_text
from springtide.ports import Unavailable

ANSWER_S = 10.0


class MungedAway(Unavailable):
    """The munged whose key it should be does not answer, so nobody can tell."""


def try_key(key: Path, munged: Path) -> None:
    """Raises Unavailable if a credential of the munged at this socket is not of this key."""
    try:
        credential = _run(["munge", "--no-input", f"--socket={munged}"], "munge")
    except Unavailable as error:
        raise MungedAway(f"munged at {munged} does not answer: {error}") from error
    with tempfile.TemporaryDirectory(prefix="tide-munge-") as name:
        place, owner = Path(name), account(MUNGE_USER)
        os.chown(place, owner.pw_uid, owner.pw_gid)
        place.chmod(0o711)
        (place / "credential").write_text(credential)
        _decode(place, key)


def _decode(place: Path, key: Path) -> None:
    service = _describe(place, key)
    listening = place / "socket"
    try:
        name, hosts = socket.gethostname(), Path("/etc/hosts")
        slurm_service.start(service, name, hosts, listening.is_socket)
        command = ["unmunge", f"--socket={listening}", f"--input={place / 'credential'}"]
        _run(command, f"a munged with {key}")
    except Unavailable as error:  # whose log goes with the place
        raise Unavailable(str(error).partition(" (log: ")[0]) from error
    finally:
        slurm_service.stop(service)


def _describe(place: Path, key: Path) -> Service:
    """As a node would run it, with all that it writes in a place of its own."""
    command = (
        "munged",
        "--foreground",
        f"--key-file={key}",
        f"--socket={place / 'socket'}",
        f"--pid-file={place / 'pid'}",
        f"--seed-file={place / 'seed'}",
    )
    return Service("munged", MUNGE_USER, command, place / "named", place / "log", place / "log")


def _run(command: list[str], who: str) -> str:
    try:
        done = subprocess.run(
            command,
            env={"PATH": PATH, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{who} took longer than {ANSWER_S:g} s") from None
    except OSError as error:
        raise Unavailable(f"cannot run {command[0]}: {error.strerror}") from error
    if done.returncode:
        raise Unavailable(f"{who} says: {error_text(done.stderr)}")
    return done.stdout
