"""A World of the stand-in for Torque, with a node of the premises that is up."""

import asyncio
import io
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from threading import Lock
from unittest.mock import patch

from springtide.batch.running import Output
from springtide.batch.torque import TorqueQueue
from springtide.batch.torque_commands import Commands
from springtide.ports import Chunk, Member, Queue
from tests.batch.torque_standin import PROGRAMS, install, is_own
from tests.batch.torque_standin.programs import main
from tests.batch.torque_standin.server import create, opened
from tests.batch.world import Ask, Gap, World

MEMBERS = [
    Member(name, f"10.0.0.{number}", 4, 4096, ("big",), ("cloud",))
    for number, name in enumerate(("n1", "n2", "n3", f"node-{'with-a-long-name-' * 3}4"), start=1)
]
PREMISES = "house1"
PROPERTIES = {"batch": "house", "cloud": "cloud"}
"""Of the nodes of queues."""
EPOCH = 1.7e9
SPOILT = f"#!{sys.executable} -I\nimport sys\nsys.stdout.write({{text!r}})\n"


_STREAMS = Lock()


@dataclass(frozen=True, slots=True)
class Here(Commands):
    """Programs of the stand-in are called in this process, in the time of the test's event loop:
    starting each anew takes minutes in all. Those that a test has replaced are run as they are."""

    torque: "Torque | None" = None

    def run(self, *command: str) -> Output:
        if self.torque and self.bin and is_own(self.bin / command[0]):
            self.ran(command)
            return self.torque.call(self.bin, *command)
        return super(Here, self).run(*command)


class Torque:
    """The server's directory, and programs of its admin and of a user. Its clock is that of the
    event loop it is made in."""

    def __init__(self, place: Path, **times: float) -> None:
        self._time: Callable[[], float] = asyncio.get_running_loop().time
        self._ticked_at, self._now = self._time(), EPOCH
        self.state = place / "state"
        create(self.state, **{"delete_s": 0, **times})
        self.bin = install(place / "bin", self.state)
        self.user_bin = install(place / "user", self.state, "tester")
        self.calls: list[Sequence[str]] = []
        self.gap = Gap()
        self.queue = self.client(self.bin)

    def client(
        self,
        bin: Path,
        timeout_s: float = 30.0,
        settle_s: float = 10,
        before: Callable[[Sequence[str]], object] = lambda _: None,
    ) -> TorqueQueue:
        """Something may happen before each of its commands."""

        def ran(command: Sequence[str]) -> None:
            self.gap.passed()
            self.calls.append(command)
            before(command)

        commands = Here(bin, timeout_s=timeout_s, ran=ran, torque=self)
        return TorqueQueue(commands, [member.name for member in MEMBERS], settle_s=settle_s)

    def call(self, bin: Path, *command: str) -> Output:
        user = "tester" if bin == self.user_bin else "root"
        out, err = io.StringIO(), io.StringIO()
        with (
            _STREAMS,
            redirect_stdout(out),
            redirect_stderr(err),
            patch("sys.stdin", io.StringIO()),
        ):
            self.tick()
            code = main(command[0], list(command[1:]), str(self.state), user)
        return CompletedProcess(command, code, out.getvalue(), err.getvalue())

    def tick(self) -> None:
        """The server's clock goes on as the loop's does; between two commands it stands still.

        A virtual clock begins with the test, after its fixtures.
        """
        at = self._time()
        self._now += max(at - self._ticked_at, 0)
        self._ticked_at = at
        with opened(self.state) as server:
            server.state["frozen"] = self._now

    def later(self, seconds: float) -> None:
        """So much time passes for the server."""
        self._now += seconds

    async def run(self, *command: str, bin: Path | None = None) -> str:
        done = self.call(bin or self.bin, *command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def build(self) -> None:
        """Two queues, each with nodes of its own; those of the premises have one that is up."""
        for queue, word in PROPERTIES.items():
            needed = f"resources_default.neednodes = 1:{word}"
            await self.run("qmgr", "-c", f"set queue {queue} {needed}")
        await self.run("qmgr", "-c", f"create node {PREMISES} np=4,properties=house")
        await self.boots(PREMISES)
        self.later(1)
        assert "free" in await self.run("pbsnodes", "-l", "all"), f"{PREMISES} is not heard from"

    def resolve(self, **hosts: str) -> None:
        """Names have these addresses, and others none."""
        with opened(self.state) as server:
            server.state["hosts"] = {PREMISES: None, **hosts}

    async def boots(self, name: str) -> None:
        (self.state / "moms" / name).touch()

    async def dies(self, name: str) -> None:
        (self.state / "moms" / name).unlink()

    async def submit(self, ask: Ask) -> str:
        """As the submit filter has it: whoever asks for nodes asks for those of the queue."""
        word = PROPERTIES.get(ask.queue, "cloud")
        options = ["-q", ask.queue, "-N", ask.name[:15], "-l", _resources(ask.chunks, word)]
        options += ["-t", f"0-{ask.tasks - 1}"] if ask.tasks > 1 else []
        options += ["-h"] if ask.held else []
        options += ["-W", f"depend=afterok:{ask.after}"] if ask.after else []
        return (await self.run("qsub", *options, bin=self.user_bin)).strip()

    async def end(self, id: str) -> None:
        await self.run("qdel", id)

    def schedule(self) -> None:
        """The scheduler has its turn now."""
        with opened(self.state) as server:
            server.schedule()

    def freeze(self, *, scheduling: bool) -> None:
        with opened(self.state) as server:
            server.times["turn_s"] = 0.5 if scheduling else 1e9

    async def stop(self) -> None:
        with opened(self.state) as server:
            server.stop()

    async def start(self) -> None:
        with opened(self.state) as server:
            server.start()

    async def told(self, id: str) -> str:
        with opened(self.state) as server:
            return str(server.jobs[id]["comment"])

    @contextmanager
    def spoil(self, text: str) -> Iterator[None]:
        programs = [self.bin / name for name in PROGRAMS]
        kept = {program: program.read_text() for program in programs}
        try:
            for program in programs:
                program.write_text(SPOILT.format(text=text))
            yield
        finally:
            for program, was in kept.items():
                program.write_text(was)
                program.chmod(stat.S_IRWXU)

    def commandless(self) -> Queue:
        return self.client(self.state)

    def world(self) -> World:
        return World(
            queue=self.queue,
            members=MEMBERS,
            submit=self.submit,
            end=self.end,
            node_boots=self.boots,
            node_dies=self.dies,
            server_down=self.stop,
            server_up=self.start,
            drain_by_hand=lambda name: self.run("pbsnodes", "-o", "-N", "by hand", name),
            drain_silently=lambda name: self.run("pbsnodes", "-o", name),
            told=self.told,
            premises=PREMISES,
            elsewhere="batch",
            feature="big",
            spoil=self.spoil,
            powerless=lambda: self.client(self.user_bin),
            commandless=self.commandless,
            commands=lambda: len(self.calls),
            gap=self.gap,
            silence_s=20,
        )


def _resources(chunks: Sequence[Chunk], word: str) -> str:
    parts = [":".join((str(c.count), f"ppn={c.cores}", *sorted(c.features), word)) for c in chunks]
    memory = sum(chunk.count * chunk.memory for chunk in chunks)
    return ",".join([f"nodes={'+'.join(parts)}", *([f"mem={memory}mb"] if memory else [])])
