"""The command with real daemons, a real Slurm and real containers."""

import json
import os
import pty
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from springtide.batch.slurm_service import parse_stat, read
from springtide.cli.endings import Exit
from tests.as_user import as_user
from tests.e2e.real import LIMIT_S, until
from tests.leftovers import place

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]

TIDE = [sys.executable, "-m", "springtide.cli.main"]
ENVIRONMENT = {"PATH": os.environ["PATH"]}
Done = subprocess.CompletedProcess[str]
T = TypeVar("T")


class Lab:
    """A cluster's file, and the command run for it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.name = home.name.lower().replace("_", "-")
        self.state = home / "state"
        self.file = home / "cluster.yaml"
        self.write()

    def write(self, more: str = "", least: int = 1) -> None:
        self.file.write_text(
            f"cluster: {self.name}\nstate: {self.state}\n"
            f'groups: {{general: {{nodes: "n[1-4]", min: {least}}}}}\n'
            f"timing: {{idle: 10m, start: 2m, stop: 30s}}\n{more}"
        )

    @property
    def environment(self) -> dict[str, str]:
        return {**ENVIRONMENT, "TIDE_STATE": str(self.state)}

    def tide(self, *arguments: str) -> Done:
        return subprocess.run(
            [*TIDE, *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def deploy(self) -> Done:
        return self.tide("deploy", str(self.file))

    def slurm(self, *command: str) -> str:
        environment = {**ENVIRONMENT, "SLURM_CONF": str(self.state / "conf" / "slurm.conf")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    @property
    def daemon(self) -> int:
        return int((self.state / "daemon.lock").read_text())

    def kill_daemon(self) -> None:
        process = parse_stat(read(f"/proc/{self.daemon}/stat"))
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: not process.alive)

    def processes(self) -> list[int]:
        """Whoever has the state directory in his command."""
        marks = str(self.state).encode()
        return [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if marks in _read(path)
        ]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def wait_until(condition: Callable[[], T | None]) -> T:
    """What it says once that is true."""
    said = until(condition, LIMIT_S)
    assert said is not None
    return said


@pytest.fixture
def lab() -> Iterator[Lab]:
    with place() as home:
        lab = Lab(home)
        try:
            yield lab
        finally:
            left = lab.tide("destroy", "--yes-really", lab.name) if lab.state.exists() else None
            try:
                assert left is None or left.returncode in (Exit.DONE, Exit.AWAY), left.stderr
                # Programs that slurmctld called end by themselves when nobody answers them.
                wait_until(lambda: not lab.processes())
            finally:
                for pid in lab.processes():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


@contextmanager
def foreground(lab: Lab) -> Iterator["subprocess.Popen[str]"]:
    """`tide daemon` in the foreground."""
    command = [*TIDE, "daemon", str(lab.file)]
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: lab.tide("status").returncode == 0 or process.poll() is not None)
            yield process
        finally:
            process.kill()


# --- a cluster's life --------------------------------------------------------------------


@pytest.mark.accepts("C18", "E27")
def test_a_cluster_lives_by_its_commands(lab: Lab) -> None:
    first = lab.deploy()
    assert first.returncode == 0, first.stderr
    assert "✓ wait registered" in first.stderr
    assert f"export SLURM_CONF={lab.state}/conf/slurm.conf" in first.stdout
    assert "1 of 4 nodes ready" in first.stdout
    assert "n1 idle\n" in lab.slurm("sinfo", "-h", "-o", "%N %T")
    wait_until(lambda: lab.tide("check", str(lab.file)).returncode == 0)

    started_at = lab.slurm("scontrol", "show", "config").split("BOOT_TIME")[1].splitlines()[0]
    second = lab.deploy()
    assert (second.returncode, "nothing had to be changed" in second.stdout) == (0, True)
    assert started_at in lab.slurm("scontrol", "show", "config")

    assert lab.tide("resume", "n[2-3]").stdout == "n[2-3]: ready\n"
    rows = [line.split()[:5] for line in lab.tide("nodes").stdout.splitlines()[1:]]
    assert rows == [
        ["n[1-3]", "general", "ready", "IDLE+CLOUD", "running"],
        ["n4", "general", "off", "IDLE+CLOUD+POWERED_DOWN", "-"],
    ]
    assert lab.tide("suspend", "n[2-3]").stdout == "n[2-3]: off\n"
    events = lab.tide("events", "n2").stdout
    assert events.index("instance created") < events.index("instance gone")

    gone = lab.tide("destroy", "--yes")
    assert (gone.returncode, gone.stdout) == (0, f"cluster {lab.name} is gone: nothing left\n")
    assert not lab.state.exists()


def test_suspended_nodes_let_their_jobs_end(lab: Lab) -> None:
    shared = lab.home / "shared"
    shared.mkdir()
    lab.write(f"provider: {{kind: containers, mounts: [{shared}]}}\n")
    assert lab.deploy().returncode == 0
    wait = f"until [ -e {shared}/go ]; do sleep 0.1; done"
    lab.slurm("sbatch", "-N1", "-w", "n1", "-o", "/dev/null", "-D", "/", "--wrap", wait)
    wait_until(lambda: "R" in lab.slurm("squeue", "-h", "-o", "%t"))
    command = [*TIDE, "suspend", "n1", "--timeout", f"{LIMIT_S:.0f}s"]
    with subprocess.Popen(
        command,
        env=lab.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as asked:
        assert asked.stderr is not None
        told = "n1: the batch system lets them go when their jobs have ended"
        assert any(told in line for line in asked.stderr)
        (shared / "go").touch()
        said, _ = asked.communicate(timeout=LIMIT_S)
    assert (asked.returncode, said) == (0, "n1: off\n")
    assert "JobState=COMPLETED" in lab.slurm("scontrol", "show", "job")


def test_a_changed_file_is_applied_by_the_next_deploy_and_the_daemon_goes_on(lab: Lab) -> None:
    assert lab.deploy().returncode == 0
    before = lab.daemon
    lab.write(least=2)
    checked = lab.tide("check", str(lab.file))
    assert checked.returncode == Exit.DONE, checked.stdout
    assert "- daemon" in checked.stdout
    done = lab.deploy()
    assert done.returncode == 0, done.stderr
    assert "groups.general.min: 1 → 2" in done.stderr
    assert f"{lab.file} was applied" in done.stdout
    assert f"cluster {lab.name} is up" in done.stdout
    assert "2 of 4 nodes ready" in done.stdout
    assert lab.daemon == before
    assert (lab.state / "cluster.yaml").read_text() == lab.file.read_text()


def test_a_deploy_asks_before_nodes_leave(lab: Lab) -> None:
    assert lab.deploy().returncode == 0
    lab.write(least=0)
    refused = lab.deploy()
    assert refused.returncode == Exit.WRONG
    assert "nobody can be asked here: say --yes" in refused.stderr
    done = lab.tide("deploy", str(lab.file), "--yes")
    assert done.returncode == 0, done.stderr
    assert "0 of 4 nodes ready" in done.stdout


def test_a_file_that_was_corrected_after_a_failed_deploy_is_applied(lab: Lab) -> None:
    """The daemon stays and goes on with the new file, though nothing was deployed yet."""
    lab.write("batch: {parameters: {SlurmctldDebug: nonsense}}\n")
    failed = lab.tide("deploy", str(lab.file))
    assert failed.returncode == Exit.FAILED
    lab.write()
    done = lab.deploy()
    assert done.returncode == 0, done.stderr
    assert "1 of 4 nodes ready" in done.stdout


def test_a_stopped_cluster_starts_though_its_daemon_was_killed(lab: Lab) -> None:
    assert lab.deploy().returncode == 0
    stopped = lab.tide("stop", "--yes")
    assert stopped.returncode == 0, stopped.stderr
    lab.kill_daemon()
    started = lab.tide("start")
    assert started.returncode == 0, started.stderr
    assert "the daemon was started" in started.stdout
    assert "1 of 4 nodes ready" in started.stdout
    status = json.loads(lab.tide("status", "--json").stdout)
    assert (status["stopped"], status["file"]) == (False, str(lab.file))


def test_a_cluster_can_be_destroyed_though_its_daemon_is_dead(lab: Lab) -> None:
    assert lab.deploy().returncode == 0
    lab.kill_daemon()
    away = lab.tide("status")
    assert away.returncode == Exit.AWAY
    assert f"start it with `tide deploy --state {lab.state}`" in away.stderr
    lab.file.unlink()
    gone = lab.tide("destroy", "--yes")
    assert gone.returncode == 0, gone.stderr
    assert not lab.state.exists()


def test_a_dead_slurmctld_is_told(lab: Lab) -> None:
    assert lab.deploy().returncode == 0
    with dead_slurmctld(lab):
        wait_until(lambda: "does not answer" in lab.tide("status").stdout)
        refused = lab.tide("resume", "n2")
        assert refused.returncode == Exit.FAILED
        assert "Traceback" not in refused.stderr
        assert "✗ batch system" in lab.tide("check", str(lab.file)).stdout


@contextmanager
def dead_slurmctld(lab: Lab) -> Iterator[None]:
    """Its port is somebody else's meanwhile, or the daemon would have it running again."""
    conf = (lab.state / "conf" / "slurm.conf").read_text()
    host = re.search(r"^SlurmctldHost=\S+\((\S+)\)\nSlurmctldPort=(\d+)$", conf, re.MULTILINE)
    assert host, conf

    def take() -> socketserver.TCPServer | None:
        with suppress(OSError, ValueError):  # or it is being started again, and the file is new
            os.kill(int((lab.state / "run" / "slurmctld.pid").read_text()), signal.SIGKILL)
        with suppress(OSError):
            return Hanging((host[1], int(host[2])), socketserver.BaseRequestHandler)
        return None

    with wait_until(take) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever, 0.05)
        try:
            yield
        finally:
            server.shutdown()


