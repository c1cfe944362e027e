"""Munge, the health check, and slurmd: what makes a machine a node of Slurm, in this order."""

import base64
import os
import shutil
from typing import List, Tuple

from springtide.node import given, second
from springtide.node.console import Failed, Waiting, holds_within, say
from springtide.node.given import Json
from springtide.node.system import (
    account_of,
    has_systemd,
    last_line,
    pids_of,
    remove,
    replace_file,
    run,
    stop,
)

MUNGE_KEY = "/etc/munge/munge.key"
RUN = "/run/munge"
SOCKET = RUN + "/munge.socket.2"
"""Where munge's library looks if nobody tells it otherwise: so does slurmd, until it has its
configuration."""
MUNGED = (
    *("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups"),
    *("munged", "--key-file=" + MUNGE_KEY, "--socket=" + SOCKET),
    *(f"--pid-file={RUN}/munged.pid", f"--log-file={RUN}/munged.log"),
    f"--seed-file={RUN}/munged.seed",
)
MUNGE_S = 30.0
HEALTH_S = 600.0
UNIT = "springtide-slurmd"
MASKED = "/etc/systemd/system/slurmd.service"
"""A link to nothing, once the unit of the image is masked."""
PROPERTIES = (
    *("Type=forking", "KillMode=process", "Delegate=yes"),
    *("LimitNOFILE=131072", "LimitMEMLOCK=infinity", "LimitSTACK=infinity", "TasksMax=infinity"),
)
"""As Slurm's own unit has them; a slurmd that ends leaves its jobs running. It is not started
again: `-b` says that the machine has booted, and slurmctld would requeue jobs that run."""


def hold_back() -> None:
    """No slurmd that the image starts by itself: it would take jobs before the node is complete."""
    if has_systemd() and os.path.realpath(MASKED) != os.devnull:
        _mask()
    if pids_of("slurmd"):
        say("a slurmd runs already: it is stopped until the node is complete")
        stop("slurmd")


def _mask() -> None:
    """To disable takes long on small machines; but what is a file of its own cannot be masked."""
    if run(["systemctl", "mask", "--now", "slurmd"])[0]:
        run(["systemctl", "disable", "--now", "slurmd"])


# --- munge ---------------------------------------------------------------------------------------


def apply_munge(welcome: Json) -> None:
    part = welcome["munge"]
    socket = given.path(part["socket"])
    account = account_of("munge")
    for place, mode in ((RUN, 0o755), (os.path.dirname(MUNGE_KEY), 0o700)):
        os.makedirs(place, exist_ok=True)
        os.chown(place, account.pw_uid, account.pw_gid)
        os.chmod(place, mode)
    changed = replace_file(MUNGE_KEY, _decoded(part["key"]), 0o400, "munge")
    if changed or not answers():
        _renew_munged()
    _link(socket)
    if not holds_within(MUNGE_S, answers):
        raise Failed(f"munge takes no credential of its own: see {RUN}/munged.log")


def _decoded(key: object) -> bytes:
    """A key of munge; its digits are in no message."""
    try:
        found = base64.b64decode(given.text(key), validate=True)
    except ValueError:
        found = b""
    if not 32 <= len(found) <= 1 << 20:
        raise Failed("the daemon sent no munge key")
    return found


def _renew_munged() -> None:
    """One that could not be stopped answers on, with another key: so it is tried again."""
    try:
        _restart_munged()
    except Failed:
        remove(MUNGE_KEY)
        raise


def _restart_munged() -> None:
    if has_systemd():
        code, said = run(["systemctl", "restart", "munge"])
    else:
        stop("munged")
        code, said = run(MUNGED)
    if code:
        raise Failed(f"munged did not start: {last_line(said)}")


def _link(socket: str) -> None:
    """The cluster's configuration names one path for the control host and all nodes."""
    if socket == SOCKET or (os.path.islink(socket) and os.readlink(socket) == SOCKET):
        return
    os.makedirs(os.path.dirname(socket), exist_ok=True)
    fresh = socket + ".springtide-new"
    if os.path.lexists(fresh):
        os.unlink(fresh)
    os.symlink(SOCKET, fresh)
    os.replace(fresh, socket)


def answers() -> bool:
    code, credential = run(["munge", "-n"], 5)
    return code == 0 and run(["unmunge"], 5, credential)[0] == 0


# --- the health check ----------------------------------------------------------------------------


def apply_health(welcome: Json) -> None:
    part = welcome["health"]
    program = given.path(part["path"])
    replace_file(program, given.text(part["text"]), 0o755)
    code, said = run([program, "boot"], HEALTH_S)
    if said.strip():
        say(said)
    if code:
        raise Failed(last_line(said) if said.strip() else f"the health check ended with {code}")


# --- slurmd --------------------------------------------------------------------------------------


def apply_slurmd(welcome: Json) -> None:
    part = welcome["slurmd"]
    server = given.word(part["server"], given.SERVER)
    node = given.word(welcome["node"], given.NAME)
    for path in part["directories"]:
        os.makedirs(given.path(path), exist_ok=True)
    program = shutil.which("slurmd") or "slurmd"
    # A slurmctld that is only watched takes who tells of its boot late, by -b, for rebooted.
    boot = ["-b"] if part["tells_boot"] else []
    if boot:
        run(["sh", "-c", second.render_wait()])
    code, said = _started([program, *boot, "-N", node, "--conf-server", server])
    if code:
        why = last_line(said)
        raise Waiting(f"slurmd did not start: is {server} reached from here? {why}")


def _started(command: List[str]) -> Tuple[int, str]:
    if not has_systemd():
        return run(command)
    for action in ("stop", "reset-failed"):
        run(["systemctl", action, UNIT])
    properties = ["--property=" + each for each in PROPERTIES]
    return run(["systemd-run", "--unit=" + UNIT, *properties, *command], 180)
