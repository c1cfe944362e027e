"""Clusters of a special kind, each with a real Slurm of its own."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from springtide.batch.slurm_versions import Change
from tests.e2e.real import RealCluster, cluster, until
from tests.slurm_release import before

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]


@before(Change.SHOWS_POWERED_DOWN)
@pytest.mark.accepts("E4")
def test_nodes_above_the_minimum_are_cloud_nodes_hidden_until_used() -> None:
    with cluster(
        """
cluster: hidden
batch: {kind: slurm, port: 16827, node_port: 16828, hide_off: true}
provider: {kind: containers, mounts: [SHARED]}
groups: {general: {nodes: "h-[1-9]", min: 2}}
timing: {idle: 3600s}
"""
    ) as real:
        assert real.states("h-[1-2]") == {"ready"}
        for user in ("root", "nobody"):
            shown = real.slurm("sinfo", "-h", "-o", "%N %T", user=user).strip()
            assert shown == "h-[1-2] idle"
        id = real.sbatch("hostname", "-w", "h-7")
        real.finished(id)
        assert real.slurm("sinfo", "-h", "-o", "%N", user="nobody").strip() == "h-[1-2,7]"
        assert "CLOUD" in real.node("h-1")["State"]
        assert real.output(id) == ["h-7"]
        assert (
            real.client.get("/nodes", names="h-9")["nodes"][0]["batch"]["power"] == "powered down"
        )


RATE = 6


@pytest.mark.accepts("C16", "B12")
def test_nodes_come_and_go_no_faster_than_the_rates_allow() -> None:
    with cluster(
        f"""
cluster: rates
batch:
  {{kind: slurm, port: 16837, node_port: 16838, resume_rate: {RATE}, suspend_rate: {RATE},
    parameters: {{DebugFlags: Power, SlurmctldDebug: verbose}}}}
groups: {{general: {{nodes: "r-[01-16]"}}}}
timing: {{idle: 2s}}
"""
    ) as real:
        id = real.sbatch("sleep 20", "--array=1-8", "--exclusive")
        real.finished(id)
        real.all_off("r-[01-16]")
        for call, what in (("waking", "node requested"), ("suspending", "instance deleting")):
            assert [e["what"] for e in real.events()].count(what) == 8
            times = called_at(real, call)
            # A minute's worth at once, the rest spread over the minute.
            assert (times[-1] - times[0]).total_seconds() >= 5


def called_at(real: RealCluster, call: str) -> list[datetime]:
    """When slurmctld asked for nodes to come or go, by its log: others may hear of it late."""
    log = (real.state / "log" / "slurmctld.log").read_text().splitlines()
    calls = [line for line in log if f" {call} nodes " in line]
    return [datetime.fromisoformat(line[1:].partition("]")[0]) for line in calls]


@pytest.mark.accepts("B8")
def test_machines_on_premises_are_never_touched() -> None:
    """This machine itself is one, with a slurmd that somebody else started."""
    host = socket.gethostname().partition(".")[0]
    with cluster(
        f"""
cluster: hybrid
batch: {{kind: slurm, port: 16847, node_port: 16848}}
groups:
  general: {{nodes: "e-[1-4]"}}
  lab: {{nodes: {host}, provider: {{kind: none}}}}
timing: {{idle: 2s}}
"""
    ) as real:
        assert host in real.slurm("scontrol", "show", "config").split("SuspendExcNodes")[1]
        refused = real.tide("suspend", host)
        assert refused.returncode == 2
        assert host in refused.stderr
        with _slurmd(real, host):
            until(lambda: real.node(host)["State"] == "IDLE")
            real.finished(real.sbatch("hostname", "-w", host))
            real.finished(real.sbatch("hostname", "-w", "e-3"))
            real.all_off("e-[1-4]")
            assert real.node(host)["State"] == "IDLE"
        assert not [e for e in real.events() if e["node"] == host]


@contextmanager
def _slurmd(real: RealCluster, name: str) -> Iterator[None]:
    """A slurmd of this machine, which we have nothing to do with."""
    spaces = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    boot = 'mount -t tmpfs none /var/spool; exec slurmd -D -N "$1" -f "$2"'
    command = [*spaces, "sh", "-ec", boot, "sh", name, str(real.state / "conf" / "slurm.conf")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as slurmd:
        try:
            yield
        finally:
            slurmd.kill()


def test_the_sites_own_prolog_still_runs_when_its_nodes_are_up() -> None:
    with cluster(
        """
