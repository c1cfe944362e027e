"""Puts the hook in place as Slurm's programs, with the rights that Slurm insists on.

A program that its group or others may write switches all power saving off, so each is 0755 and
owned by root, in a directory only root can change.
"""

import os
import shutil
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from springtide import hook
from springtide.file_errors import closed_to, naming, owner

SYSTEM_PYTHON = Path("/usr/bin/python3")
RETIRED = """\
#!/bin/sh
# Springtide has left. slurmctld may call this until it is restarted without it.
case $0 in
*/prolog) {prolog} ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the programs are and what they need to know."""

    directory: Path
    socket: Path
    spool: Path
    user: str
    prolog: str | None
    wait_s: float
    heads: Sequence[str] = ()
    """What names of our nodes begin with, if there are others; jobs on those need not wait."""
    fresh: Sequence[str] = ()
    """Partitions whose jobs must not start on nodes that others have used."""
    rebuilds: Sequence[str] = ()
    """Partitions whose jobs ask us to rebuild their nodes."""

    def install(self) -> None:
        """Write the programs; what is right already stays as it is."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o755)
        write(self.directory / "hook", _source(), 0o755)
        write(self.directory / "hook.conf", self._settings(), 0o644)
        for program in hook.PROGRAMS:
            _link(self.directory / program, "hook")
        self._make_spool()

    def retire(self) -> None:
        """For a batch system that calls the programs though nobody serves them any more."""
        prolog = f"exec {quote(self.prolog)}" if self.prolog else "exit 0"
        if self.directory.is_dir():
            write(self.directory / "hook", RETIRED.format(prolog=prolog), 0o755)

    def _settings(self) -> str:
        settings = {
            "socket": self.socket,
            "spool": self.spool,
            "prolog": self.prolog or "",
            "wait_s": self.wait_s,
            "heads": ",".join(self.heads),
            "fresh": ",".join(self.fresh),
            "rebuilds": ",".join(self.rebuilds),
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def _make_spool(self) -> None:
        """Only the batch system's user may leave requests there."""
        self.spool.mkdir(parents=True, exist_ok=True)
        account = owner(self.user, self.spool)
        os.chown(self.spool, account.pw_uid, account.pw_gid)
        self.spool.chmod(0o700)


def interpreter() -> str:
    """A Python that the batch system's user can run: the system's own rather than ours."""
    if SYSTEM_PYTHON.exists():
        return str(SYSTEM_PYTHON)
    return os.path.realpath(sys.executable)


def _source() -> str:
    return f"#!{interpreter()} -IS\n{Path(hook.__file__).read_text()}"


def write(path: Path, text: str, mode: int) -> None:
    """Whole or not at all; what is so already stays."""
    if not path.exists() or path.read_text() != text:
        fresh = path.with_name(f".{path.name}.new")
        with naming(fresh):
            fresh.write_text(text)
        fresh.chmod(mode)
        fresh.replace(path)
    path.chmod(mode)


def _link(path: Path, target: str) -> None:
    if path.is_symlink() and str(path.readlink()) == target:
        return
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def problems(program: Path, user: str) -> list[str]:
    """Why Slurm would not run a program, in words; empty if it would."""
    if not program.is_absolute():
        return [f"{program} is not an absolute path"]
    try:
        mode = program.stat().st_mode
    except OSError as error:
        return [f"{program} cannot be read: {error.strerror}; run `tide deploy` again"]
    found = []
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        found.append(
            f"{program} may be written by its group or others, so Slurm switches all power "
            f"saving off; run `chmod go-w {program}`"
        )
    if not mode & stat.S_IXOTH:
        found.append(f"{program} cannot be executed by {user}; run `chmod 755 {program}`")
    if shutil.which(interpreter()) is None:
        found.append(f"{program} needs {interpreter()}; install python3")
    return found


def out_of_reach(program: Path, user: str) -> list[str]:
    """Which directory keeps the user from a program, in words; empty if none does."""
    closed = closed_to(user, program)
    if closed is None:
        return []
    return [f"{user} may not enter {closed}; put {program.name} elsewhere, or `chmod o+x {closed}`"]
