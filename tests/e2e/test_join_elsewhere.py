"""Machines that join by themselves, for batch systems that are somebody else's.

Those of `bay.sh`, like in `test_join`: each boots with its user data, and has of the batch system
what its image and the daemon give it. It comes for a job from zero nodes, and goes after it.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from springtide.cli.endings import Exit
from tests.batch.torque_standin import install
from tests.batch.torque_standin.server import create
from tests.e2e import bay
from tests.e2e.existing import Existing, existing
from tests.e2e.gate import Gate
from tests.e2e.real import RealCluster, cluster, until
from tests.e2e.test_attach import do_as_told
from tests.e2e.test_torque import Site
from tests.gridengine import conf
from tests.gridengine.bed import GridEngine, gridengine

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

BRIDGE, CONTROL, NODE = "tideelse0", "10.93.0.1", "je-1"
TEXT = f"""
join: {{port: 17182}}
naming: {{kind: hosts}}
{bay.provider(BRIDGE, CONTROL)}
flavors: {{small: {{cpus: 1, memory: 256M}}}}
groups: {{small: {{nodes: "{NODE}", flavors: [small]}}}}
partitions: {{cloud: {{groups: [small]}}}}
timing: {{idle: 1s, start: 240s, stop: 30s, reconcile: 1s, grace: 1s}}
"""


def serves(real: RealCluster, last: str) -> None:
    """Its machine has joined, and has told of its boot as far as to its `last` phase."""
    until(lambda: real.states(NODE) == {"ready"})
    until(lambda: last in phases(real))
    assert phases(real).index("joined") < phases(real).index(last)
    told = [event["what"] for event in real.events(node=NODE)]
    assert told.index("instance created") < told.index("node joined")
    assert told.index("node joined") < told.index("node registered")


def phases(real: RealCluster) -> list[str]:
    shown = real.tide("timeline", NODE)
    assert shown.returncode == 0, shown.stderr
    return [line.split()[0] for line in shown.stdout.splitlines()[1:]]


def goes(real: RealCluster) -> None:
    real.all_off(NODE)
    until(lambda: not bay.is_on(real, NODE))


# --- Slurm ---------------------------------------------------------------------------------------

SLURM, CONFIGLESS = 17180, "enable_configless"
ATTACHED = f"""
cluster: je
batch:
  attach: ROOT/etc/slurm.conf
  munge_key: ROOT/key/munge.key
  prolog: ROOT/etc/prolog
{TEXT}"""
WATCHED = ATTACHED.replace("prolog: ROOT/etc/prolog", "polling: {every: 500ms}")
LINES = f"""\
TreeWidth=50
NodeName={NODE} NodeAddr=127.0.0.2 Port=17183 CPUs=1
PartitionName=cloud Nodes={NODE}
"""


@contextmanager
def slurm(spec: str, lines: str = "") -> Iterator[Existing]:
    with (
        bay.network(BRIDGE, CONTROL),
        existing(spec, SLURM, CONFIGLESS, lines) as site,
        bay.opened(site, BRIDGE, [NODE]),
    ):
        yield site


def runs_a_job(site: Existing) -> None:
    """On a machine that has the site's munge key, and of its files what it made itself."""
    assert site.states(NODE) == {"off"}
    gate = Gate(site.shared / "open")
    script = f"hostname; sha256sum </etc/munge/munge.key; ls {site.root}; {gate.wait}"
    job = site.sbatch(script, "-p", "cloud")
    serves(site, "slurmd")
    gate.open()
    site.finished(job)
    key = sha256(site.key.read_bytes()).hexdigest()
    assert site.output(job) == sorted([NODE, key, "-", "munge", "s", "shared"])
    goes(site)


@pytest.mark.accepts("A7", "B6", "N1", "N8", "N10", "X16", "X17")
def test_a_machine_joins_a_slurm_that_is_watched_runs_its_job_and_goes() -> None:
    with slurm(WATCHED, LINES) as site:
        before = site.conf.read_bytes()
        site.start_daemon()
        assert site.deploy()["state"] == "done"
        runs_a_job(site)
        until(lambda: site.node(NODE)["State"].startswith("DOWN+DRAIN"))
        assert site.conf.read_bytes() == before


