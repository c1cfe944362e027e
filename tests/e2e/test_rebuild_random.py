"""Jobs come at random before and during a rebuild by reboots: none mixes images, and none that
starts on a node after the rebuild began there finds the old one.

Which came first is told by slurmctld's own log. TIDE_SEED repeats a run's choices, not its timing.
"""

import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from springtide.nodeset import expand
from tests.e2e.images import image
from tests.e2e.real import RealCluster, cluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

SEED = int(os.environ.get("TIDE_SEED", random.randrange(1 << 32)))
JOBS = 36
BEFORE = 10
"""So many, or a few more, are submitted before the rebuild begins."""
LONGEST_S = 1.5
LONGEST_PAUSE_S = 0.4
SPEC = """
cluster: shuffle
batch: {kind: slurm, port: 17187, node_port: 17188, parameters: {MinJobAge: 3600}}
provider: {kind: containers, mounts: [SHARED]}
images:
  one: {path: ROOT/one}
  two: {path: ROOT/two}
image: one
flavors: {small: {cpus: 2, memory: 256M}}
groups:
  general: {nodes: "i-[1-5]", min: 5, flavors: [small]}
timing: {idle: 3600s, start: 120s, stop: 30s}
"""
NODES = "i-[1-5]"
LOOK = "srun sh -c 'echo $SLURM_JOB_ID $(hostname) $(cat /etc/image) $(date +%s.%N)'"
DRAINED = re.compile(r"update_node: node (\S+) state set to DRAIN")
STARTED = re.compile(
    r"sched: Allocate JobId=(\d+) NodeList=(\S+)|_start_job: Started JobId=(\d+) in \S+ on (\S+)"
)


@pytest.fixture
def real() -> Iterator[RealCluster]:
    root = Path(tempfile.mkdtemp(prefix="tide-shuffle-", dir="/var/tmp"))
    root.chmod(0o755)
    try:
        with ExitStack() as stack:
            for name in ("one", "two"):
                stack.enter_context(image(root / name, {"/etc/image": f"{name}\n"}, {}))
            yield stack.enter_context(cluster(SPEC.replace("ROOT", str(root))))
    finally:
        shutil.rmtree(root)


@dataclass(frozen=True, slots=True)
class Sight:
    """What a job saw on one of its nodes."""

    job: str
    node: str
    image: str
    at: float


def submit(real: RealCluster, chance: random.Random) -> tuple[str, int]:
    """A job that looks at all its nodes when it begins and before it ends."""
    count, seconds = chance.randint(1, 3), chance.uniform(0, LONGEST_S)
    alone = chance.choice((["--exclusive"], []))
    script = f"{LOOK} && sleep {seconds:.2f} && {LOOK}"
    return real.sbatch(script, f"-N{count}", "--ntasks-per-node=1", *alone), count


def sights(real: RealCluster, id: str) -> list[Sight]:
    texts = [file.read_text() for file in real.shared.glob(f"{id}.*.out")]
    lines = [line.split() for text in texts for line in text.splitlines()]
    return [Sight(job, node, image, float(at)) for job, node, image, at in lines]


def begin(real: RealCluster) -> int:
    """The file wants the other image, and nodes are to have it."""
    real.file.write_text(real.file.read_text().replace("image: one\n", "image: two\n"))
    done = real.tide("apply", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    asked = {"operation": "rebuild", "options": {"via": "reboot", "batch": 2}}
    (operation,) = real.client.post("/operations", asked)["operations"]
    return int(operation["id"])


def started_late(log: str) -> set[tuple[str, str]]:
    """Jobs and nodes on which they were started after the node's first drain."""
    drained: set[str] = set()
    late = set()
    for line in log.splitlines():
        if found := DRAINED.search(line):
            drained.add(found[1])
        elif found := STARTED.search(line):
            job, nodes = found[1] or found[3], found[2] or found[4]
            late |= {(job, node) for node in expand(nodes) if node in drained}
    assert drained == set(expand(NODES)), f"slurmctld's log tells of drains of {drained} only"
    return late


@pytest.mark.accepts("A5")
def test_random_jobs_never_mix_images_nor_start_on_an_old_one_once_it_is_rebuilt(
    real: RealCluster,
) -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    turn = BEFORE + chance.randint(0, 5)
    jobs: dict[str, int] = {}
    try:
        for number in range(JOBS):
            if number == turn:
                operation = begin(real)
            id, count = submit(real, chance)
            jobs[id] = count
            time.sleep(chance.uniform(0, LONGEST_PAUSE_S))  # the moment is what is tried
        ended = real.ended(operation)
        assert ended["state"] == "done", ended
        check(real, jobs)
    except BaseException:
        print(f"TIDE_SEED={SEED}, and the rebuild began before job {turn + 1} of {JOBS}")
        print(*(one for id in jobs for one in sights(real, id)), sep="\n")
        raise


def check(real: RealCluster, jobs: dict[str, int]) -> None:
    seen: list[Sight] = []
    for id, count in jobs.items():
        assert real.finished(id)["Restarts"] == "0"
        mine = sights(real, id)
        assert len(mine) == 2 * len({one.node for one in mine}) == 2 * count, mine
        assert {one.job for one in mine} == {id}
        assert len({one.image for one in mine}) == 1, f"job {id} mixed images: {mine}"
        seen += mine
    late = started_late((real.state / "log" / "slurmctld.log").read_text())
    old = [one for one in seen if one.image == "one" and (one.job, one.node) in late]
    print(len(jobs), "jobs;", len(late), "starts after the drain;", len(seen), "looks")
    assert not old, f"started on an old image after the rebuild began there: {old}"
    assert {one.image for one in seen} == {"one", "two"}, "the rebuild was in the midst of them"
    assert late, "jobs were started after the rebuild began"
    assert {row["image"] for row in real.record(NODES).values()} == {"two"}
