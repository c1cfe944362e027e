"""A daemon with its API on a socket, between a fake cloud and a fake batch system.

It runs in a thread with an event loop of its own and real time, so that the command can be
called in the test's thread, or as a process. The directory is short, for a socket's path is.
"""

import asyncio
import json
import os
import pty
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import IO, Any, TypeVar
from unittest.mock import patch

import structlog
import uvicorn
from structlog.typing import EventDict, WrappedLogger
from typer.testing import CliRunner

from springtide import hook
from springtide.api import app as api
from springtide.api import question
from springtide.api.app import create_app
from springtide.api.peers import PeerProtocol
from springtide.api.server import listen
from springtide.batch import slurm_rebuild
from springtide.batch.fake import FakeBatch, FakeJob, Timing
from springtide.cli.main import app
from springtide.configure.fake import FakeConfigurator
from springtide.daemon import Daemon
from springtide.layout import Layout
from springtide.model import Request
from springtide.nodeset import fold
from springtide.ports import InstanceState, Site
from springtide.providers.fake import FakeCloud, FakeProvider, Faults
from springtide.record import Record
from springtide.spec import parse
from springtide.steps import Parts
from springtide.store import open_sqlite
from tests.as_user import as_user

T = TypeVar("T")
LIMIT_S = 200.0
LONG_S = 3600.0
"""Longer than any test: what lasts so long goes on until the test ends it."""
BOOT_S = 0.05
TIDE = [sys.executable, "-m", "springtide.cli.main"]

SPEC = """
cluster: sim
batch: {kind: fake}
provider: {kind: fake}
images: {new: {path: /}, hard: {build: {base: new, group: general}}}
groups:
  general: {nodes: "c[1-4]"}  # the cheap ones
  bare: {nodes: "metal[1-2]", provider: {kind: none}}
timing: {start: 10m, stop: 10m, gather: 5ms}
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


class World:
    """The daemon in its thread, and what it talks to."""

    def __init__(self, home: Path, text: str) -> None:
        self.file = home / "sim.yaml"
        self.file.write_text(text)
        self.spec = parse(text, str(self.file))
        self.layout = Layout(home / "state")
        self.layout.state.mkdir()
        self.layout.stored_spec.write_text(text)
        self.faults = Faults(boot_s=BOOT_S, delete_s=0.05)
        self.timing = Timing(join_s=0.05, suspend_timeout_s=5, requeue_s=LONG_S)
        self._up = threading.Event()
        self._requests = 0
        self._hooks: set[asyncio.Task[Sequence[str]]] = set()
        self._prologs: set[asyncio.Task[None]] = set()
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
            _await_reader(process.pid)
            keyboard.write(answer)
            said += _rest(keyboard)
            return process.wait(LIMIT_S), said.decode()

    def as_user(self, user: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """The command as somebody who is not root."""
        command = [*TIDE, *arguments, "--state", str(self.layout.state)]
        return subprocess.run(
            as_user(user, *command),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    @contextmanager
    def begun(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """The command as a process of its own, which is over afterwards."""
        with subprocess.Popen(
            [*TIDE, *arguments, "--state", str(self.layout.state)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise

    def run_until(self, said: str, then: Callable[[], object], *arguments: str) -> Result:
        """A command that waits for what happens once it has said this."""
        with self.begun(*arguments) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            err = heard(process.stderr, said)
            then()
            err += process.stderr.read()
            out = process.stdout.read()
        return Result(process.returncode, out, err)

    def run_past_job(self, said: str, *arguments: str) -> Result:
        """A command that waits for the job on c1, which ends when c1 takes no other."""

        def end() -> None:
            node = self.batch.node("c1")
            wait_until(lambda: node.drained or node.leaving)
            self.finish("1")

        return self.run_until(said, end, *arguments)

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Something in the daemon's own thread."""
        return asyncio.run_coroutine_threadsafe(make(), self.loop).result(LIMIT_S)

    def submit(self, size: int, seconds: float) -> None:
        """A job."""

        async def submit() -> None:
            self.batch.submit(size, seconds)

        self.call(submit)

    def finish(self, job: str) -> None:
        """A job that runs ends."""

        async def finish() -> None:
            self.batch.finish(job)

        self.call(finish)

    def cancel(self, job: str) -> None:
        """Somebody cancels a job."""

        async def cancel() -> None:
            self.batch.cancel(job)

        self.call(cancel)

    def boot(self) -> None:
        """Instances that were to boot for long run now, and those to come soon."""

        async def boot() -> None:
            self.faults.boot_s = BOOT_S
            self.cloud.boot()

        self.call(boot)

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
        self.batch.on_prolog.append(self._prolog)
        provider = FakeProvider(self.cloud)
        parts = Parts(
            spec=self.spec,
            record=Record(open_sqlite(self.layout.record), time.time),
            providers=dict.fromkeys(self.spec.groups, provider),
            home=provider,
            batch=self.batch,
            configurator=FakeConfigurator(),
            site=Site("127.64.0.1"),
            file=str(self.file),
        )
        self.daemon = Daemon(parts, self.layout)

    def _prolog(self, job: FakeJob) -> None:
        """slurmctld runs the hook itself for a rebuild job, and puts it back if that fails."""
        partition = slurm_rebuild.partition_of(self.spec)[job.nodes[0]]
        settings = {"socket": str(self.layout.socket), "wait_s": str(LIMIT_S)}
        settings |= {"heads": job.nodes[0], "rebuilds": partition}
        environ = {
            "SLURM_JOB_ID": job.id, "SLURM_JOB_NAME": f"rebuild-{job.only}", "SLURM_JOB_UID": "0",
            "SLURM_JOB_PARTITION": partition, "SLURM_JOB_NODELIST": fold(job.nodes),
        }  # fmt: skip

        async def run() -> None:
            self.batch.prolog_ended(job, await asyncio.to_thread(hook.prolog, settings, environ))

        task = asyncio.get_running_loop().create_task(run())
        self._prologs.add(task)
        task.add_done_callback(self._prologs.discard)

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


def heard(lines: IO[str], words: str) -> str:
    """What a process says up to the line with these words."""
    said = ""
    while words not in said:
        line = lines.readline()
        assert line, said
        said += line
    return said


def _until(screen: FileIO, words: bytes) -> bytes:
    """What is printed up to the question."""
    said = b""
    while b"type " not in said or words not in said.split(b"type ", 1)[1]:
        assert select.select([screen], [], [], LIMIT_S)[0], said
        said += screen.read(4096)
    return said


def _await_reader(pid: int) -> None:
    """Python loses an interruption that comes after its last look and before it waits for input."""
    end = time.monotonic() + LIMIT_S
    while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "S":
        assert time.monotonic() < end, "it never waits for an answer"
        time.sleep(0.01)


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
        with _silent(), _patient():
            try:
                world.start()
                yield world
            finally:
                world.stop()


@contextmanager
def _silent() -> Iterator[None]:
    """Afterwards it is as it was before: around this world there may be another one."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.configure(processors=[_drop])
    try:
        yield
    finally:
        if before:
            structlog.configure(**before)
        else:
            structlog.reset_defaults()


@contextmanager
def _patient() -> Iterator[None]:
    """The batch system answers in memory; that this machine stands still is no silence of it."""
    with patch.object(api, "PATIENCE_S", LIMIT_S), patch.object(question, "PATIENCE_S", LIMIT_S):
        yield


def _drop(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """The daemon's log would mix with what the command prints: both are this process."""
    raise structlog.DropEvent


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)
