"""What a control plane is made of goes with its test, however that ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.openstack.processes import REPOSITORY, Processes, ServerDied

pytestmark = pytest.mark.real

KEPT = """
import sys, time
from pathlib import Path
from tests.openstack.processes import Processes

kept = Processes(Path(sys.argv[1]))
kept.start("orphan", ["sh", "-c", "setsid sleep 600 & exec sleep 600"])
print("kept", flush=True)
time.sleep(600)
"""


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 100.0
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def namespaces() -> set[Path]:
    """Of processes, as all that run now are in."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.add((process / "ns" / "pid").readlink())
        except OSError:
            continue
    return found


def namespace_under(keeper: int) -> Path:
    return Path(f"/proc/{keeper}/ns/pid_for_children").readlink()


def first_child(process: int) -> int:
    path = Path(f"/proc/{process}/task/{process}/children")
    return int(path.read_text().split()[0])


def sleeps(process: int) -> bool:
    """Before, the first process of a namespace has not said yet that it dies with its keeper."""
    return Path(f"/proc/{process}/comm").read_text() == "sleep\n"


@pytest.mark.parametrize("victim", ["test", "keeper"])
def test_no_process_outlives_a_test_or_a_keeper_that_is_killed(tmp_path: Path, victim: str) -> None:
    root = tmp_path / "root"
    argv = [sys.executable, "-c", KEPT, str(root)]
    with subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE) as test:
        try:
            assert test.stdout is not None
            assert test.stdout.readline() == b"kept\n"
            keeper = first_child(test.pid)
            until(lambda: sleeps(first_child(keeper)))
            namespace = namespace_under(keeper)
            assert namespace in namespaces()
            os.kill({"test": test.pid, "keeper": keeper}[victim], signal.SIGKILL)
            until(lambda: namespace not in namespaces())
            until(lambda: victim == "keeper" or not root.exists())
        finally:
            test.kill()


def test_nothing_is_left_when_a_test_is_done(tmp_path: Path) -> None:
    root = tmp_path / "root"
    kept = Processes(root)
    kept.start("server", ["sleep", "600"])
    kept.close()
    assert not root.exists()


def test_a_server_that_dies_is_told_of_with_its_last_words(tmp_path: Path) -> None:
    kept = Processes(tmp_path / "root")
    try:
        kept.start("server", ["sh", "-c", "echo no such table; exit 3"])
        with pytest.raises(ServerDied, match="no such table"):
            kept.until("server", lambda: False)
    finally:
        kept.close()
