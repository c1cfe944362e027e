"""What a killed test run left goes with its processes; nothing goes of runs that live."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from springtide.cli.demo_remains import hold
from tests import leftovers
from tests.leftovers import owned, place, remove_leftovers

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")

LIMIT_S = 200.0
SAYING = "import signal, sys, time\n"
DEAF = SAYING + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
WAITING = "print('ready', flush=True)\ntime.sleep(600)\n"
LIVING = """\
import sys
from pathlib import Path
from tests.leftovers import owned
with owned(Path(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(leftovers, "PLACES", tmp_path)
    monkeypatch.setattr(leftovers, "PATIENCE_S", LIMIT_S)
    return tmp_path


@pytest.fixture
def root(places: Path) -> Path:
    """Of a test that is over: it owned the directory."""
    root = places / "tide-left"
    root.mkdir()
    (root / "owned").touch()
    return root


@contextmanager
def process(
    *words: object, code: str = SAYING + WAITING, cwd: Path | None = None, **variables: object
) -> Iterator[subprocess.Popen[str]]:
    """One that has begun."""
    env = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    command = [sys.executable, "-c", code, *map(str, words)]
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as begun:
        try:
            assert begun.stdout is not None
            assert begun.stdout.readline() == "ready\n"
            yield begun
        finally:
            begun.kill()


def ended(stray: subprocess.Popen[str]) -> int:
    return stray.wait(LIMIT_S)


# --- what goes -----------------------------------------------------------------------------


def test_a_process_that_was_started_with_a_file_of_it_ends(root: Path) -> None:
    with process(f"--conf={root}/s/slurm.conf") as stray:
        remove_leftovers()
        assert ended(stray) == -signal.SIGTERM
    assert not root.exists()


def test_so_does_one_that_is_in_it(root: Path) -> None:
    (root / "s").mkdir()
    with process(cwd=root / "s") as stray:
        remove_leftovers()
        assert ended(stray) == -signal.SIGTERM


def test_so_does_one_that_a_variable_tells_of_it(root: Path) -> None:
    with process(SGE_ROOT=root) as stray:
        remove_leftovers()
        assert ended(stray) == -signal.SIGTERM


def test_one_that_does_not_listen_is_killed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "PATIENCE_S", 0.3)
    with process(root, code=DEAF + WAITING) as stray:
        remove_leftovers()
        assert ended(stray) == -signal.SIGKILL
    assert not root.exists()


def test_of_a_run_that_was_killed_the_processes_go(root: Path) -> None:
    with process(root, code=LIVING) as run, process(root / "conf") as stray:
        remove_leftovers()
        assert stray.poll() is None, "its run lives"
        run.kill()
        run.wait(LIMIT_S)
        remove_leftovers()
        assert ended(stray) == -signal.SIGTERM
    assert not root.exists()


@needs_root
def test_what_is_mounted_in_it_is_unmounted_and_stays_whole(places: Path, root: Path) -> None:
    other = places / "others"
    other.mkdir()
    (other / "file").write_text("of somebody else")
    point = root / "a b"
    point.mkdir()
    subprocess.run(["mount", "--bind", other, point], check=True)
    try:
        remove_leftovers()
        assert not os.path.ismount(point)
    finally:
        subprocess.run(["umount", point], check=False, capture_output=True)
    assert not root.exists()
    assert (other / "file").read_text() == "of somebody else"


@needs_root
def test_a_bridge_goes_unless_another_cluster_has_it(places: Path, root: Path) -> None:
    bridge, other = f"tide-t{os.getpid()}", places / "tide-lives"
    for one in (root / "s", other):
        (one / "containers").mkdir(parents=True)
        (one / "containers" / "site.json").write_text(json.dumps({"bridge": bridge}))
    subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
    link = Path("/sys/class/net", bridge)
    try:
        with owned(other):
            remove_leftovers()
            assert link.exists()
        assert not root.exists()
        remove_leftovers()
        assert not link.exists()
    finally:
        subprocess.run(["ip", "link", "delete", bridge], check=False, capture_output=True)


# --- what stays ----------------------------------------------------------------------------


def test_processes_of_a_test_that_lives_are_left_alone(places: Path) -> None:
    with place() as lives, process(lives) as its, process(cwd=lives) as another:
        remove_leftovers()
        assert [its.poll(), another.poll()] == [None, None]
        assert lives.exists()
    assert not list(places.iterdir())


def test_a_directory_whose_name_begins_like_its_own_is_anothers(root: Path) -> None:
    with process(f"{root}-2/file") as theirs, process(f"/mnt{root}") as another:
        remove_leftovers()
        assert [theirs.poll(), another.poll()] == [None, None]
    assert not root.exists()


def test_who_was_started_from_a_shell_that_once_was_there_goes_on(root: Path) -> None:
    with process(OLDPWD=root, PWD=root, _=root / "bin") as theirs:
        remove_leftovers()
        assert theirs.poll() is None


CALLER = """\
import sys
from pathlib import Path
from springtide.cli.demo_remains import hold
from tests import leftovers
leftovers.PLACES = Path(sys.argv[1]).parent
leftovers.remove_leftovers()
print("ready", flush=True)
"""


def test_who_clears_up_ends_neither_itself_nor_what_it_comes_from(root: Path) -> None:
    command = [sys.executable, "-c", CALLER, str(root)]
    parent = ["sh", "-c", '"$@"; echo "$?"', "sh", *command]
    done = subprocess.run(parent, text=True, capture_output=True, timeout=LIMIT_S, check=False)
    assert done.stdout == "ready\n0\n", done.stderr
    assert root.exists(), "it is where the caller works"


def test_what_nobody_owns_stays_for_an_hour_and_longer_while_a_demo_is_in_it(places: Path) -> None:
    fresh, old, demo = (places / f"tide-{name}" for name in ("fresh", "old", "demo-1"))
    for one in (fresh, old, demo):
        one.mkdir()
    before = time.time() - leftovers.OLD_S - 1
    for one in (old, demo):
        os.utime(one, (before, before))
    with held(demo):
        remove_leftovers()
        assert (fresh.exists(), old.exists(), demo.exists()) == (True, False, True)
    shutil.rmtree(fresh)
    remove_leftovers()
    assert not demo.exists()


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """As `tide demo` does."""
    descriptor = hold(directory)
    try:
        yield
    finally:
        os.close(descriptor)
