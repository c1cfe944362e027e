"""A slurmd that nobody asked for registers as a node of ours, of which there is no instance."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.by_hand import AGAIN, instances, started, tide
from tests.e2e.real import RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PORT = 17072
SPEC = f"""
cluster: rogue
batch: {{kind: slurm, port: 17070, node_port: {PORT}}}
provider: {{kind: containers, mounts: [SHARED]}}
groups: {{general: {{nodes: "rogue-[1-3]"}}}}
timing: {{idle: 1h, start: 120s, stop: 20s, reconcile: 1s, grace: 1s}}
"""
SEEN = "rogue-2: a slurmd answers in its name, but it has no instance; `tide kill` ends its service"
SLURMD = """
mount -t tmpfs none /var/spool
mkdir /var/spool/slurmd
mount -t tmpfs none /run
exec slurmd -D -b -N "$1" -f "$2"
"""
"""On the control host's network, but with files of its own."""


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC) as deployed:
        yield deployed


@contextmanager
def slurmd(real: RealCluster, name: str) -> Iterator[None]:
    """A slurmd in namespaces of its own, by this name; its jobs die with it."""
    conf = real.state / "conf" / "slurm.conf"
    inside = ["sh", "-ec", SLURMD, "sh", name, str(conf)]
    process = subprocess.Popen(
        ["unshare", "-m", "-p", "-f", "--mount-proc", "--kill-child", *inside],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: real.node(name)["State"].startswith("IDLE+CLOUD"))
        until(lambda: "POWERED_DOWN" not in real.node(name)["State"])
        yield
    finally:
        process.kill()
        process.wait()
        until(lambda: not listens())


def listens() -> bool:
    """Whether somebody has the port on the control host's network; the next cannot share it."""
    return f":{PORT:04X} 00000000:0000 0A " in Path("/proc/net/tcp").read_text()


@pytest.mark.accepts("B20")
def test_it_is_seen_and_its_service_ends_with_a_kill(real: RealCluster) -> None:
    with slurmd(real, "rogue-2"):
        until(lambda: [e for e in real.events() if e["detail"].startswith(SEEN)])
        job = started(real, "sleep 300", "-w", "rogue-2", "--no-requeue")
        assert instances(real) == {}
        said = tide(real, "kill", "rogue-2", "--yes")
        assert "rogue-2: a slurmd at " in said
        assert "stop it there, or it comes back" in said
        until(lambda: "POWERED_DOWN" in real.node("rogue-2")["State"])
        until(lambda: real.job(job)["JobState"] == "NODE_FAIL")
        whats = [event["what"] for event in real.events(node="rogue-2")]
        assert "strange slurmd put out of service" in whats
        assert real.states("rogue-2") == {"off"}


@pytest.mark.accepts("B20")
def test_a_job_on_it_starts_again_on_a_node_of_ours(real: RealCluster) -> None:
    with slurmd(real, "rogue-3"):
        job = started(real, AGAIN, "-w", "rogue-3", "--requeue")
        tide(real, "kill", "rogue-3", "--yes")
        real.finished(job)
        assert real.output(job) == ["rogue-3"]
        assert set(instances(real)) == {"rogue-3"}
