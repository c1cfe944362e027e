"""`tide demo` as a newcomer runs it, to its end and interrupted on the way."""

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from springtide.providers.containers.locks import directory_lock
from tests.as_user import as_user
from tests.e2e.real import until
from tests.ports import free_ports

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

LIMIT_S = 300.0
DEMO = (sys.executable, "-m", "springtide.cli.main", "demo")
KEEP = """
import pathlib, sys
from springtide.cli.demo import run
sys.exit(run(keep=True, clusters=pathlib.Path(sys.argv[1])))
"""
LASTING = """
import sys
from springtide.cli import demo, demo_show
demo.IDLE_S = 20  # idle nodes must not go before the second job comes, however slow the machine
demo_show.JOB = demo_show.JOB.replace("sleep 1", "sleep 10")  # nor be free before all have theirs
sys.exit(demo.run(keep=False))
"""
BESIDE = """
import sys
from springtide.cli import demo
demo.PORTS = (int(sys.argv[1]), *demo.PORTS[1:])  # not the one that other tests use meanwhile
sys.exit(demo.run(keep=False))
"""
PHASES = ("submitted", "hook called", "created", "running", "done", "gone")


class Performance:
    """A demo that runs, with all that it has said so far."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.said = ""
        self._end = time.monotonic() + LIMIT_S

    def until(self, text: str) -> None:
        """Read on until it has said so."""
        while text not in self.said:
            assert self._read(), f"it ended without {text!r}:\n{self.said}"

    def finish(self) -> int:
        while self._read():
            pass
        return self.process.wait(timeout=LIMIT_S)

    def _read(self) -> bool:
        assert self.process.stdout is not None
        left_s = max(0.0, self._end - time.monotonic())
        ready, _, _ = select.select([self.process.stdout], [], [], left_s)
        assert ready, f"it takes too long:\n{self.said}"
        part = os.read(self.process.stdout.fileno(), 65536)
        self.said += part.decode()
        return bool(part)

    @property
    def state(self) -> Path:
        found = re.search(r"Its files are in (\S+?)\. ", self.said)
        assert found, self.said
        return Path(found[1])

    @property
    def cluster(self) -> str:
        return self.state.name.removeprefix("tide-")


@contextmanager
def performance(*command: str) -> Iterator[Performance]:
    """Whatever the test does to it, a demo ends, and clean."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        demo = Performance(process)
        try:
            yield demo
        finally:
            if process.poll() is None:
                process.terminate()
                demo.finish()


def left_behind(demo: Performance) -> list[str]:
    """Processes, mounts of any namespace, links and files that know the cluster."""
    mark = str(demo.state)
    found = [str(path) for path in (demo.state,) if path.exists()]
    for path in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "mountinfo"):
            try:
                text = (path / name).read_text(errors="replace")
            except OSError:
                continue
            found += [f"{path.name} {name}"] if mark in text else []
    shown = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    return found + [line for line in shown.splitlines() if f"springtide {demo.cluster} " in line]


def test_the_demo_shows_its_whole_story_and_leaves_nothing() -> None:
    with performance(sys.executable, "-c", LASTING) as demo:
        assert demo.finish() == 0, demo.said
    lines = [line.strip() for line in demo.said.splitlines()]
    story = [line for line in lines if re.match(r"[+]\d+\.\d\d s  ", line)]
    places = [place(story, phase) for phase in PHASES]
    assert places == sorted(places), demo.said
    # Whether a node has registered is asked by the prolog too, which may know it before us.
    assert place(story, "created") < place(story, "joined") < place(story, "done")
    assert "srun hostname printed: demo-00 demo-01 demo-02 demo-03" in lines
    assert "demo-[00-03] used again, demo-[04-07] created for it" in lines
    assert any(line.startswith("submit → running") for line in lines)
    assert lines[-1].startswith("Nothing left behind")
    assert demo.said.replace("\n", "").isprintable()
    assert left_behind(demo) == []


def place(story: list[str], phase: str) -> int:
    """Where it is told first."""
    return next(at for at, line in enumerate(story) if f"s  {phase}" in line)


