"""A daemon with its API on a socket, between a fake cloud and a fake batch system.

It runs in a thread with an event loop of its own and real time, so that the command can be
called in the test's thread, or as a process. The directory is short, for a socket's path is.
"""

import asyncio
import json
import os
import pty
import pwd
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

import structlog
import uvicorn
from structlog.typing import EventDict, WrappedLogger
from typer.testing import CliRunner

from springtide.api.app import create_app
from springtide.api.peers import PeerProtocol
from springtide.api.server import listen
from springtide.batch.fake import FakeBatch, Timing
from springtide.cli.main import app
from springtide.daemon import Daemon
from springtide.layout import Layout
from springtide.model import Node, Request
from springtide.ports import InstanceState, Site
from springtide.providers.fake import FakeCloud, FakeProvider, Faults
from springtide.record import Record
from springtide.spec import parse
from springtide.steps import Parts
from springtide.store import open_sqlite

T = TypeVar("T")
LIMIT_S = 20.0
TIDE = [sys.executable, "-m", "springtide.cli.main"]

SPEC = """
cluster: sim
batch: {kind: fake}
provider: {kind: fake}
images: {new: {path: /}}
groups:
  general: {nodes: "c[1-4]"}  # the cheap ones
  bare: {nodes: "metal[1-2]", provider: {kind: none}}
timing: {start: 20s, stop: 20s, gather: 5ms}
"""