class Hanging(socketserver.TCPServer):
    """Hangs up on everybody."""

    allow_reuse_address = True


def test_a_protected_cluster_asks_for_its_name(lab: Lab) -> None:
    lab.write("protected: true\n", least=0)
    assert lab.deploy().returncode == 0
    assert typed(lab, "yes\n") == Exit.FAILED
    assert lab.state.exists()
    assert typed(lab, f"{lab.name}\n") == Exit.DONE
    assert not lab.state.exists()


def typed(lab: Lab, answer: str) -> int:
    """`tide destroy` at a terminal, with this answer."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer.encode())
        done = subprocess.run(
            [*TIDE, "destroy", "--state", str(lab.state)],
            env=ENVIRONMENT,
            stdin=theirs,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        return done.returncode
    finally:
        os.close(ours)
        os.close(theirs)


# --- the daemon --------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_ends_in_good_order(lab: Lab, number: signal.Signals) -> None:
    with foreground(lab) as process:
        process.send_signal(number)
        _, errors = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, errors) == (0, "")
    assert not (lab.state / "tide.sock").exists()
    assert not (lab.state / "record.db-wal").exists()


def test_a_state_directory_has_one_daemon(lab: Lab) -> None:
    with foreground(lab) as process:
        second = lab.tide("daemon", str(lab.file))
        assert second.returncode == Exit.FAILED
        assert f"already serves {lab.state} (process {process.pid})" in second.stderr


def test_what_a_daemon_alone_has_made_can_be_destroyed(lab: Lab) -> None:
    with foreground(lab) as process:
        process.terminate()
        process.communicate(timeout=LIMIT_S)
    gone = lab.tide("destroy", "--yes")
    assert (gone.returncode, gone.stdout) == (0, f"cluster {lab.name} is gone: nothing left\n")
    assert not lab.state.exists()
    again = lab.tide("destroy", "--yes")
    assert again.returncode == Exit.AWAY
    assert again.stderr == f"tide: there is no cluster in {lab.state}: nothing to destroy\n"


# --- what can be wrong -------------------------------------------------------------------


@pytest.mark.accepts("E25")
@pytest.mark.parametrize("command", ["daemon", "deploy"])
def test_a_log_that_cannot_be_written_is_told(lab: Lab, command: str) -> None:
    lab.state.mkdir()
    for name in ("daemon.lock", "log"):
        (lab.state / name).touch()
    done = lab.tide(command, str(lab.file))
    shutil.rmtree(lab.state)
    assert done.returncode == Exit.FAILED
    assert f"cannot write the log {lab.state}/log" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_daemon_s_last_words_are_printed_if_it_does_not_start(lab: Lab) -> None:
    (lab.state / "record.db").mkdir(parents=True)
    done = lab.deploy()
    shutil.rmtree(lab.state)
    assert done.returncode == Exit.FAILED
    assert f"the daemon did not start: cannot open the record {lab.state}/record.db" in done.stderr


@pytest.mark.parametrize("command", ["daemon", "deploy"])
def test_a_directory_with_other_files_is_not_taken_for_a_state_directory(
    lab: Lab, command: str
) -> None:
    lab.state.mkdir()
    (lab.state / "precious.txt").write_text("years of work")
    done = lab.tide(command, str(lab.file))
    found = [path.name for path in lab.state.iterdir()]
    shutil.rmtree(lab.state)
    assert done.returncode != Exit.DONE
    assert "holds files that are not of a cluster (precious.txt); set `state`" in done.stderr
    assert found == ["precious.txt"]


def test_files_that_are_not_the_cluster_s_outlive_it(lab: Lab) -> None:
    assert lab.deploy().returncode == 0
    (lab.state / "precious.txt").write_text("years of work")
    gone = lab.tide("destroy", "--yes")
    found = [path.name for path in lab.state.iterdir()]
    shutil.rmtree(lab.state)
    assert gone.returncode == 0, gone.stderr
    assert f"{lab.state} stays, for this in it is not the cluster's: precious.txt" in gone.stdout
    assert found == ["precious.txt"]


def test_a_state_directory_that_cannot_be_written_is_told(lab: Lab) -> None:
    lab.state = Path("/proc/tide")
    lab.write()
    for command in ("deploy", "daemon"):
        done = lab.tide(command, str(lab.file))
        assert done.returncode == Exit.FAILED
        assert "/proc" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_taken_port_is_told_before_anything_is_made(lab: Lab) -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))  # noqa: S104 - as another slurmctld would
        other.listen()
        port = other.getsockname()[1]
        lab.write(f"batch: {{port: {port}}}\n")
        done = lab.deploy()
    assert done.returncode == Exit.FAILED
    assert f"✗ port {port}: taken by another program" in done.stderr
    assert not lab.state.exists()


def test_only_root_can_deploy(lab: Lab) -> None:
    done = subprocess.run(
        as_user("nobody", *TIDE, "deploy", str(lab.file)),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == Exit.FAILED
    assert "✗ root: you are not root" in done.stderr


def test_a_plan_can_be_had_before_the_first_deploy(lab: Lab) -> None:
    done = lab.tide("deploy", str(lab.file), "--dry-run")
    assert done.returncode == 0
    assert "nodes   1: n1" in done.stdout
    assert not lab.state.exists()
    assert json.loads(lab.tide("check", str(lab.file), "--json").stdout)["ok"] is True
