"""Elastic nodes for a Slurm that is there, stays as it is, and does not know that we watch it."""

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from springtide.cli.endings import Exit
from tests.e2e.existing import Existing, existing
from tests.e2e.real import remains, until
from tests.e2e.saving import await_saved

pytestmark = pytest.mark.real

SPEC = """
cluster: pscloud
batch:
  attach: ROOT/etc/slurm.conf
  munge_key: ROOT/key/munge.key
  polling: {every: 500ms}
provider: {kind: containers, mounts: [SHARED]}
groups: {general: {nodes: "ps[1-4]"}}
partitions: {cloud: {groups: [general]}}
timing: {idle: 2s, reconcile: 1s, grace: 1s}
"""
LINES = """\
TreeWidth=50
NodeName=ps[1-3] NodeAddr=127.0.0.[2-4] CPUs=1
NodeName=ps4 NodeAddr=127.0.0.5 Port=17219 CPUs=1
PartitionName=cloud Nodes=ps[1-4]
"""
OURS = "ps[1-4]"
AWAY_S = 60.0
STAGES = ("serving", "drained", "gone")
SEEN = "ps4: a slurmd answers in its name, but it has no instance"
ROGUE = """
mount -t tmpfs none /var/spool
mkdir /var/spool/slurmd-ps4
mount -t tmpfs none /run
exec slurmd -D -N "$1" -f "$2"
"""


@contextmanager
def polled(port: int, spec: str = SPEC) -> Iterator[Existing]:
    with existing(spec, port, lines=LINES) as site:
        before = site.conf.read_bytes()
        site.start_daemon()
        assert site.deploy()["state"] == "done"
        yield site
        assert site.conf.read_bytes() == before


def held_open(site: Existing, sign: str, *options: str) -> str:
    """A job that runs until the sign is there."""
    return site.sbatch(f"until [ -e {site.shared}/{sign} ]; do sleep 0.1; done", *options)


def runs(site: Existing, job: str) -> None:
    until(lambda: site.job(job)["JobState"] == "RUNNING")


@pytest.mark.accepts("N1", "N3", "N8", "N9", "N10")
@pytest.mark.timeout(400)
def test_nodes_come_for_jobs_of_our_partition_and_go_when_it_is_empty() -> None:
    """They stay for as long as a busy machine may take to start the job that waits for another."""
    with polled(17210, SPEC.replace("idle: 2s", "idle: 20s")) as site:
        house = held_open(site, "house", "-p", "old")
        waits = site.sbatch("true", "-p", "old")
        runs(site, house)
        two = site.sbatch("scontrol show hostnames", "-p", "cloud", "-N2")
        again = held_open(site, "again", "-p", "cloud", f"--dependency=afterok:{two}")
        site.finished(two)
        assert site.output(two) == ["ps1", "ps2"]
        runs(site, again)
        assert site.job(again)["NodeList"] in ("ps1", "ps2")
        assert len(_told(site, "instance created")) == 2, "a node was there still"
        until(lambda: len(_up(site)) == 1)
        (site.shared / "again").touch()
        site.finished(again)
        site.all_off(OURS)
        assert until(lambda: site.job(waits)["JobState"]) == "PENDING"
        until(lambda: site.node("ps1")["State"].startswith("DOWN+DRAIN"))
        (site.shared / "house").touch()
        site.finished(waits)
        assert not [event for event in site.events() if event["node"] == "static1"]
        until(lambda: site.node("static1")["State"] == "IDLE")


def _told(site: Existing, what: str) -> list[str]:
    """The nodes of which that was told."""
    return [event["node"] for event in site.events() if event["what"] == what]


def _up(site: Existing) -> list[str]:
    return [name for name, row in site.record(OURS).items() if row["state"] == "ready"]


@pytest.mark.accepts("B18")
@pytest.mark.timeout(300)
def test_jobs_that_more_nodes_would_not_help_start_none() -> None:
    with polled(17212) as site:
        held = site.sbatch("true", "-p", "cloud", "--hold")
        site.sbatch("true", "-p", "cloud", f"--dependency=afterok:{held}")
        site.sbatch("true", "-p", "cloud", "--begin=now+1hour")
        seen = len(site.events())
        time.sleep(4)  # eight looks
        assert site.states(OURS) == {"off"}, site.events()[seen:]
        site.slurm("scontrol", "release", held)
        site.finished(held)


@pytest.mark.accepts("B19", "N10")
@pytest.mark.timeout(300)
def test_an_idle_node_is_kept_while_a_job_waits_that_it_serves() -> None:
    """The job needs both nodes of the pool, and one of them is busy."""
    with polled(17214, SPEC.replace(OURS, "ps[1-2]")) as site:
        nobody = ("nodename=ps[3-4]", "state=down", "reason=there is no such machine")
        site.slurm("scontrol", "update", *nobody)
        first = held_open(site, "first", "-p", "cloud")
        second = held_open(site, "second", "-p", "cloud")
        runs(site, first)
        runs(site, second)
        until(lambda: site.states("ps[1-2]") == {"ready"})
        both = held_open(site, "both", "-p", "cloud", "-N2")
        (site.shared / "second").touch()
        site.finished(second)
        time.sleep(5)  # more than timing.idle
        assert site.states("ps[1-2]") == {"ready"}
        assert until(lambda: site.job(both)["JobState"]) == "PENDING"
        (site.shared / "first").touch()
        runs(site, both)
        (site.shared / "both").touch()
        site.finished(both)
        site.all_off("ps[1-2]")


