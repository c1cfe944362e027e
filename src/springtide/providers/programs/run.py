"""Running a program of the site: never longer than it may take, nothing left of it, all it said.

What it prints goes to a file and not through a pipe, so that a program may leave something
running that keeps its output open. Called in a provider's threads.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from springtide.ports import Transient

TAIL = 2000
"""Characters of an output that anybody reads."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KEPT = ("HOME", "LANG", "PATH", "SSH_AUTH_SOCK")
"""What programs see of our own environment."""


@dataclass(frozen=True, slots=True)
class Done:
    """A program that ended."""

    command: tuple[str, ...]
    code: int
    """Of a program ended by a signal, less than 0."""
    output: str
    errors: str
    took_s: float

    @property
    def name(self) -> str:
        return Path(self.command[0]).name

    @property
    def said(self) -> str:
        """The last line it complained with, or else printed."""
        lines = [*self.output.splitlines(), *self.errors.splitlines()]
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    @property
    def end(self) -> str:
        return f"exit code {self.code}" if self.code >= 0 else f"signal {-self.code}"

    def told(self) -> str:
        """For an event: how it ended, and the end of what it said."""
        text = f"{self.errors.strip()}\n{self.output.strip()}".strip()[-TAIL:]
        head = f"{self.name}: {self.end} after {self.took_s:.1f} s"
        return f"{head}: {text}" if text else head


def run(
    command: Sequence[str],
    *,
    timeout_s: float,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    grace_s: float = 0.0,
) -> Done:
    """To its end. One that takes too long is killed with all that it started.

    With a grace it is interrupted first, and has so long to put things in order.
    """
    began = time.monotonic()
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        given.write(stdin.encode())
        given.seek(0)
        process = _start(command, (given, output, errors), environment or {}, directory)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            if grace_s:
                _interrupt(process, grace_s)
            _kill(process)
            raise Transient(
                f"{Path(command[0]).name} took longer than {timeout_s:g} s and was killed"
            ) from None
        except BaseException:
            _kill(process)
            raise
        took_s = time.monotonic() - began
        return Done(tuple(command), code, _read(output), _read(errors), took_s)


def _start(
    command: Sequence[str],
    files: tuple[IO[bytes], IO[bytes], IO[bytes]],
    environment: Mapping[str, str],
    directory: Path | None,
) -> "subprocess.Popen[bytes]":
    given, output, errors = files
    try:
        return subprocess.Popen(
            command,
            stdin=given,
            stdout=output,
            stderr=errors,
            env={"PATH": PATH, **_kept(), **environment},
            cwd=directory,
            start_new_session=True,
        )
    except OSError as error:
        raise Transient(
            f"cannot run {command[0]}: {error.strerror}; mend it, or the cluster file"
        ) from error


def _kept() -> dict[str, str]:
    return {key: os.environ[key] for key in KEPT if key in os.environ}


def _interrupt(process: "subprocess.Popen[bytes]", grace_s: float) -> None:
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        process.send_signal(signal.SIGINT)
        process.wait(grace_s)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """With all of its session, and waited for: no zombie stays."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