@pytest.mark.accepts("A7", "B6", "X16", "X17")
def test_a_machine_joins_a_slurm_that_calls_us_runs_its_job_and_goes() -> None:
    with slurm(ATTACHED) as site:
        do_as_told(site, site.attach().stdout)
        site.restart_slurmctld()
        done = site.attach()
        assert done.returncode == Exit.DONE, done.stdout + done.stderr
        runs_a_job(site)
        until(lambda: site.node(NODE)["State"] == "IDLE+CLOUD+POWERED_DOWN")


# --- Grid Engine ---------------------------------------------------------------------------------

GRIDENGINE = """
cluster: {cluster}
batch:
  kind: gridengine
  root: {root}
  cell: {cell}
  bin: {bin}
  hosts: {hosts}
  polling: {{every: 500ms}}
"""


@contextmanager
def beside_gridengine() -> Iterator[tuple[GridEngine, RealCluster]]:
    with bay.network(BRIDGE, CONTROL), gridengine(placeholder=False) as bed:
        batch = GRIDENGINE.format(
            cluster=conf.CLUSTER, root=bed.root, cell=conf.CELL, bin=bed.bin, hosts=bed.hosts
        )
        spec = batch + TEXT.replace("{cloud:", f"{{{conf.QUEUE}:")
        with cluster(spec, deployed=False) as real:
            (real.root / "places").write_text(f"{bed.root}\n")
            with bay.deployed(real, BRIDGE, [NODE]):
                yield bed, real


@pytest.mark.accepts("A7", "B6", "N1", "N8", "N10", "N16", "X16", "X17")
def test_a_machine_joins_a_grid_engine_runs_its_job_and_goes() -> None:
    with beside_gridengine() as (bed, real):
        assert real.states(NODE) == {"off"}
        gate = Gate(bed.shared / "open")
        script = f"hostname; ls {bed.root}; {gate.wait}"
        job = bed.submit(script, "-q", conf.QUEUE, "-N", "one")
        serves(real, "entry")
        gate.open()
        until(lambda: bed.is_over(job))
        said = (bed.shared / f"one.o{job}").read_text().split()
        assert said == [NODE, conf.CELL, "shared"]
        goes(real)
        left = sorted([conf.PREMISES, conf.PLACEHOLDER])
        until(lambda: bed.run("qconf", "-sel").split() == left)


# --- Torque --------------------------------------------------------------------------------------

TORQUE = """
cluster: jet
batch: {kind: torque, bin: SITE/root, hosts: SITE/hosts, polling: {every: 500ms}}
"""


@contextmanager
def beside_torque() -> Iterator[Site]:
    with (
        bay.network(BRIDGE, CONTROL),
        TemporaryDirectory(prefix="torq-", dir="/var/tmp") as home,
    ):
        Path(home).chmod(0o755)
        place = Path(home, "shared")
        create(place / "state")
        for user in ("root", "tester"):
            install(place / user, place / "state", user)
        (place / "hosts").touch()
        spec = TORQUE.replace("SITE", str(place)) + TEXT
        with cluster(spec, deployed=False) as real:
            (real.root / "places").write_text(f"{home}\n")
            with bay.deployed(real, BRIDGE, [NODE]):
                yield Site(real, place)


@pytest.mark.accepts("A7", "B6", "N1", "N8", "N10", "N12", "X16", "X17")
def test_a_machine_joins_a_torque_runs_its_job_and_goes() -> None:
    """The server and pbs_mom are the stand-in."""
    with beside_torque() as site:
        assert site.real.states(NODE) == {"off"}
        said, gate = site.place / "said", Gate(site.place / "open")
        what = "cat /var/spool/torque/server_name; hostname"
        job = site.submit(f"{{ {what}; }} >{said}; {gate.wait}")
        serves(site.real, "entry")
        gate.open()
        site.reaches("C", job)
        assert said.read_text().split() == [socket.gethostname(), NODE]
        goes(site.real)
        until(lambda: "offline" in site.nodes()[NODE][0])
