"""Which Slurm is installed here, for tests that not every version can pass."""

import shutil
import subprocess

import pytest

from springtide.batch.slurm_text import parse_version, release
from springtide.batch.slurm_versions import OLDEST, Change, Release, shown


def installed() -> Release:
    """What `slurmctld -V` says; without one no test of it runs."""
    program = shutil.which("slurmctld", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if program is None:
        return OLDEST
    said = subprocess.run([program, "-V"], capture_output=True, text=True, check=True).stdout
    return release(parse_version(said))


def before(change: Change) -> pytest.MarkDecorator:
    """Skips a test of what Slurm did before this change."""
    found = installed()
    why = f"Slurm {shown(found)}: {change.value.what}"
    return pytest.mark.skipif(change.applies(found), reason=why)


def since(change: Change) -> pytest.MarkDecorator:
    """Skips a test of what Slurm does only since this change."""
    found = installed()
    why = f"Slurm {shown(found)} is older than {shown(change.value.release)}: {change.value.what}"
    return pytest.mark.skipif(not change.applies(found), reason=why)