@pytest.mark.parametrize(
    ("command", "moment", "number"),
    [
        (DEMO, "Its files are", signal.SIGINT),
        (DEMO, "submitted", signal.SIGINT),
        (DEMO, "created", signal.SIGTERM),
        (DEMO, "running", signal.SIGHUP),
        (DEMO, "while those 4 nodes are idle", signal.SIGINT),
        # Else it might be over before the signal comes.
        ((sys.executable, "-c", LASTING), "Nothing to do", signal.SIGINT),
    ],
)
def test_a_demo_that_is_interrupted_leaves_nothing(
    command: tuple[str, ...], moment: str, number: signal.Signals
) -> None:
    with performance(*command) as demo:
        demo.until(moment)
        demo.process.send_signal(number)
        assert demo.finish() == 128 + number, demo.said
    assert "ending; what was made is removed first" in demo.said
    assert "Nothing left behind" in demo.said
    assert "Traceback" not in demo.said
    assert left_behind(demo) == []


def test_impatience_does_not_keep_it_from_cleaning_up() -> None:
    with performance(*DEMO) as demo:
        demo.until("running")
        with directory_lock(demo.state / "containers" / "instances" / "demo-00"):  # it cannot go
            demo.process.send_signal(signal.SIGINT)
            demo.until("ending; what was made is removed first")
            for _ in range(3):
                demo.process.send_signal(signal.SIGINT)
                demo.until("still removing")
        assert demo.finish() == 128 + signal.SIGINT, demo.said
    assert "Nothing left behind" in demo.said
    assert left_behind(demo) == []


def test_a_reader_that_goes_away_does_not_keep_it_from_cleaning_up() -> None:
    with performance(*DEMO) as demo:
        demo.until("hook called")
        assert demo.process.stdout is not None
        demo.process.stdout.close()
        assert demo.process.wait(timeout=LIMIT_S) == 141
    assert left_behind(demo) == []


def test_a_killed_daemon_is_told_with_its_last_words_and_its_cluster_removed() -> None:
    with performance(*DEMO) as demo:
        demo.until("joined")
        lock = demo.state / "daemon.lock"
        os.kill(int(lock.read_text()), signal.SIGKILL)
        assert demo.finish() == 1, demo.said
    assert "daemon.log ends with:" in demo.said
    assert "Nothing left behind" in demo.said
    assert left_behind(demo) == []


def test_without_rights_nothing_is_made() -> None:
    command = as_user("nobody", *DEMO)
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1
    assert "you are not root" in done.stderr
    assert done.stdout == ""


def test_beside_a_slurm_of_this_machine_the_demo_takes_another_port() -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-c", BESIDE, str(port)]
    with socket.create_server(("", port)):  # as slurmctld does
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "Nothing left behind" in done.stdout


@pytest.fixture
def clusters() -> Iterator[Path]:
    """A place for clusters that stay, reachable by Slurm's user."""
    path = Path(tempfile.mkdtemp(prefix="tide-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def kept(clusters: Path) -> AbstractContextManager[Performance]:
    return performance(sys.executable, "-c", KEEP, str(clusters))


def destroy(state: Path) -> None:
    command = [sys.executable, "-m", "springtide.cli.main", "--state", str(state)]
    subprocess.run([*command, "destroy", "--yes"], check=True, capture_output=True, timeout=LIMIT_S)


def test_a_kept_cluster_stays_until_it_is_destroyed(clusters: Path) -> None:
    state = clusters / "demo"
    with kept(clusters) as demo:
        assert demo.finish() == 0, demo.said
    try:
        assert "The cluster stays." in demo.said
        env = {**os.environ, "SLURM_CONF": str(state / "conf" / "slurm.conf")}
        shown = subprocess.run(
            ["sinfo", "-hp", "main", "-o", "%N"],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert shown.stdout == "demo-[00-15]\n"
        with kept(clusters) as second:
            assert second.finish() == 1
        assert "a demo cluster is there already" in second.said
    finally:
        destroy(state)
    until(lambda: not left_behind(demo))  # the daemon ends just after its directory


def test_a_demo_to_be_kept_is_removed_when_it_is_interrupted(clusters: Path) -> None:
    with kept(clusters) as demo:
        demo.until("created")
        demo.process.send_signal(signal.SIGINT)
        assert demo.finish() == 128 + signal.SIGINT, demo.said
    assert left_behind(demo) == []
    assert not clusters.exists()
