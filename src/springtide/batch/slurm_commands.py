"""Slurm's commands, run in a clean environment with one slurm.conf; called in threads.

Whatever goes wrong becomes Unavailable.
"""

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from springtide.batch import slurm_service, slurm_text
from springtide.ports import Unavailable

Output = subprocess.CompletedProcess[str]

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Commands:
    """Those of one Slurm."""

    conf: Path
    absent: str
    """What to do if there is no such file."""
    timeout_s: float = TIMEOUT_S
    silent: Callable[[], str] = lambda: ""
    """Why nobody would answer, if that is known: a command tries for many seconds."""

    def checked(self, command: Sequence[str], conf: Path | None = None) -> Output:
        done = self.run(command, conf)
        if done.returncode:
            raise failed(done)
        return done

    def run(self, command: Sequence[str], conf: Path | None = None) -> Output:
        """With another configuration than usual nobody is asked: it is only read."""
        if command[0] != "slurmctld":
            self._refuse(conf)
        conf = conf or self.conf
        try:
            return subprocess.run(
                command,
                env=_environment(conf),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=self.timeout_s,
                check=False,
            )
        except FileNotFoundError:
            package = "slurmctld" if command[0] == "slurmctld" else "slurm-client"
            raise Unavailable(f"{command[0]} not found; install the package {package}") from None
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"`{_shown(command)}` took longer than {self.timeout_s:g} s; "
                "is slurmctld overloaded?"
            ) from None
        except OSError as error:
            raise Unavailable(f"cannot run `{_shown(command)}`: {error.strerror}") from error

    def _refuse(self, conf: Path | None) -> None:
        if not (conf or self.conf).exists():
            raise Unavailable(f"{conf or self.conf} does not exist; {self.absent}")
        if conf is None and (why := self.silent()):
            raise Unavailable(why)


def failed(done: Output) -> Unavailable:
    said = slurm_text.error_text(done.stderr or done.stdout)
    return Unavailable(f"`{_shown(done.args)}` failed: {said or f'exit code {done.returncode}'}")


def _environment(conf: Path) -> dict[str, str]:
    """Nothing of the daemon's but where programs are; times are printed in UTC."""
    path = f"{os.environ.get('PATH', '')}:{slurm_service.PATH}".lstrip(":")
    return {"PATH": path, "SLURM_CONF": str(conf), "LC_ALL": "C", "TZ": "UTC"}


def _shown(command: Sequence[str]) -> str:
    return slurm_text.shorten(" ".join(command))