cluster: prolog
batch: {kind: slurm, port: 16857, node_port: 16858, prolog: SHARED/prolog}
groups: {general: {nodes: "p-[1-4]"}}
timing: {idle: 3600s}
""",
        deployed=False,
    ) as real:
        mark = real.shared / "ran"
        program = real.shared / "prolog"
        program.write_text(
            "#!/bin/sh\n"
            f"export SLURM_CONF={real.state}/conf/slurm.conf PATH=/usr/bin:/bin\n"
            f'sinfo -h -p main -N -n "$SLURM_JOB_NODELIST" -o "$SLURM_JOB_ID %N %t" >>{mark}\n'
        )
        program.chmod(0o755)
        assert real.deploy()["state"] == "done"
        id = real.sbatch("hostname", "-N2")
        real.finished(id)
        assert mark.read_text().splitlines() == [f"{id} p-1 alloc", f"{id} p-2 alloc"]


def test_two_clusters_with_the_same_names_and_ports_do_not_touch_each_other() -> None:
    spec = """
cluster: NAME
batch: {kind: slurm, port: 16867, node_port: 16868}
provider: {kind: containers, mounts: [SHARED]}
groups: {general: {nodes: "c-[1-4]"}}
timing: {idle: 3600s}
"""
    with (
        cluster(spec.replace("NAME", "red")) as red,
        cluster(spec.replace("NAME", "green")) as green,
    ):
        ids = [each.sbatch("srun hostname", "-N4") for each in (red, green)]
        for each, id in zip((red, green), ids, strict=True):
            each.finished(id)
            assert each.output(id) == ["c-1", "c-2", "c-3", "c-4"]
        addresses = [{row["address"] for row in each.record().values()} for each in (red, green)]
        assert not addresses[0] & addresses[1]
        red.client.post("/operations", {"operation": "destroy"})
        until(lambda: not red.state.exists())
        assert green.states("c-[1-4]") == {"ready"}
        assert green.output(green.finished(green.sbatch("hostname", "-w", "c-4"))["JobId"]) == [
            "c-4"
        ]


def test_giving_back_nodes_that_never_had_an_address_does_not_hold_up_slurmctld() -> None:
    """Slurm speaks to them all the same, and would look up their names for 10 s each."""
    with cluster(
        """
cluster: absent
batch: {kind: slurm, port: 16907, node_port: 16908}
images: {bare: {path: SHARED/bare}}
groups: {general: {nodes: "absent-[1-8]", image: bare}}
timing: {idle: 3600s}
""",
        deployed=False,
    ) as real:
        (real.shared / "bare" / "bin").mkdir(parents=True)
        assert real.deploy()["state"] == "done"
        real.sbatch("hostname", "-N8")
        until(lambda: [e for e in real.events() if e["what"] == "node given back"])
        until(lambda: [e for e in real.events() if e["what"] == "operation ended"][1:])
        until(lambda: not real.slurm("squeue", "-h", "-t", "CF").strip())
        log = (real.state / "log" / "slurmctld.log").read_text()
        assert "getaddrinfo() failed" not in log


def test_a_deploy_says_so_when_slurmctld_hangs() -> None:
    with cluster(
        """
cluster: hung
batch: {kind: slurm, port: 16917, node_port: 16918}
groups: {general: {nodes: "hung-[1-2]"}}
"""
    ) as real:
        pid = int((real.state / "run" / "slurmctld.pid").read_text().split()[0])
        os.kill(pid, signal.SIGSTOP)
        try:
            ended = real.deploy()
        finally:
            os.kill(pid, signal.SIGCONT)
        assert ended["state"] == "failed"
        assert "slurmctld runs but does not answer" in ended["reason"]
