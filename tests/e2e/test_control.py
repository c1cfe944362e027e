"""Clusters with their control in a container: real deploys by command, a real Slurm within."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from springtide.cli.endings import Exit
from springtide.providers.containers.links import bridge_name
from tests.as_user import as_user
from tests.e2e import mpi
from tests.e2e.mpi import RUN
from tests.e2e.real import LIMIT_S, remains, until
from tests.e2e.saving import await_saved
from tests.leftovers import place

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "containers.yaml"
TIDE = [sys.executable, "-m", "springtide.cli.main"]
ENVIRONMENT = {key: os.environ[key] for key in ("PATH", "PYTHONPATH", "HOME") if key in os.environ}
Done = subprocess.CompletedProcess[str]


class Lab:
    """A cluster's file, and commands run for it on this machine."""

    def __init__(self, home: Path, control: str = "container", port: int = 17057) -> None:
        self.home = home
        self.name = f"{home.name}-{control}".replace("_", "x").lower()
        self.state = home / f"state-{control}"
        self.file = home / f"{control}.yaml"
        self.shared = home / "shared"
        self.shared.mkdir(exist_ok=True)
        self.control, self.port = control, port
        self.link = bridge_name(self.name)
        self.write()

    def write(self, mounts: tuple[Path, ...] = ()) -> None:
        shared = ", ".join(map(str, (self.shared, *mounts)))
        self.file.write_text(
            f"cluster: {self.name}\nstate: {self.state}\ncontrol: {self.control}\n"
            f"batch: {{port: {self.port}, node_port: {self.port + 1}}}\n"
            f"provider: {{kind: containers, mounts: [{shared}]}}\n"
            'groups: {general: {nodes: "n[1-4]", min: 1}}\n'
            "timing: {idle: 10m, start: 2m, stop: 20s}\n"
        )

    def tide(self, *arguments: str) -> Done:
        return self.run([*TIDE, *arguments])

    def run(self, command: list[str]) -> Done:
        return subprocess.run(
            command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    @property
    def environment(self) -> dict[str, str]:
        return {**ENVIRONMENT, "TIDE_STATE": str(self.state)}

    def deploy(self) -> str:
        done = self.tide("deploy", str(self.file))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def slurm(self, *command: str) -> str:
        conf = self.state / "conf" / "slurm.conf"
        done = subprocess.run(
            command,
            env={**ENVIRONMENT, "SLURM_CONF": str(conf)},
            cwd=self.shared,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def sbatch(self, *arguments: str) -> str:
        return self.slurm("sbatch", "--parsable", "-o", "%j.out", *arguments)

    def states(self) -> dict[str, str]:
        """Slurm's jobs."""
        words = self.slurm("squeue", "-h", "-o", "%A %T").split()
        return dict(zip(words[::2], words[1::2], strict=True))

    @property
    def container(self) -> int:
        """The pid of the container's first process."""
        return int((self.state / "control" / "process").read_text().split()[1])

    @property
    def daemon(self) -> int:
        """Programs that slurmctld calls look like it, but not for long."""
        return until(lambda: self.sole(sys.executable), LIMIT_S)

    def sole(self, program: str) -> int:
        """Its one process of this program, or 0 if there are others or none. A child that has yet
        to become another program looks like its parent."""
        alike = [pid for pid in self.processes() if _words(pid)[:1] == [program]]
        found = [pid for pid in alike if _parent(pid) not in alike]
        return found[0] if len(found) == 1 else 0

    def processes(self) -> list[int]:
        """Whoever has the state directory in his command; nodes are in its directories."""
        found = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
        return [pid for pid in found if any(str(self.state) in word for word in _words(pid))]

    def left(self) -> list[str]:
        link = [self.link] if Path("/sys/class/net", self.link).exists() else []
        return [*link, *(f"{pid} {_words(pid)}" for pid in self.processes())]

    def sweep(self) -> None:
        with suppress(OSError, IndexError):
            os.kill(self.container, signal.SIGKILL)
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def wait_until(condition: Callable[[], bool]) -> None:
    until(condition, LIMIT_S)


@pytest.fixture
def home() -> Iterator[Path]:
    with place() as home:
        yield home


def gone(lab: Lab) -> Iterator[Lab]:
    """The lab, and after the test nothing of it."""
    try:
        yield lab
        done = lab.tide("destroy", "--yes") if lab.state.exists() else None
        assert done is None or done.returncode == Exit.DONE, done.stderr
        wait_until(lambda: not lab.left())
    finally:
        lab.sweep()
    assert not lab.state.exists()


@pytest.fixture
def lab(home: Path) -> Iterator[Lab]:
    yield from gone(Lab(home))


@pytest.fixture
def beside(home: Path) -> Iterator[Lab]:
    yield from gone(Lab(home, "here", 17060))


# --- its life ----------------------------------------------------------------------------


@mpi.works
@pytest.mark.accepts("C1", "E2", "E3")
def test_a_cluster_is_made_from_an_example_with_its_control_in_a_container(lab: Lab) -> None:
    text = EXAMPLE.read_text().replace("cluster: blue ", f"cluster: {lab.name}\n#")
    text = text.replace("mounts: [/home]", "mounts: []").replace("min: 0", "min: 2")
    shared = f"shared: [{{path: {lab.shared}}}]\n"
    lab.file.write_text(f"state: {lab.state}\ncontrol: container\n{shared}{text}")
    told = lab.deploy()
    assert f"cluster {lab.name} is up: " in told
    address = re.search(r"control address (10\.77\.\d+\.1), 3 of 18 nodes ready\n", told)
    assert address is not None, told
    assert f"control runs in container {lab.name}-control (process {lab.container}); " in told

    nodes = lab.slurm("sinfo", "-h", "-N", "-p", "debug", "-o", "%N %t").splitlines()
    idle = [line for line in nodes if line.endswith(" idle")]
    assert idle == ["blue-000 idle", "blue-001 idle", "blue-quick-1 idle"]
    job = lab.sbatch("-N2", "--ntasks-per-node=1", "--wait", "--wrap", RUN)
    assert sorted((lab.shared / f"{job}.out").read_text().split()) == ["blue-000", "blue-001"]

    before = lab.container, lab.daemon, lab.slurm("scontrol", "show", "config").splitlines()[1:]
    assert f"cluster {lab.name} is up: nothing had to be changed\n" in lab.deploy()
    after = lab.container, lab.daemon, lab.slurm("scontrol", "show", "config").splitlines()[1:]
    assert before == after

    assert f"{address[1]}, in a container of its own" in lab.tide("status").stdout
    checked = lab.tide("check", str(lab.file)).stdout
    assert f"✓ control: in container {lab.name}-control (process {lab.container})" in checked
    assert "✓ control container: " in checked
    destroyed = lab.tide("destroy", "--yes")
    assert destroyed.stdout == f"cluster {lab.name} is gone: nothing left\n", destroyed.stderr


def test_nothing_but_the_state_and_shared_directories_can_be_written(lab: Lab) -> None:
    more = lab.home / "more"
    more.mkdir()
    lab.deploy()
    space = ["nsenter", "-t", str(lab.container), "-m", "-u"]
    script = 'hostname; for each in /etc /usr "$@"; do test -w "$each" && echo "$each"; done'
    arguments = map(str, (lab.state, lab.shared))
    seen = subprocess.run(
        [*space, "sh", "-c", script, "sh", *arguments], capture_output=True, text=True, check=False
    )
    assert seen.stdout.split() == [f"{lab.name}-control", str(lab.state), str(lab.shared)]

    container = lab.container
    lab.write(mounts=(more,))
    told = lab.deploy()
    assert lab.container == container, told
    lab.slurm("srun", "-w", "n2", "touch", str(more / "seen"))
    assert (more / "seen").exists()


def test_srun_and_nodes_are_reached_from_this_machine(lab: Lab) -> None:
    of_its_own = "kind: containers, subnet: 10.79.16.0/24"  # nobody takes it without the link
    lab.file.write_text(lab.file.read_text().replace("kind: containers", of_its_own))
    lab.deploy()
    assert lab.slurm("srun", "-N2", "hostname").split() in (["n1", "n2"], ["n2", "n1"])
    subprocess.run(["ip", "link", "delete", lab.link], check=True)
    assert f"✗ control: link {lab.link} is gone" in lab.tide("check", str(lab.file)).stdout
    assert "this machine was connected to the cluster's network" in lab.deploy()
    assert lab.slurm("srun", "-w", "n1", "hostname") == "n1"


# --- what can happen to it ---------------------------------------------------------------


@pytest.mark.accepts("C20")
def test_what_was_there_comes_back_after_the_container_was_killed(lab: Lab) -> None:
    lab.deploy()
    script = "hostname; test -e $SLURM_JOB_ID.began || { touch $SLURM_JOB_ID.began; sleep 300; }"
    running = [lab.sbatch("-w", node, "--wrap", script) for node in ("n1", "n2")]
    wait_until(lambda: all((lab.shared / f"{job}.began").exists() for job in running))
    await_saved(lab.slurm, lab.state / "slurmctld", running[0], "n1")

    os.kill(lab.container, signal.SIGKILL)
    wait_until(lambda: not lab.left())
    checked = lab.tide("check", str(lab.file))
    assert f"✗ control: container {lab.name}-control is dead" in checked.stdout
    assert lab.tide("status").returncode == Exit.AWAY

    lab.deploy()
    # By the deploy, or by the daemon itself before it was asked.
    assert told(lab, "batch system changed", "detail")[-1].endswith("slurmctld started")
    assert sorted(told(lab, "node registered", "node")[-2:]) == ["n1", "n2"]
    nodes = json.loads(lab.tide("nodes", "n[1-2]", "--json").stdout)["nodes"]
    assert [(one["state"], one["instances"][0]["state"]) for one in nodes] == [
        ("ready", "running"),
        ("ready", "running"),
    ]
    wait_until(lambda: not lab.states())
    printed = [(lab.shared / f"{job}.out").read_text() for job in running]
    assert printed == ["n1\n", "n2\n"]


def told(lab: Lab, what: str, field: str) -> list[str]:
    """Of all its events."""
    events = map(json.loads, lab.tide("events", "--json").stdout.splitlines())
    return [event[field] for event in events if event["what"] == what]


def test_a_container_that_is_asked_to_end_loses_no_job(lab: Lab) -> None:
    """Though slurmctld, which has yet to write it down, does not get on for a while."""
    lab.deploy()
    former, slurmctld = lab.container, until(lambda: lab.sole("slurmctld"))
    held = lab.sbatch("-H", "--wrap", "hostname")
    os.kill(slurmctld, signal.SIGSTOP)
    try:
        os.kill(former, signal.SIGTERM)
        wait_until(lambda: lab.tide("status").returncode == Exit.AWAY)
        remains(Path(f"/proc/{slurmctld}").exists, 15)
    finally:
        with suppress(ProcessLookupError):
            os.kill(slurmctld, signal.SIGCONT)
    lab.deploy()
    assert lab.container != former
    assert lab.states() == {held: "PENDING"}


def test_the_daemon_is_started_again_when_it_dies(lab: Lab) -> None:
    lab.deploy()
    before, container = lab.daemon, lab.container
    booted = lab.slurm("scontrol", "show", "config").splitlines()[1:]
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: lab.tide("status").returncode == 0)
    assert lab.daemon != before
    assert lab.container == container
    assert lab.slurm("scontrol", "show", "config").splitlines()[1:] == booted


@pytest.mark.parametrize("mark", ["containers/site.json", "control/process", "conf"])
def test_a_deploy_that_was_killed_goes_on(lab: Lab, mark: str) -> None:
    command = [*TIDE, "deploy", str(lab.file)]
    with subprocess.Popen(command, env=lab.environment, stderr=subprocess.DEVNULL) as first:
        wait_until(lambda: (lab.state / mark).exists())
        first.kill()
    lab.deploy()
    assert lab.slurm("srun", "-w", "n1", "hostname") == "n1"
    wait_until(lambda: lab.sole("/bin/sh") == lab.container)


def test_several_deploys_at_once_make_one_container(lab: Lab) -> None:
    command = [*TIDE, "deploy", str(lab.file)]
    with Path(os.devnull).open("w") as quiet:
        several = [
            subprocess.Popen(command, env=lab.environment, stdout=quiet, stderr=quiet)
            for _ in range(3)
        ]
    assert [one.wait(LIMIT_S) for one in several] == [0, 0, 0]
    wait_until(lambda: lab.sole("/bin/sh") == lab.container)


def test_a_container_that_died_comes_back_though_another_has_its_subnet(lab: Lab) -> None:
    lab.deploy()
    os.kill(lab.container, signal.SIGKILL)
    wait_until(lambda: not lab.left())
    site = json.loads((lab.state / "containers" / "site.json").read_text())
    other = f"tc-{lab.link[-8:]}"
    subprocess.run(["ip", "link", "add", other, "type", "bridge"], check=True)
    try:
        subprocess.run(["ip", "address", "add", site["subnet"], "dev", other], check=True)
        lab.deploy()
        assert lab.slurm("srun", "-w", "n1", "hostname") == "n1"
    finally:
        subprocess.run(["ip", "link", "delete", other], check=True)


def test_a_cluster_is_destroyed_though_its_container_is_dead(lab: Lab) -> None:
    lab.deploy()
    os.kill(lab.container, signal.SIGKILL)
    wait_until(lambda: not lab.left())
    lab.file.unlink()
    destroyed = lab.tide("destroy", "--yes")
    assert destroyed.returncode == 0, destroyed.stderr
    assert not lab.state.exists()
    wait_until(lambda: not lab.left())


def test_clusters_here_and_in_a_container_live_side_by_side(lab: Lab, beside: Lab) -> None:
    lab.deploy()
    beside.deploy()
    for each in (lab, beside):
        assert each.slurm("srun", "-N2", "hostname").split() in (["n1", "n2"], ["n2", "n1"])
    assert lab.tide("destroy", "--yes").returncode == 0
    assert "on this machine" in beside.tide("status").stdout
    assert beside.slurm("srun", "-w", "n1", "hostname") == "n1"
    lab.deploy()
    assert beside.tide("destroy", "--yes").returncode == 0
    assert lab.slurm("srun", "-w", "n1", "hostname") == "n1"


# --- what can be wrong -------------------------------------------------------------------


def test_control_stays_where_it_is_and_its_daemon_in_it(lab: Lab) -> None:
    lab.deploy()
    outside = lab.tide("daemon", str(lab.file))
    assert outside.returncode == Exit.WRONG
    assert "runs in a container" in outside.stderr
    lab.file.write_text(lab.file.read_text().replace("control: container", "control: here"))
    moved = lab.tide("deploy", str(lab.file))
    assert moved.returncode == Exit.WRONG
    assert "control cannot change from container to here" in moved.stderr
    os.kill(lab.container, signal.SIGKILL)
    wait_until(lambda: not lab.left())
    moved = lab.tide("deploy", str(lab.file))
    assert moved.returncode == Exit.WRONG
    assert "set `control: container`, or destroy it first" in moved.stderr


def test_a_kernel_that_does_not_allow_it_is_told(lab: Lab) -> None:
    unable = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", *TIDE]
    checked = lab.run([*unable, "check", str(lab.file)])
    assert "✗ control container: unshare: unshare failed: Operation not permitted" in checked.stdout
    failed = lab.run([*unable, "deploy", str(lab.file)])
    assert failed.returncode == Exit.FAILED
    assert f"cannot have control of {lab.name} in a container: " in failed.stderr
    assert "Operation not permitted" in failed.stderr
    lab.deploy()


def test_only_root_can_have_a_control_container(lab: Lab) -> None:
    done = subprocess.run(
        as_user("nobody", *TIDE, "deploy", str(lab.file)),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == Exit.FAILED
    assert "✗ root: you are not root" in done.stderr


def test_the_last_words_of_a_daemon_that_does_not_start_are_told(lab: Lab) -> None:
    (lab.state / "record.db").mkdir(parents=True)
    done = lab.tide("deploy", str(lab.file))
    (lab.state / "record.db").rmdir()
    assert done.returncode == Exit.FAILED
    assert f"the daemon did not start: cannot open the record {lab.state}/record.db" in done.stderr
    wait_until(lambda: not lab.left())
