"""The story of docs/rebuild.md, on a real Slurm: rebuild jobs go ahead of those that wait."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from springtide.batch.slurm_versions import one_job_at_a_time
from tests.e2e.by_hand import started, tide
from tests.e2e.gate import Gate
from tests.e2e.images import image
from tests.e2e.real import RealCluster, cluster, until
from tests.slurm_release import installed

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

SPEC = """
cluster: story
batch: {kind: slurm, port: 16967, node_port: 16968}
provider: {kind: containers, mounts: [SHARED, ROOT/gates]}
images:
  one: {path: ROOT/one}
  two: {path: ROOT/two}
groups:
  standard: {nodes: "standard-[0-1]", min: 2, image: one}
  extra: {nodes: "extra-[0-1]", min: 2, image: one}
partitions:
  standard: {groups: [standard], default: true}
  extra: {groups: [extra]}
timing: {idle: 3600s, start: 240s, stop: 30s}
"""
SHOWN = "%.5i %.9P %.24j %.2t %.8Q %.5D %R"
STANDARD = ("standard-0", "standard-1")
EXTRA = ("extra-0", "extra-1")


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """Two images; nodes of the second come no further than to a gate while that is closed."""
    path = Path(tempfile.mkdtemp(prefix="tide-story-", dir="/var/tmp"))
    path.chmod(0o755)
    (path / "gates").mkdir()
    waits = f'#!/bin/sh\n{boots(path).wait}\nexec /opt/slurmd "$@"\n'
    two = {"/etc/image": "two\n", "/usr/sbin/slurmd": waits}
    try:
        with ExitStack() as stack:
            stack.enter_context(image(path / "one", {"/etc/image": "one\n"}, {}))
            stack.enter_context(image(path / "two", two, {"/opt/slurmd": "/usr/sbin/slurmd"}))
            yield path
    finally:
        shutil.rmtree(path)


def boots(root: Path) -> Gate:
    return Gate(root / "gates" / "boots")


@pytest.fixture(scope="module")
def real(root: Path) -> Iterator[RealCluster]:
    with cluster(SPEC.replace("ROOT", str(root))) as deployed:
        yield deployed


class Queue:
    """Looks at the queue, rebuild jobs included; printed for whoever reads the test's output."""

    def __init__(self, real: RealCluster) -> None:
        self._real = real

    def order(self, title: str) -> list[str]:
        """The ids of jobs that wait, by their priority."""
        print(f"--- {title}", self._real.slurm("squeue", "--all", "-o", SHOWN), sep="\n")
        waiting = self._real.slurm("squeue", "--all", "-h", "-t", "PD", "-S", "-p", "-o", "%i")
        return waiting.split()

    def priority(self, id: str) -> int:
        return int(self._real.job(id)["Priority"])


def images(real: RealCluster, id: str) -> dict[str, str]:
    """What each node of a job ran, by the job's own output."""
    return dict(line.split(":") for line in real.output(id))


def has_begun(real: RealCluster, id: str) -> bool:
    return real.job(id)["JobState"] not in ("", "PENDING")


def times(real: RealCluster, id: str) -> tuple[str, str]:
    job = real.job(id)
    return job["StartTime"], job["EndTime"]


WRITE = "srun sh -c 'echo $(hostname):$(cat /etc/image)'"


@pytest.mark.accepts("A4")
def test_users_neither_see_nor_may_use_the_partition_of_rebuild_jobs(real: RealCluster) -> None:
    shown = real.slurm("scontrol", "-o", "--all", "show", "partition", "rebuild")
    settings = dict(word.partition("=")[::2] for word in shown.split())
    wanted = {
        "PriorityJobFactor": "65533",
        "Hidden": "YES",
        "RootOnly": "YES",
        "DisableRootJobs": "NO",
        "PreemptMode": "OFF",
        **one_job_at_a_time(installed()),
        "Default": "NO",
        "MaxTime": "01:00:00",
    }
    assert {key: settings[key] for key in wanted} == wanted
    assert "rebuild" not in real.slurm("sinfo", "-h", "-o", "%P", user="nobody").split()
    command = ["sbatch", "-p", "rebuild", "--wrap", "hostname"]
    refused = real.try_slurm(*command, user="nobody")
    assert refused.returncode != 0
    assert "denied" in refused.stderr


@pytest.mark.accepts("A3")
def test_rebuild_jobs_jump_ahead_of_waiting_jobs_and_running_ones_end_undisturbed(
    real: RealCluster, root: Path
) -> None:
    queue, boot = Queue(real), boots(root)
    first, last = Gate(real.shared / "first"), Gate(real.shared / "last")
    a = started(real, f"{WRITE}; {first.wait}", "-J", "A", "-N2", "--exclusive")
    b = real.sbatch(WRITE, "-J", "B", "-N2", "--exclusive")
    assert queue.order("A runs, B waits for its nodes") == [b]

    real.file.write_text(real.file.read_text().replace("image: one", "image: two"))
    tide(real, "apply", "--yes")
    said = tide(real, "rebuild", "--via", "jobs", "--no-wait", "--yes")
    jobs = dict(line.split(": job ") for line in said.splitlines() if ": job " in line)
    assert jobs.keys() == {*STANDARD, *EXTRA}
    c = real.sbatch(f"{WRITE}; {last.wait}", "-J", "C", "-N2", "-p", "standard,extra")

    ahead = [jobs[name] for name in STANDARD]
    until(lambda: all(has_begun(real, jobs[name]) for name in EXTRA))
    waiting = queue.order("extra is rebuilt; the rebuild jobs of standard are ahead of B and C")
    assert (set(waiting[:2]), set(waiting[2:])) == (set(ahead), {b, c})
    assert min(map(queue.priority, ahead)) > max(queue.priority(b), queue.priority(c))

    boot.open()
    until(lambda: real.job(c)["JobState"] == "RUNNING")
    assert set(queue.order("extra is rebuilt, so C runs there, and A still runs")) == {b, *ahead}
    assert real.job(a)["JobState"] == "RUNNING"
    last.open()
    assert real.finished(c)["NodeList"] == "extra-[0-1]"

    boot.close()
    first.open()
    until(lambda: all(has_begun(real, id) for id in ahead))
    assert queue.order("A has ended: its nodes are rebuilt before B gets them") == [b]
    boot.open()
    assert real.finished(a)["Restarts"] == "0"
    assert real.finished(b)["NodeList"] == "standard-[0-1]"
    for id in (a, c, b, *jobs.values()):
        print(real.job(id)["JobName"], *times(real, id), real.job(id)["NodeList"])

    assert images(real, a) == dict.fromkeys(STANDARD, "one")
    assert images(real, b) == dict.fromkeys(STANDARD, "two")
    assert images(real, c) == dict.fromkeys(EXTRA, "two")
    for name in EXTRA:
        assert times(real, jobs[name])[1] <= times(real, c)[0]
    assert times(real, c)[0] <= times(real, a)[1]
    for name in STANDARD:
        rebuild = times(real, jobs[name])
        assert times(real, a)[1] <= rebuild[0]
        assert rebuild[1] <= times(real, b)[0]
    until(lambda: rebuilt(real) == {("two", None, 1)})


def rebuilt(real: RealCluster) -> set[tuple[str, str | None, int]]:
    """What is on record of the nodes; a job may be over before the operation that let it start."""
    rows = real.client.get("/nodes")["nodes"]
    return {(row["image"], row["outdated"], row["rebuilds"]) for row in rows}