@pytest.mark.timeout(400)
def test_while_slurmctld_is_away_no_node_is_touched_and_then_all_goes_on() -> None:
    """rule 1, rule 5. It forgets where nodes are, and is told again.

    A minute, in which an idle node would long have gone.
    """
    with polled(17216, SPEC.replace("idle: 2s", "idle: 40s")) as site:
        job = held_open(site, "go", "-p", "cloud")
        runs(site, job)
        idle = site.sbatch("true", "-p", "cloud", "-w", "ps3")
        site.finished(idle)
        await_saved(site.slurm, site.root / "slurmctld", job, "ps3")
        until(partial(_is_calm, site))
        before = {name: row["state"] for name, row in site.record(OURS).items()}
        assert sorted(before.values()) == ["off", "off", "ready", "ready"]
        site.stop("slurmctld", signal.SIGKILL)
        seen = len(site.events())

        def untouched() -> bool:
            now = {name: row["state"] for name, row in site.record(OURS).items()}
            return now == before and not [e for e in site.events()[seen:] if e["node"]]

        remains(untouched, AWAY_S)
        site.start_slurmctld()
        (site.shared / "go").touch()
        site.finished(job)
        other = site.sbatch("true", "-p", "cloud", "-N2")
        site.finished(other)
        site.all_off(OURS)


def _is_calm(site: Existing) -> bool:
    """No operation is at work: who has run a job is ready by then."""
    return not site.client.get("/status")["operations"]


@contextmanager
def rogue(site: Existing, name: str) -> Iterator[None]:
    """A slurmd by the name of a node of ours, on this machine's network."""
    inside = ["sh", "-ec", ROGUE, "sh", name, str(site.conf)]
    process = subprocess.Popen(
        ["unshare", "-m", "-p", "-f", "--mount-proc", "--kill-child", *inside],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.accepts("B20")
@pytest.mark.timeout(300)
def test_a_slurmd_that_nobody_asked_for_gets_no_jobs_and_can_be_removed() -> None:
    """While its node is off it gets none; if somebody resumes that, it is seen, and is ended.

    What it had of jobs then goes to a node of ours.
    """
    with polled(17208) as site, rogue(site, "ps4"):
        until(lambda: site.node("ps4")["SlurmdStartTime"] not in ("", "None"))
        time.sleep(2)
        assert site.node("ps4")["State"] == "DOWN+DRAIN"
        assert site.states("ps4") == {"off"}
        site.slurm("scontrol", "update", "nodename=ps4", "state=resume")
        until(lambda: site.node("ps4")["State"] == "IDLE")
        until(lambda: [e for e in site.events() if e["detail"].startswith(SEEN)])
        job = held_open(site, "go", "-p", "cloud", "-w", "ps4", "--requeue")
        runs(site, job)
        done = site.tide("kill", "ps4", "--yes")
        assert done.returncode == Exit.DONE, done.stdout + done.stderr
        assert "strange slurmd put out of service" in [one["what"] for one in site.events()]
        until(lambda: site.states("ps4") == {"ready"})
        (site.shared / "go").touch()
        assert site.finished(job)["Restarts"] == "1"
        site.all_off(OURS)


@pytest.mark.accepts("N11")
@pytest.mark.timeout(1500)
def test_jobs_that_come_while_nodes_go_are_not_lost() -> None:
    """Twenty times, at moments spread over those in which a node retires, leaves and is deleted; a
    busy machine may miss some, so it goes on until one came at each stage."""
    met: Counter[str] = Counter()
    spec = SPEC.replace("idle: 2s", "idle: 1s").replace("every: 500ms", "every: 1s")
    with polled(17206, spec) as site:
        name = _ran(site, site.sbatch("hostname", "-p", "cloud"))
        while met.total() < 20 or not met.keys() >= {"drained", "gone"}:
            turn = met.total()
            until(partial(_has_come_to, site, name, STAGES[turn % 3]))
            time.sleep(turn % 20 // 3 * 0.1)  # the moment is what is tried
            met[_stage(site, name)] += 1
            name = _ran(site, site.sbatch("hostname", "-p", "cloud"))
        site.all_off(OURS)
    print("where nodes were when jobs came:", dict(met))


def _ran(site: Existing, job: str) -> str:
    """The node that it ran on, at its first try."""
    assert site.finished(job)["Restarts"] == "0"
    (name,) = site.output(job)
    assert name.startswith("ps")
    return name


def _stage(site: Existing, name: str) -> str:
    """How far a node has left, as Slurm shows it."""
    state = site.node(name)["State"]
    if "DOWN" in state:
        return "gone"
    return "drained" if "DRAIN" in state else "serving"


def _has_come_to(site: Existing, name: str, stage: str) -> bool:
    return STAGES.index(_stage(site, name)) >= STAGES.index(stage)
