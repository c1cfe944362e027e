"""Slurm's commands, run in a clean environment with one slurm.conf; called in threads.

Whatever goes wrong becomes Unavailable.
"""

import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from springtide.batch import slurm_service, slurm_text
from springtide.batch.running import TIMEOUT_S, Output, ran, surroundings
from springtide.ports import Job, Unavailable


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

    def tell(self, updates: Iterable[str]) -> None:
        """Several updates by one scontrol, which does all that it can."""
        done = self._run(["scontrol"], None, updates)
        if done.returncode:
            raise failed(done)

    def run(self, command: Sequence[str], conf: Path | None = None) -> Output:
        """With another configuration than usual nobody is asked: it is only read."""
        return self._run(command, conf)

    def _run(self, command: Sequence[str], conf: Path | None, lines: Iterable[str] = ()) -> Output:
        if command[0] != "slurmctld":
            self._refuse(conf)
        conf = conf or self.conf
        try:
            return ran(command, _environment(conf), self.timeout_s, lines)
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


def past_job(commands: Commands, id: str) -> Job | None:
    """slurmctld keeps jobs for MinJobAge when they are over."""
    if not id.isdecimal():
        return None
    asked = ["--states=all", f"--jobs={id}", "-o", slurm_text.PAST_FORMAT]
    done = commands.run(["squeue", "--all", "--noheader", *asked])
    if done.returncode and slurm_text.NO_JOB in done.stderr:
        return None
    if done.returncode:
        raise failed(done)
    return slurm_text.parse_past_job(done.stdout, id)


def _environment(conf: Path) -> dict[str, str]:
    """Arrays are printed whole."""
    return surroundings(slurm_service.PATH, SLURM_CONF=str(conf), SLURM_BITSTR_LEN="0")


def _shown(command: Sequence[str]) -> str:
    return slurm_text.shorten(" ".join(command))
