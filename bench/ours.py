"""Springtide itself, as its users run it: a daemon of its own, deployed and destroyed."""

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.place import describe, remove, undisturbed, write
from bench.queue import GaveUp, Queue, wait_until
from springtide.batch.slurm_conf import slurmctld_log
from springtide.compose import compose
from springtide.layout import Layout
from springtide.spec import parse

STOP_S = 30.0


@contextmanager
def springtide(directory: Path, name: str = "ours") -> Iterator[Queue]:
    """A cluster of Springtide's for the length of the block."""
    out = directory / "out"
    out.mkdir(parents=True)
    layout = Layout(directory / "state")
    spec = describe(name, layout.state, out)
    daemon = _start(write(directory / "cluster.yaml", spec), directory / "daemon.out")
    try:
        wait_until(lambda: _answers(layout.socket), lambda: _last_words(directory), patience_s=30)
        operate(layout.socket, "deploy")
        conf = layout.conf / "slurm.conf"
        yield Queue(spec["cluster"], conf, slurmctld_log(layout), out)
    finally:
        with undisturbed():
            _end(daemon, layout.socket)
            if layout.state.exists():
                remove(compose(parse(json.dumps(spec), name)).parts)


def _start(file: Path, output: Path) -> "subprocess.Popen[bytes]":
    with output.open("wb") as stream:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "springtide.cli.main", "daemon", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )


def _answers(path: Path) -> bool:
    try:
        ask(path, "GET", "/plan")
    except OSError:
        return False
    return True


def _last_words(directory: Path) -> str:
    return f"the daemon did not start: {(directory / 'daemon.out').read_text()}"


def _end(daemon: "subprocess.Popen[bytes]", path: Path) -> None:
    """A destroyed cluster's daemon ends by itself; one that does not is stopped."""
    with suppress(GaveUp, OSError, subprocess.TimeoutExpired):
        if path.is_socket():
            operate(path, "destroy")
            daemon.wait(STOP_S)
    daemon.terminate()
    daemon.wait()


def operate(path: Path, kind: str) -> None:
    """Have an operation done."""
    answer = ask(path, "POST", "/operations", {"operation": kind})
    for operation in answer["operations"]:
        _follow(path, operation["id"])


def _follow(path: Path, id: int) -> None:
    found: dict[str, Any] = {}

    def ended() -> bool:
        found.update(ask(path, "GET", f"/operations/{id}"))
        return found["ended_at"] is not None

    wait_until(ended, lambda: f"operation {id} did not end", look_s=0.1)
    if found["state"] != "done":
        raise GaveUp(f"{found['kind']} {found['state']}: {found['reason']} {found['fallen']}")


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("tide", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(path: Path, method: str, target: str, body: Any = None) -> dict[str, Any]:
    with closing(_Connection(path)) as connection:
        connection.request(method, target, json.dumps(body) if body else None)
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
    if response.status >= http.client.BAD_REQUEST:
        raise GaveUp(f"{method} {target}: {answer}")
    return answer
