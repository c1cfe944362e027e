"""Rebuild jobs of a real Slurm run in the partition that was chosen; one image for all groups but
for those that name their own."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.images import image
from tests.e2e.real import RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

SPEC = """
cluster: nightly
batch: {kind: slurm, port: 17191, node_port: 17192, parameters: {MinJobAge: 3600}}
provider: {kind: containers, mounts: [SHARED]}
images:
  one: {path: ROOT/one}
  two: {path: ROOT/two}
image: one  # of all
groups:
  general: {nodes: "i-[1-2]", min: 2}
  extra: {nodes: "x-1", min: 1}
  pinned: {nodes: "p-1", min: 1, image: one}  # but for these
partitions:
  main: {groups: [general, pinned], default: true}
  extra: {groups: [extra]}
rebuild: {partitions: {night: [main], again: [extra]}}
timing: {idle: 3600s, start: 120s, stop: 30s}
"""
NODES = "i-[1-2],x-1,p-1"


@pytest.fixture
def real() -> Iterator[RealCluster]:
    root = Path(tempfile.mkdtemp(prefix="tide-nightly-", dir="/var/tmp"))
    root.chmod(0o755)
    try:
        with ExitStack() as stack:
            for name in ("one", "two"):
                stack.enter_context(image(root / name, {"/etc/image": f"{name}\n"}, {}))
            yield stack.enter_context(cluster(SPEC.replace("ROOT", str(root))))
    finally:
        shutil.rmtree(root)


def tide(real: RealCluster, *arguments: str, code: int = 0) -> str:
    done = real.tide(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def outdated(real: RealCluster) -> dict[str, str | None]:
    rows = real.client.get("/nodes", names=NODES)["nodes"]
    return {row["name"]: row["outdated"] for row in rows if row["outdated"]}


def runs(real: RealCluster) -> dict[str, str]:
    """The image that each node's own file tells."""
    script = "srun sh -c 'echo $(hostname):$(cat /etc/image)'"
    jobs = [real.sbatch(script, "-w", "i-[1-2],p-1", "-N3"), real.sbatch(script, "-p", "extra")]
    for id in jobs:
        real.finished(id)
    return dict(line.split(":") for id in jobs for line in real.output(id))


@pytest.mark.accepts("A31")
def test_jobs_of_a_chosen_partition_bring_the_image_of_all_groups_but_for_exceptions(
    real: RealCluster,
) -> None:
    assert runs(real) == {"i-1": "one", "i-2": "one", "x-1": "one", "p-1": "one"}
    real.file.write_text(real.file.read_text().replace("image: one  # of", "image: two  # of"))
    told = tide(real, "apply", "--yes")
    assert "image: one → two" in told
    assert "groups.general.image: one → two" in told
    assert "groups.pinned" not in told
    instead = "image one instead of two"
    assert outdated(real) == {"i-1": instead, "i-2": instead, "x-1": instead}
    by_jobs = ("rebuild", "--via", "jobs", "--partition", "night", "--yes")
    refused = tide(real, *by_jobs, "x-1", code=2)
    assert "x-1 is not in partition night, but in again" in refused
    assert "i-[1-2]: rebuilt" in tide(real, *by_jobs)
    until(lambda: outdated(real) == {"x-1": instead})
    shown = real.slurm("scontrol", "-o", "show", "jobs").splitlines()
    jobs = [dict(word.partition("=")[::2] for word in line.split()) for line in shown]
    rebuilds = {job["JobName"]: job["Partition"] for job in jobs if "rebuild-" in job["JobName"]}
    assert rebuilds == {"rebuild-i-1": "night", "rebuild-i-2": "night"}
    until(lambda: {real.node(name)["State"] for name in ("i-1", "i-2")} == {"IDLE+CLOUD"})
    assert runs(real) == {"i-1": "two", "i-2": "two", "x-1": "one", "p-1": "one"}
    tide(real, "resize", "pinned=0", "--yes")
    text = real.file.read_text()
    assert "image: two  # of all" in text
    assert "min: 0, image: one}  # but for these" in text