class Result:
    """What a command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


def run(*arguments: str, input: str | None = None) -> Result:
    """The command in this process, without a terminal."""
    done = CliRunner().invoke(app, list(arguments), input=input)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return Result(done.exit_code, done.stdout, done.stderr)


class NoConfigurator:
    """Nodes of a fake cloud need nothing."""

    async def prepare(self, site: Site) -> None: ...

    async def publish(self, site: Site, addresses: Mapping[str, str]) -> None: ...

    async def install(self) -> None: ...

    def user_data(self, node: Node, site: Site) -> str:
        return ""


class World:
    """The daemon in its thread, and what it talks to."""

    def __init__(self, home: Path, text: str) -> None:
        self.file = home / "sim.yaml"
        self.file.write_text(text)
        self.spec = parse(text, str(self.file))
        self.layout = Layout(home / "state")
        self.layout.state.mkdir()
        self.layout.stored_spec.write_text(text)
        self.faults = Faults(boot_s=0.05, delete_s=0.05)
        self.timing = Timing(join_s=0.05, suspend_timeout_s=5)
        self._up = threading.Event()
        self._requests = 0
        self._hooks: set[asyncio.Task[Sequence[str]]] = set()
        self._thread = threading.Thread(target=asyncio.run, args=(self._live(),))

    def run(self, *arguments: str, input: str | None = None) -> Result:
        """`tide` with this cluster chosen."""
        return run("--state", str(self.layout.state), *arguments, input=input)

    def rows(self) -> dict[str, Any]:
        """What `tide nodes` tells of each node."""
        answer = json.loads(self.run("nodes", "--json").out)
        return {row["name"]: row for row in answer["nodes"]}

    def states(self, *names: str) -> list[str]:
        rows = self.rows()
        return [rows[name]["state"] for name in names]

    def operations(self) -> list[Any]:
        """Newest first."""
        found: list[Any] = json.loads(self.run("operations", "--json").out)["operations"]
        return found

    def answered(
        self, answer: bytes, *arguments: str, meanwhile: Callable[[], object] = int
    ) -> tuple[int, str]:
        """The command at a terminal, with this answer to its question."""
        ours, theirs = pty.openpty()
        with open(ours, "rb+", buffering=0) as keyboard:  # noqa: PTH123 - a descriptor
            process = subprocess.Popen(
                ["setsid", "--ctty", *TIDE, *arguments, "--state", str(self.layout.state)],
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
            )
            os.close(theirs)
            said = _until(keyboard, b" to ")
            meanwhile()
            keyboard.write(answer)
            said += _rest(keyboard)
            return process.wait(LIMIT_S), said.decode()

    def as_user(self, user: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """The command as somebody who is not root."""
        command = [*TIDE, *arguments, "--state", str(self.layout.state)]
        return subprocess.run(
            command,
            user=user,
            group=pwd.getpwnam(user).pw_gid,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Something in the daemon's own thread."""
        return asyncio.run_coroutine_threadsafe(make(), self.loop).result(LIMIT_S)

    def submit(self, size: int, seconds: float) -> None:
        """A job."""

        async def submit() -> None:
            self.batch.submit(size, seconds)

        self.call(submit)

    async def _live(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._build()
        self.server = uvicorn.Server(
            uvicorn.Config(
                create_app(self.daemon),
                http=PeerProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                timeout_graceful_shutdown=1,
            )
        )
        try:
            async with self.daemon.running():
                await self.daemon.people.deploy("test")
                await self.daemon.engine.idle()
                listener = listen(self.layout.socket)
                self.loop.call_soon(self._up.set)
                await self.server.serve(sockets=[listener])
        finally:
            await self.daemon.parts.record.store.close()
            self._up.set()

    def _build(self) -> None:
        self.cloud = FakeCloud(self.faults)
        self.batch = FakeBatch(self.spec.node_group, self.cloud.node_at, self.timing, now=time.time)
        self.cloud.on_running.append(lambda i: self.batch.boot_seen(i.node))
        self.cloud.on_stopped.append(
            lambda i: self.batch.stop_seen(i.node, deleted=i.state is InstanceState.DELETING)
        )
        self.batch.on_resume.append(lambda nodes, jobs: self._hook("resume", nodes))
        self.batch.on_suspend.append(lambda nodes: self._hook("suspend", nodes))
        self.batch.on_resume_fail.append(lambda nodes: self._hook("resume-fail", nodes))
        self.batch.on_reboot.append(lambda nodes: self._hook("reboot", nodes))
        provider = FakeProvider(self.cloud)
        parts = Parts(
            spec=self.spec,
            record=Record(open_sqlite(self.layout.record), time.time),
            providers=dict.fromkeys(self.spec.groups, provider),
            home=provider,
            batch=self.batch,
            configurator=NoConfigurator(),
            site=Site("127.64.0.1"),
            file=str(self.file),
        )
        self.daemon = Daemon(parts, self.layout)

    def _hook(self, program: str, nodes: Sequence[str]) -> None:
        self._requests += 1
        request = Request(f"r{self._requests}", program, tuple(nodes), time.time())
        task = asyncio.get_running_loop().create_task(self.daemon.receive(request))
        self._hooks.add(task)
        task.add_done_callback(self._hooks.discard)

    def start(self) -> None:
        self._thread.start()
        assert self._up.wait(LIMIT_S)
        wait_until(lambda: self.run("plan", "deploy").code == 0)

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()


def _until(screen: FileIO, words: bytes) -> bytes:
    """What is printed up to the question."""
    said = b""
    while b"type " not in said or words not in said.split(b"type ", 1)[1]:
        assert select.select([screen], [], [], LIMIT_S)[0], said
        said += screen.read(4096)
    return said


def _rest(screen: FileIO) -> bytes:
    """All that is printed until nobody is there any more."""
    said = b""
    while True:
        assert select.select([screen], [], [], LIMIT_S)[0], said
        try:
            part = screen.read(4096)
        except OSError:
            return said
        if not part:
            return said
        said += part


@contextmanager
def served(text: str = SPEC) -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="tide-") as home:
        Path(home).chmod(0o755)
        world = World(Path(home), text)
        structlog.configure(processors=[_drop])
        try:
            world.start()
            yield world
        finally:
            world.stop()
            structlog.reset_defaults()


def _drop(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """The daemon's log would mix with what the command prints: both are this process."""
    raise structlog.DropEvent


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)
