"""An MPI program for jobs of tests: it prints where its processes are."""

import re
import shutil
import subprocess

import pytest

HELLO = """\
from mpi4py import MPI; \
names = MPI.COMM_WORLD.gather(MPI.Get_processor_name()); \
names and print(*names)\
"""
"""One speaks for all: mpirun may mix what several print."""
MPIRUN = "mpirun --allow-run-as-root /usr/bin/python3"
RUN = f"{MPIRUN} -c '{HELLO}'"


def _candidate() -> str:
    """The release candidate of Open MPI that is installed here, if it is one."""
    if not (program := shutil.which("mpirun")):
        return ""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\S+rc\d+", said.stdout)
    return found[0] if found else ""


works = pytest.mark.skipif(
    bool(_candidate()),
    reason=f"Open MPI {_candidate()}, a release candidate of this Debian: mpirun hangs under Slurm",
)
"""For tests that run it."""
