"""Grid Engine's commands, run in a clean environment; called in threads.

Whatever goes wrong becomes Unavailable. Many say on stderr what they did, and some exit with 0
though they did nothing: who changes something looks afterwards.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from springtide.batch import running, slurm_service
from springtide.batch.running import TIMEOUT_S, Output, printed, shortened, shown, surroundings
from springtide.ports import Unavailable

KEPT = ("SGE_ROOT", "SGE_CELL", "SGE_ARCH", "SGE_QMASTER_PORT", "SGE_EXECD_PORT")
DENIED = ("must be manager", "must be operator", "no permission")
UNRESOLVED = ("can't resolve hostname", "unable to resolve host")
STRANGE = ("access denied", "neither submit nor admin host")
"""What is said by a qmaster that answers, but does not take this machine for one of its own."""
AWAY = ("commlib error", "unable to contact qmaster", "unable to send message")
"""What is said while qmaster does not answer."""
OVER = ("does not exist", "invalid queue or job")
"""What is said of jobs that ended meanwhile."""
DID = ("modified", "Pushed rescheduling", "not restartable")
"""What is said of jobs that were served, or cannot be."""
RIGHTS = "the daemon's user must be a manager of Grid Engine (qconf -am USER)"
NAMES = (
    "qmaster remembers for a minute that a name led nowhere, so this may pass; if it does not, "
    "batch.hosts must be set, or the name server know it"
)
TRUST = (
    "qmaster answers, but not this machine: it must be an admin and submit host (qconf -ah, "
    "qconf -as), and be called the same there and here (/etc/hosts, host_aliases)"
)
HINTS = (RIGHTS, NAMES, TRUST)
"""What is to be done where qmaster answers, and need not be started."""


@dataclass(frozen=True, slots=True)
class Commands:
    """Those of one cell."""

    bin: Path | None = None
    root: Path | None = None
    cell: str | None = None
    timeout_s: float = TIMEOUT_S

    def checked(self, *command: str) -> str:
        return printed(self.run(*command), failed)

    def run(self, *command: str) -> Output:
        return running.run(
            command,
            self._environment(),
            bin=self.bin,
            timeout_s=self.timeout_s,
            system="Grid Engine",
            server="sge_qmaster",
        )

    def _environment(self) -> dict[str, str]:
        """With no broken lines."""
        settings = {name: os.environ[name] for name in KEPT if name in os.environ}
        if self.root:
            settings["SGE_ROOT"] = str(self.root)
        if self.cell:
            settings["SGE_CELL"] = self.cell
        return surroundings(slurm_service.PATH, SGE_SINGLE_LINE="1", **settings)


def failed(done: Output) -> Unavailable:
    said = shortened(done.stderr.strip() or done.stdout.strip()) or f"exit code {done.returncode}"
    return Unavailable(f"`{shown(done.args)}` failed: {said}{_hint(said)}")


def require_done(done: Output) -> None:
    """Whether all jobs were served, or are over."""
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    bad = any(text in line for text in (*DENIED, *AWAY) for line in lines)
    odd = not all(any(text in line for text in (*OVER, *DID)) for line in lines)
    if bad or (done.returncode and (odd or not lines)):
        raise failed(done)


def advised(said: str, otherwise: str) -> tuple[str, str]:
    """What went wrong, and what to do about it; `otherwise`, if that is not in what was said."""
    hint = next((hint for hint in HINTS if f"; {hint}" in said), None)
    return (said.replace(f"; {hint}", ""), hint) if hint else (said, otherwise)


def _hint(said: str) -> str:
    if any(text in said for text in STRANGE):
        return f"; {TRUST}"
    if any(text in said for text in DENIED):
        return f"; {RIGHTS}"
    return f"; {NAMES}" if any(text in said for text in UNRESOLVED) else ""
