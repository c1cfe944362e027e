"""What container nodes share: directories at the paths of the file, and each other's names."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import mpi
from tests.e2e.gate import Gate
from tests.e2e.mpi import HELLO, MPIRUN
from tests.e2e.real import RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PLACE = Path("/srv/tide-software")
"""Where nodes have what is elsewhere on this machine, which has nothing there."""
SPEC = f"""
cluster: shared
batch: {{kind: slurm, port: 17125, node_port: 17126}}
shared:
  - {{path: SHARED}}
  - {{path: {PLACE}, source: SHARED/software, options: [ro]}}
groups: {{general: {{nodes: "sh-[1-4]", min: 2}}}}
timing: {{idle: 2s, start: 120s, stop: 30s, reconcile: 2s}}
"""


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC, deployed=False) as made:
        (made.shared / "software").mkdir()
        (made.shared / "software" / "hello.py").write_text(HELLO)
        done = made.deploy()
        assert done["state"] == "done", done
        yield made


@pytest.fixture(autouse=True)
def quiet(real: RealCluster) -> Iterator[None]:
    yield
    real.all_off("sh-[3-4]")


@mpi.works
@pytest.mark.accepts("E3", "N7")
def test_a_deployed_cluster_runs_mpi_programs_of_its_shared_filesystem(real: RealCluster) -> None:
    idle = real.slurm("sinfo", "-h", "-N", "-p", "main", "-o", "%N %t").splitlines()
    assert idle[:2] == ["sh-1 idle", "sh-2 idle"]
    id = real.sbatch(f"{MPIRUN} {PLACE}/hello.py", "-N2", "--ntasks-per-node=1")
    real.finished(id)
    assert real.output(id) == ["sh-1", "sh-2"]
    assert not PLACE.exists()


@pytest.mark.accepts("E10", "N7")
def test_the_first_act_of_a_job_on_a_new_node_reads_and_writes_shared_files(
    real: RealCluster,
) -> None:
    (real.shared / "word").write_text("springtide\n")
    act = f"cat {real.shared}/word && cp {PLACE}/hello.py {real.shared}/copied"
    id = real.sbatch(act, "-w", "sh-3")
    real.finished(id)
    assert real.output(id) == ["springtide"]
    assert (real.shared / "copied").read_text() == HELLO


def test_what_is_shared_to_be_read_cannot_be_written(real: RealCluster) -> None:
    id = real.sbatch(f"touch {PLACE}/mine || echo refused")
    real.finished(id)
    assert "refused" in real.output(id)
    assert not (real.shared / "software" / "mine").exists()


@pytest.mark.accepts("E9", "C14", "N16")
def test_a_new_node_is_known_by_name_on_every_node_and_no_longer_when_it_is_gone(
    real: RealCluster,
) -> None:
    look = "srun sh -c 'getent hosts sh-1 sh-2 sh-3 | cut -d\" \" -f1 | paste -sd,'"
    gate = Gate(real.shared / "gate")
    id = real.sbatch(f"{look}; {gate.wait}", "-N3", "-w", "sh-[1-3]")
    until(lambda: len(real.output(id)) == 3)
    rows = real.record("sh-[1-3]")
    gate.open()
    real.finished(id)
    expected = ",".join(rows[name]["address"] for name in ("sh-1", "sh-2", "sh-3"))
    assert real.output(id) == [expected] * 3

    real.all_off("sh-3")
    asked = ("srun", "-N2", "-w", "sh-[1-2]", "sh", "-c", "getent hosts sh-3 || echo unknown")
    until(lambda: real.slurm(*asked).split() == ["unknown"] * 2)
