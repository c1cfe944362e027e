"""An account of jobs on real clusters: a slurmdbd and a MariaDB of their own, kept and let go."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from springtide.batch.slurm_service import Process, parse_stat, read
from springtide.batch.slurm_versions import Change
from tests.e2e.real import RealCluster, cluster, until
from tests.slurm_release import since

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

SERVICES = ("mariadbd", "munged", "slurmctld", "slurmdbd")
PLAIN = "port: 17027, node_port: 17028"
ACCOUNTING = f"{PLAIN}, accounting: {{port: 17029}}"


def spec(name: str, batch: str = ACCOUNTING) -> str:
    """One whose daemon does not look by itself for what died: the test kills, and looks first."""
    return f"""
cluster: {name}
batch: {{kind: slurm, {batch}}}
provider: {{kind: containers, mounts: [SHARED]}}
groups: {{general: {{nodes: "{name}-[1-2]", min: 1}}}}
timing: {{idle: 1h, start: 2m, stop: 30s, reconcile: 1h}}
"""


def processes(real: RealCluster) -> dict[str, Process]:
    """The control processes that live."""
    files = (real.state / "run").glob("*.pid")
    stats = {path.stem: read(f"/proc/{path.read_text().strip()}/stat") for path in files}
    found = {name: parse_stat(stat) for name, stat in stats.items()}
    return {name: process for name, process in found.items() if process and process.alive}


def accounted(real: RealCluster, id: str, *fields: str) -> list[str]:
    """What the account says of a job."""
    format = ",".join(fields)
    command = ["sacct", "-X", "-n", "-P", "--starttime=now-1hour", "-j", id, "-o", format]
    return real.try_slurm(*command).stdout.strip().split("|")


def in_the_account(real: RealCluster, id: str) -> None:
    until(lambda: accounted(real, id, "state") == ["COMPLETED"])


def rewrite(real: RealCluster, text: str) -> None:
    """Deploy another file."""
    real.write(text)
    real.restart_daemon()
    done = real.deploy()
    assert done["state"] == "done", done


# A cluster with an account


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(spec("ac")) as deployed:
        yield deployed


def test_a_job_is_in_the_account_with_its_nodes(real: RealCluster) -> None:
    id = real.sbatch("srun hostname", "-N2", "--wait")
    in_the_account(real, id)
    assert accounted(real, id, "cluster", "nodelist", "exitcode") == ["ac", "ac-[1-2]", "0:0"]
    assert real.output(id) == ["ac-1", "ac-2"]


@since(Change.KNOWS_INSTANCES)
def test_nodes_and_the_account_tell_which_instances_they_are(real: RealCluster) -> None:
    (row,) = real.client.get("/nodes", names="ac-1")["nodes"]
    told = f"InstanceId={row['instance']} InstanceType={row['flavor']}"
    until(lambda: told in real.slurm("scontrol", "-o", "show", "node", "ac-1"))
    format = "format=nodename,instanceid,instancetype"
    kept = f"ac-1|{row['instance']}|{row['flavor']}"
    until(lambda: kept in real.slurm("sacctmgr", "-n", "-P", "show", "instance", format).split())


def test_jobs_can_ask_for_the_account_on_their_nodes(real: RealCluster) -> None:
    id = real.sbatch("sacctmgr -n -P show cluster format=cluster", "--wait")
    assert real.output(id) == ["ac"]


def test_a_second_deploy_restarts_nothing(real: RealCluster) -> None:
    before = processes(real)
    assert sorted(before) == sorted(SERVICES)
    files = {path: path.stat().st_mtime_ns for path in (real.state / "accounting").iterdir()}
    seen = len(real.events())
    real.deploy()
    assert processes(real) == before
    assert files == {path: path.stat().st_mtime_ns for path in files}
    assert "batch system changed" not in [event["what"] for event in real.events()[seen:]]


def test_the_database_has_no_port_and_slurmdbd_only_one_address(real: RealCluster) -> None:
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    pids = {name: f"pid={process.pid}," for name, process in processes(real).items()}
    by_name = {n: [line for line in listening.splitlines() if p in line] for n, p in pids.items()}
    assert by_name["mariadbd"] == []
    [line] = by_name["slurmdbd"]
    address = real.client.get("/status")["control_address"]
    assert line.split()[3] == f"{address}:17029"


def test_only_slurms_user_and_root_may_use_the_database(real: RealCluster) -> None:
    def ask(user: str) -> str:
        command = ["mariadb", "--no-defaults", "-S", str(real.state / "database" / "db.sock")]
        query = "select count(*) from slurm_acct_db.cluster_table"
        return subprocess.run(
            [*command, "-u", user, "-e", query],
            capture_output=True,
            text=True,
            user=user,
            extra_groups=[],
            check=False,
        ).stderr

    assert (ask("slurm"), ask("root")) == ("", "")
    assert "Access denied" in ask("nobody")
    assert "Access denied" in ask("munge")


def test_the_files_of_the_account_are_kept_from_users_and_nodes(real: RealCluster) -> None:
    secret = real.state / "accounting" / "slurmdbd.conf"
    assert (secret.stat().st_mode & 0o777, secret.owner()) == (0o600, "slurm")
    assert (real.state / "database" / "data").stat().st_mode & 0o077 == 0
    id = real.sbatch(f"ls {real.state}", "--wait")
    assert {"accounting", "database"}.isdisjoint(real.output(id))
    for name, process in processes(real).items():
        words = Path(f"/proc/{process.pid}/cmdline").read_text().lower()
        assert "pass" not in words, name


@pytest.mark.parametrize("service", ["slurmdbd", "mariadbd"])
def test_a_dead_one_is_started_again_and_catches_up(real: RealCluster, service: str) -> None:
    before = processes(real)
    os.kill(before[service].pid, signal.SIGKILL)
    until(lambda: service not in processes(real))
    assert f", but {service} does not run; " in real.tide("status").stdout
    id = real.sbatch("hostname", "--wait")
    assert accounted(real, id, "state") != ["COMPLETED"]
    assert real.deploy()["state"] == "done"
    in_the_account(real, id)
    after = processes(real)
    assert {name for name in SERVICES if after[name] != before[name]} == {service}
    [*_, event] = [e for e in real.events() if e["what"] == "batch system changed"]
    assert event["detail"] == f"{service} started"


def test_the_history_outlives_all_control_processes(real: RealCluster) -> None:
    id = real.sbatch("hostname", "--wait")
    in_the_account(real, id)
    nodes = real.job(id)["NodeList"]
    before = processes(real)
    for process in before.values():
        os.kill(process.pid, signal.SIGTERM)
    until(lambda: not processes(real))
    assert real.deploy()["state"] == "done"
    assert processes(real).keys() == before.keys()
    assert accounted(real, id, "state", "nodelist") == ["COMPLETED", nodes]
    later = real.sbatch("hostname", "--wait")
    assert int(later) > int(id)
    in_the_account(real, later)


def test_another_port_is_taken_up_by_all(real: RealCluster) -> None:
    before = processes(real)
    rewrite(real, spec("ac", f"{PLAIN}, accounting: {{port: 17028}}"))
    after = processes(real)
    assert {name for name in SERVICES if after[name] == before[name]} == {"mariadbd", "munged"}
    in_the_account(real, real.sbatch("hostname", "--wait"))
    rewrite(real, spec("ac"))


def test_a_cluster_beside_it_is_not_touched(real: RealCluster) -> None:
    before = processes(real)
    with cluster(spec("bc")) as other:
        theirs = processes(other)
        id = other.sbatch("hostname", "--wait")
        in_the_account(other, id)
        assert accounted(other, id, "cluster", "nodelist") == ["bc", "bc-1"]
        known = [
            each.slurm("sacctmgr", "-n", "-P", "show", "cluster", "format=cluster").split()
            for each in (real, other)
        ]
        assert known == [["ac"], ["bc"]]
    assert not [process for process in theirs.values() if process.alive]
    assert processes(real) == before
    in_the_account(real, real.sbatch("hostname", "--wait"))


# From none to one and back


def test_it_is_turned_on_and_off_under_running_jobs_and_destroyed() -> None:
    with cluster(spec("oc", PLAIN)) as real:
        munged = processes(real)["munged"]
        first = _held(real, "first", 2)
        queued = real.sbatch("hostname", f"--dependency=afterok:{first}")
        rewrite(real, spec("oc"))
        _let_go(real, "first")
        real.finished(first)
        real.finished(queued)
        assert real.output(first) == ["oc-1", "oc-2"]
        in_the_account(real, first)
        in_the_account(real, queued)

        during = _held(real, "during", 1)
        rewrite(real, spec("oc", PLAIN))
        assert processes(real).keys() == {"munged", "slurmctld"}
        assert "accounting storage is disabled" in real.try_slurm("sacct").stderr
        _let_go(real, "during")
        real.finished(during)

        rewrite(real, spec("oc"))
        assert accounted(real, first, "state") == ["COMPLETED"]
        assert processes(real)["munged"] == munged
        _destroy(real)


def _held(real: RealCluster, name: str, nodes: int) -> str:
    """A job whose step runs until it is let go, and does so already: one that is yet to be
    started would need slurmctld. Then it starts another."""
    go = real.shared / name
    wait = f"touch {go}.$SLURM_NODEID; until [ -e {go} ]; do sleep 0.1; done"
    id = real.sbatch(f"srun sh -c '{wait}' && srun hostname", f"-N{nodes}")
    until(lambda: len(list(real.shared.glob(f"{name}.*"))) == nodes)
    return id


def _let_go(real: RealCluster, name: str) -> None:
    (real.shared / name).touch()


def _destroy(real: RealCluster) -> None:
    before = processes(real)
    assert before.keys() == set(SERVICES)
    done = real.tide("destroy", "--yes")
    assert done.returncode == 0, done.stderr
    assert not [name for name, process in before.items() if process.alive]
    assert not real.state.exists() or not list(real.state.iterdir())


def test_a_taken_port_is_told_and_costs_nothing_that_runs() -> None:
    with cluster(spec("pc", PLAIN)) as real, _squatter(real):
        before = processes(real)
        real.write(spec("pc"))
        real.restart_daemon()
        done = real.deploy()
        assert done["state"] == "failed"
        assert "port 17029" in done["reason"]
        assert "set batch.accounting.port to a free port" in done["reason"]
        now = processes(real)
        assert {name: now[name] for name in before} == before
        real.finished(real.sbatch("hostname"))


def _squatter(real: RealCluster) -> socket.socket:
    """Also where connections of a slurmdbd before it have yet to be forgotten."""
    return socket.create_server((real.client.get("/status")["control_address"], 17029))
