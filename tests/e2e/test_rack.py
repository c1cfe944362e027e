"""One workflow, whoever makes the nodes: only the provider block differs. With a real Slurm.

The machines of `rack.sh` stand for any that a command can switch on and off (level 2); what they
run at boot is what instances of clouds run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.by_hand import tide
from tests.e2e.gate import Gate
from tests.e2e.real import RealCluster, cluster, until
from tests.e2e.test_service import newest

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

RACK = Path(__file__).with_name("rack.sh")
TEXT = """
cluster: rk
batch:
  kind: slurm
  port: 17110
  node_port: 17111
  PARAMETERS
provider: PROVIDER
groups:
  small: {nodes: "rk-[1-3]", weight: 1, features: [small], without: [join]}
  large: {nodes: "rk-[4-6]", weight: 10, features: [large], without: [join]}
timing: {idle: 2s, start: 120s, stop: 30s, reconcile: 2s, grace: 2s}
"""
"""The machines of the rack have this one's files, which nothing that joins may change."""
CONTAINERS = "{kind: containers, mounts: [SHARED]}"
WORDS = f"{RACK}, ACT, SHARED/rack, SHARED/../s/key/munge.key, SHARED/../s"
COMMAND = f"""
  kind: command
  control_address: 127.0.0.1
  create: [{WORDS.replace("ACT", "on")}]
  delete: [{WORDS.replace("ACT", "off")}]
  list: [{WORDS.replace("ACT", "list")}]
"""
LOOPBACK = "parameters: {CommunicationParameters: NoInAddrAny}"
"""All machines of the rack share a network, and so must not listen at every address of it."""


@pytest.fixture(scope="module", params=["containers", "command"])
def real(request: pytest.FixtureRequest) -> Iterator[RealCluster]:
    text = TEXT.replace("PROVIDER", CONTAINERS if request.param == "containers" else COMMAND)
    text = text.replace("PARAMETERS", LOOPBACK if request.param == "command" else "")
    with cluster(text) as made:
        (made.shared / "rack").mkdir()
        yield made


@pytest.mark.accepts("E29", "B3")
def test_nodes_come_for_a_job_and_go_after_it(real: RealCluster) -> None:
    assert real.states("rk-[1-6]") == {"off"}
    both = Gate(real.shared / "both")
    id = real.sbatch(f"{both.wait}; hostname", "--array=1-2", "--exclusive")
    running = ("squeue", "-h", "-r", "-t", "RUNNING", "--job", id)
    until(lambda: len(real.try_slurm(*running).stdout.splitlines()) == 2)
    both.open()
    real.finished(id)
    assert sorted(real.output(id)) == ["rk-1", "rk-2"]
    real.all_off("rk-[1-6]")


@pytest.mark.accepts("B9")
def test_jobs_get_the_size_they_ask_for_and_the_cheapest_if_they_ask_for_none(
    real: RealCluster,
) -> None:
    plain = real.sbatch("hostname")
    asking = real.sbatch("hostname", "-C", "large")
    real.finished(plain)
    real.finished(asking)
    assert real.output(plain)[0] in ("rk-1", "rk-2", "rk-3")
    assert real.output(asking) == ["rk-4"]
    assert "Weight=10" in real.slurm("scontrol", "show", "node", "rk-4")
    real.all_off("rk-[1-6]")


@contextmanager
def patient(real: RealCluster) -> Iterator[None]:
    """A node that starts afresh has no job, and Slurm would let it go if that took long."""
    hasty = real.file.read_text()
    real.file.write_text(hasty.replace("idle: 2s", "idle: 1h"))
    tide(real, "apply", "--yes")
    try:
        yield
    finally:
        real.file.write_text(hasty)
        tide(real, "apply", "--yes")


def test_a_rebooted_node_serves_again(real: RealCluster) -> None:
    gate = Gate(real.shared / "gate")
    id = real.sbatch(f"hostname; {gate.wait}", "-w", "rk-1")
    until(lambda: real.states("rk-1") == {"ready"})
    with patient(real):
        tide(real, "rebuild", "rk-1", "--force", "--direct", "--yes", "--no-wait")
        operation = newest(real, "rebuild")
        gate.open()
        assert real.ended(operation["id"])["state"] == "done"
    real.finished(id)
    again = real.sbatch("hostname", "-w", "rk-1")
    real.finished(again)
    assert real.output(again) == ["rk-1"]
    real.all_off("rk-[1-6]")
