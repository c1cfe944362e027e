"""Torque's commands, run in a clean environment; called in threads.

Whatever goes wrong becomes Unavailable. `pbsnodes` without rights exits with 0 and complains on
stderr alone, so commands that change something fail by what they say, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from springtide.batch.running import MOST, TIMEOUT_S, Output, run, shown, surroundings
from springtide.batch.slurm_service import PATH
from springtide.ports import Unavailable

_NOISE = ("Warning:",)
DENIED = "Unauthorized Request"
RIGHTS = "make the user of the daemon a manager: qmgr -c 'set server managers += USER@HOST'"


@dataclass(frozen=True, slots=True)
class Commands:
    """Those of one Torque."""

    bin: Path | None = None
    """Where they are, if they are not on the PATH."""
    server: str | None = None
    timeout_s: float = TIMEOUT_S
    ran: Callable[[Sequence[str]], object] = lambda _: None
    """Is told of each."""

    def run(self, *command: str) -> Output:
        """Those of `bin` and no others, if it is given: other systems have the same names."""
        self.ran(command)
        return run(
            command,
            self._environment(),
            bin=self.bin,
            timeout_s=self.timeout_s,
            system="Torque",
            server="pbs_server",
        )

    def read(self, *command: str) -> str:
        done = self.run(*command)
        if done.returncode:
            raise failed(done)
        return done.stdout

    def change(self, *command: str) -> Output:
        done = self.run(*command)
        if done.returncode or complaints(done):
            raise failed(done)
        return done

    def _environment(self) -> dict[str, str]:
        server = {"PBS_DEFAULT": self.server} if self.server else {}
        return surroundings(PATH, **server)


def complaints(done: Output) -> list[str]:
    lines = [line.strip() for line in done.stderr.splitlines()]
    return [line for line in lines if line and not line.startswith(_NOISE)]


def failed(done: Output) -> Unavailable:
    """The last line says what the matter was, the first which of many nodes had it."""
    said = complaints(done) or [f"exit code {done.returncode}"]
    words = said[0] if done.returncode == 0 else said[-1]
    return Unavailable(f"`{shown(done.args)}` failed: {words[:MOST]}{_advice(said)}")


def _advice(said: Sequence[str]) -> str:
    text = " ".join(said)
    if DENIED in text:
        return f"; {RIGHTS}"
    if "annot connect to server" in text:
        return "; is pbs_server running, and trqauthd on this machine?"
    return ""
