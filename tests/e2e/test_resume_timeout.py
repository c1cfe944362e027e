"""The ResumeTimeout that an existing Slurm really has, beside how long nodes took to start."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from springtide.cli.endings import Exit
from tests.e2e.existing import Existing, existing
from tests.e2e.real import until
from tests.e2e.test_attach import do_as_told

pytestmark = pytest.mark.real

SPEC = """
cluster: slow
batch:
  attach: ROOT/etc/slurm.conf
  munge_key: ROOT/key/munge.key
  prolog: ROOT/etc/prolog
provider: {kind: containers, mounts: [SHARED]}
groups: {general: {nodes: "s-[1-2]"}}
partitions:
  main: {groups: [general], default: true}
  hasty: {groups: [general], parameters: {ResumeTimeout: 100}}
timing: {idle: 1h}
"""
SLOW_S = 200.0
STORY = {-SLOW_S: "node requested", 0.0: "node registered"}


@pytest.mark.accepts("B11")
@pytest.mark.timeout(300)
def test_a_resume_timeout_that_somebody_made_too_short_is_found() -> None:
    with existing(SPEC, 17074) as site:
        do_as_told(site, site.attach().stdout)
        site.restart_slurmctld()
        assert site.attach().returncode == Exit.DONE
        site.finished(site.sbatch("hostname", "-p", "main"))
        until(lambda: ": general: median " in boot_lines(site))
        boot_slowly(site.state / "record.db", "s-1")
        said = boot_lines(site)
        assert f"slowest {SLOW_S:.1f} s of the last 2; timing.start is 600 s" in said
        assert "took up to 200 s to start, and ResumeTimeout of partition hasty is 100 s" in said


def boot_slowly(record: Path, name: str) -> None:
    """A boot that took so long, as the daemon would have noted it."""
    rows = [(time.time() + at_s, what, name) for at_s, what in STORY.items()]
    with closing(sqlite3.connect(record, timeout=60)) as db, db:
        db.executemany("INSERT INTO events (at, what, node, detail) VALUES (?, ?, ?, '')", rows)


def boot_lines(site: Existing) -> str:
    done = site.tide("check", str(site.file))
    assert done.returncode == Exit.DONE, done.stdout
    return "\n".join(line for line in done.stdout.splitlines() if "boot times: " in line)
