"""What people do with a real cluster: commands and their exit codes, and looks at the outcome."""

import os
import pty
import subprocess
import sys
import time

from springtide.cli.endings import Exit
from tests.e2e.real import RealCluster, until

AGAIN = '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] && sleep 300; hostname'
"""A job that ends only when it runs once more."""


def tide(real: RealCluster, *arguments: str, code: Exit = Exit.DONE) -> str:
    """All that the command says, where nobody can be asked; it must end with this code."""
    done = real.tide(*arguments, stdin=subprocess.DEVNULL)
    said = done.stdout + done.stderr
    assert done.returncode == code, f"{' '.join(arguments)} ended with {done.returncode}: {said}"
    return said


def typed(real: RealCluster, answer: str, *arguments: str) -> int:
    """How the command ends at a terminal, with this answer to its question."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        command = [sys.executable, "-m", "springtide.cli.main", *arguments]
        env = {**os.environ, "TIDE_STATE": str(real.state)}
        done = subprocess.run(
            command, env=env, stdin=theirs, capture_output=True, timeout=240, check=False
        )
        return done.returncode
    finally:
        os.close(ours)
        os.close(theirs)


def started(real: RealCluster, script: str, *options: str) -> str:
    """A job whose script runs already: Slurm calls it running before it has reached its node."""
    mark = real.shared / f".started-{time.time_ns()}"
    id = real.sbatch(f"touch {mark}; {script}", *options)
    until(lambda: mark.exists() and real.job(id).get("JobState") == "RUNNING")
    return id


def instances(real: RealCluster) -> dict[str, str]:
    """The id of every instance that the provider lists, by node."""
    answer = real.client.get("/nodes")
    assert not [text for text in answer["problems"] if "instances of" in text]
    return {row["name"]: one["id"] for row in answer["nodes"] for one in row["instances"]}
