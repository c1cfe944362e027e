"""OpenPBS's commands, run in a clean environment; called in threads.

Whatever goes wrong becomes Unavailable.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from springtide.batch import running, slurm_service
from springtide.batch.openpbs_text import error_text
from springtide.batch.running import TIMEOUT_S, Output, printed, shown, surroundings
from springtide.ports import Unavailable

PLACES = f"{slurm_service.PATH}:/opt/pbs/bin:/opt/pbs/sbin"
KEPT = ("PBS_CONF_FILE",)
DENIED = "Unauthorized Request"
RIGHTS = "the daemon's user must be a manager of OpenPBS (qmgr -c 'list server managers')"


@dataclass(frozen=True, slots=True)
class Commands:
    """Those of one OpenPBS."""

    bin: Path | None = None
    server: str | None = None
    timeout_s: float = TIMEOUT_S

    def checked(self, *command: str) -> str:
        return printed(self.run(*command), failed)

    def run(self, *command: str) -> Output:
        return running.run(
            command,
            self._environment(),
            bin=self.bin,
            timeout_s=self.timeout_s,
            system="OpenPBS",
            server="pbs_server",
        )

    def _environment(self) -> dict[str, str]:
        settings = {name: os.environ[name] for name in KEPT if name in os.environ}
        if self.server:
            settings["PBS_SERVER"] = self.server
        return surroundings(PLACES, **settings)


def failed(done: Output) -> Unavailable:
    said = error_text(done.stderr) or f"exit code {done.returncode}"
    hint = f"; {RIGHTS}" if DENIED in said else ""
    return Unavailable(f"`{shown(done.args)}` failed: {said}{hint}")
