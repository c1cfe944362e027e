"""The hook of OpenPBS, in a Python of its own with a stand-in for the module `pbs`.

It runs inside qsub: it must never delay or refuse a job, whatever the daemon does.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.as_user import as_user
from tests.unit.cli_world import World, served, wait_until

HOOK = Path(__file__).parents[2] / "packaging/openpbs/springtide_hook.py"
LIMIT = "LIMIT_S = 0.2"
LONG_S = 3600.0
"""For those who are answered: in no time, but this machine may stand still for longer."""
PBS = """\
import os, sys, time

hook_config_filename = os.environ["CONFIG"]
began = time.monotonic()

class Event:
    def accept(self):
        print("accepted after", time.monotonic() - began)
        raise SystemExit(0)

def event():
    return Event()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that other users see into."""
    with tempfile.TemporaryDirectory(prefix="hook-") as home:
        Path(home).chmod(0o755)
        (Path(home) / "pbs.py").write_text(PBS)
        yield Path(home)


def run(
    place: Path,
    *sockets: Path,
    config: str | None = None,
    user: str = "root",
    limit_s: float = LONG_S,
) -> float:
    """How long it took from its first line until it accepted."""
    path = place / "springtide.json"
    path.write_text(json.dumps({"sockets": list(map(str, sockets))}) if config is None else config)
    text = HOOK.read_text()
    assert LIMIT in text
    done = subprocess.run(
        as_user(user, sys.executable, "-S", "-c", text.replace(LIMIT, f"LIMIT_S = {limit_s}")),
        env={"PYTHONPATH": str(place), "CONFIG": str(path)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    word, _, seconds = done.stdout.strip().rpartition(" ")
    assert word == "accepted after"
    return float(seconds)


@contextmanager
def silent(path: Path) -> Iterator[None]:
    """Somebody who takes requests and never answers."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield


@contextmanager
def answering(path: Path) -> Iterator[list[bytes]]:
    """Somebody who takes one request."""
    heard: list[bytes] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            heard.append(connection.recv(65536))
            connection.sendall(b"HTTP/1.1 202 Accepted\r\n\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield heard
    finally:
        thread.join(60)
        listener.close()
    assert not thread.is_alive()


def test_it_tells_the_daemon(place: Path) -> None:
    with answering(place / "sock") as heard:
        run(place, place / "sock")
    assert heard[0].startswith(b"POST /hook/poll HTTP/1.1\r\n")


def test_a_daemon_that_never_answers_delays_no_job(place: Path) -> None:
    """However many there are, they have one limit together."""
    with silent(place / "sock"):
        assert 2 <= run(place, *[place / "sock"] * 50, limit_s=2) < 50 * 2


def test_a_daemon_that_takes_no_more_connections_delays_no_job(place: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place / "sock"))
    listener.listen(0)
    first = socket.socket(socket.AF_UNIX)
    first.connect(str(place / "sock"))
    try:
        run(place, place / "sock", limit_s=0.2)
    finally:
        first.close()
        listener.close()


def test_a_daemon_that_is_not_there_delays_no_job(place: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(place / "left"))
    left.close()
    (place / "file").touch()
    run(place, place / "left", place / "file", place / "nowhere")


@pytest.mark.parametrize("config", ["", "{", "[]", '{"sockets": 7}', '{"sockets": [null]}'])
def test_a_wrong_configuration_refuses_no_job(place: Path, config: str) -> None:
    run(place, config=config)


def test_one_daemon_that_is_away_does_not_keep_the_others_from_looking(place: Path) -> None:
    with answering(place / "sock") as heard:
        run(place, place / "nowhere", place / "sock")
    assert heard


# --- a real daemon -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with served() as world:
        yield world


def test_a_daemon_looks_at_once(place: Path, world: World) -> None:
    woken = _count_looks(world)
    run(place, world.layout.socket)
    wait_until(lambda: bool(woken))


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_other_users_wake_nobody(place: Path, world: World) -> None:
    woken = _count_looks(world)
    run(place, world.layout.socket, user="nobody")
    run(place, world.layout.socket)
    wait_until(lambda: bool(woken))
    assert len(woken) == 1


def _count_looks(world: World) -> list[float]:
    woken: list[float] = []

    async def watch() -> None:
        wake = type(world.daemon.poller).wake

        def waken() -> None:
            woken.append(time.monotonic())
            wake(world.daemon.poller)

        world.daemon.poller.wake = waken  # type: ignore[method-assign]

    world.call(watch)
    return woken
