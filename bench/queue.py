"""The users of a cluster under test: they submit jobs, see when these ran, and send nodes away.

Only Slurm's own commands and log are used, so that every system is measured alike.
"""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from springtide.providers.containers import links

PATIENCE_S = 120.0
LOOK_S = 0.02
GONE = frozenset({"idle~"})
QUIET = frozenset({"idle", "idle~"})
SETTINGS = {"SlurmctldDebug": "verbose", "DebugFlags": "Power", "LogTimeFormat": "iso8601_ms"}
"""Of slurm.conf, for all systems: the log then tells when the program is called."""

SCRIPT = """\
#!/bin/sh
date +%s.%N >"{out}/${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}.${{SLURM_ARRAY_TASK_ID:-0}}"
while [ -e "{out}/hold" ]; do sleep 0.2; done
"""
_WAKING = re.compile(r"^\[(\S+)\] .*waking nodes ", re.MULTILINE)


class GaveUp(Exception):
    """Something that must happen did not."""


@dataclass(frozen=True, slots=True)
class Started:
    """How long a job took from its submission."""

    running_s: float
    """Until its script ran (of an array, the last)."""
    called_s: float | None
    """Until Slurm called the resume program: Slurm's own clock, the same for all systems."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One cluster, as its users reach it."""

    cluster: str
    conf: Path
    log: Path
    """slurmctld's."""
    out: Path
    """A directory that nodes share, where jobs leave their times."""

    def run(self, *command: str) -> str:
        environment = {"PATH": os.environ["PATH"], "SLURM_CONF": str(self.conf)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
        if done.returncode:
            raise GaveUp(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
        return done.stdout

    def start(self, nodes: int, tasks: int = 0) -> Started:
        """Submit a job of so many nodes, or an array of so many one-node tasks; wait for it."""
        logged = self.log.stat().st_size
        submitted_at = time.time()
        job = self.submit(nodes, tasks)
        names = [f"{job}.{task}" for task in (range(1, tasks + 1) if tasks else [0])]
        running_at = self.began(names)
        called_at = self._called_at(logged)
        return Started(
            max(running_at.values()) - submitted_at,
            called_at - submitted_at if called_at else None,
        )

    def submit(self, nodes: int, tasks: int = 0) -> str:
        script = self.out / "job"
        if not script.exists():
            script.write_text(SCRIPT.format(out=self.out))
        array = [f"--array=1-{tasks}"] if tasks else []
        where = [f"--nodes={nodes}", "--output=/dev/null", "--chdir=/"]
        return self.run("sbatch", "--parsable", *where, *array, str(script)).strip()

    def began(self, names: Iterable[str]) -> dict[str, float]:
        """When each of these jobs ran, once all of them have."""
        at: dict[str, float] = {}
        missing = set(names)

        def all_ran() -> bool:
            for name in tuple(missing):
                if (text := _text(self.out / name)).endswith("\n"):
                    at[name] = float(text)
                    missing.discard(name)
            return not missing

        wait_until(all_ran, lambda: f"{len(missing)} jobs of {self.cluster} did not run")
        return at

    def _called_at(self, logged: int) -> float | None:
        with self.log.open() as log:
            log.seek(logged)
            found = _WAKING.search(log.read())
        return datetime.fromisoformat(found[1]).timestamp() if found else None

    # Back to zero

    def states(self) -> dict[str, str]:
        lines = self.run("sinfo", "--noheader", "--Node", "-o", "%N %t").splitlines()
        return dict(line.split() for line in lines)

    def to_zero(self) -> float:
        """Send all nodes away; answers how long it took until they were gone."""
        self._until(QUIET)
        began = time.time()
        up = [name for name, state in self.states().items() if state not in GONE]
        if up:
            self.run("scontrol", "update", f"nodename={','.join(up)}", "state=power_down")
        self._until(GONE)
        bridge = links.bridge_name(self.cluster)
        wait_until(
            lambda: not links.ports(bridge), lambda: f"{self.cluster}: links of nodes stayed"
        )
        return time.time() - began

    def _until(self, wanted: frozenset[str]) -> None:
        wait_until(
            lambda: set(self.states().values()) <= wanted,
            lambda: f"nodes of {self.cluster} are {self.states()}",
            look_s=0.2,
        )


def wait_until(
    condition: Callable[[], bool],
    complaint: Callable[[], str],
    look_s: float = LOOK_S,
    patience_s: float = PATIENCE_S,
) -> None:
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            raise GaveUp(f"{complaint()} within {patience_s:.0f} s")
        time.sleep(look_s)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
