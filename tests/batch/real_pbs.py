"""A real Torque or OpenPBS for the tests that all batch systems share: its nodes are containers.

`PBS_EXEC` points to where it is installed (with `bin` and `sbin`). Its server runs on this machine
and is for tests: root is a manager there, and queues, nodes and jobs are made and deleted. Names of
nodes go into /etc/hosts, in a part of their own, and leave it again. `PBS_USER` submits jobs
(`nobody`, if it is not set). The server's name must have an address other than 127.*.

It was written by what is known of these servers (docs/batch), on a machine that has neither.
"""

import asyncio
import os
import pwd
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

from springtide.batch.openpbs import OpenPbsQueue
from springtide.batch.openpbs_commands import Commands as OpenPbsCommands
from springtide.batch.running import Output
from springtide.batch.torque import TorqueQueue
from springtide.batch.torque_commands import Commands as TorqueCommands
from springtide.configure.queue_node import part_of
from springtide.node import entry as entries
from springtide.ports import Entry, Instance, Launch, Member, Queue
from springtide.providers.containers import Containers, addresses
from springtide.served import hosts_block
from tests.batch.world import Ask, Gap, World, until
from tests.providers.world import instances

VARIABLE = "PBS_EXEC"
CLUSTER = f"pbs-{os.getpid()}"
NAMES = ("n1", "n2", "n3", f"node-{'with-a-long-name-' * 2}4")
PREMISES = "house1"
CORES, MEMORY = 2, 1024
PROPERTIES = {"cloud": "cloud", "house": "house"}
"""Of the nodes of queues."""
SETUP: Mapping[str, Sequence[str]] = {
    "torque": (
        *(f"create queue {queue} queue_type=execution" for queue in PROPERTIES),
        *(
            f"set queue {queue} {key} = {value}"
            for queue, word in PROPERTIES.items()
            for key, value in (
                ("resources_default.neednodes", f"1:{word}"),
                ("enabled", "true"),
                ("started", "true"),
            )
        ),
        "set server scheduling = true",
        "set server node_check_rate = 20",
        f"create node {PREMISES} np={CORES},properties=house",
    ),
    "openpbs": (
        "create resource Qlist type=string_array,flag=h",
        "create resource big type=boolean,flag=h",
        *(f"create queue {q} queue_type=execution,enabled=true,started=true" for q in PROPERTIES),
        *(f"set queue {q} default_chunk.Qlist={word}" for q, word in PROPERTIES.items()),
        f"create node {PREMISES} resources_available.Qlist=house",
    ),
}
COMMANDS = ("pbsnodes", "qalter", "qmgr", "qrerun", "qstat")
ANSWER_S = 100.0


class UnknownPbs(Exception):
    """What PBS_EXEC points to is neither of them."""


def detect(place: Path) -> str:
    """`torque` or `openpbs`, by the programs that only one of them has."""
    if not (place / "bin" / "qstat").exists():
        raise UnknownPbs(f"{VARIABLE}={place}: there is no bin/qstat")
    if any((place / where / "pbs_comm").exists() for where in ("sbin", "bin")):
        return "openpbs"
    if any((place / where / "trqauthd").exists() for where in ("sbin", "bin")):
        return "torque"
    raise UnknownPbs(f"{VARIABLE}={place}: neither Torque's trqauthd nor OpenPBS's pbs_comm")


@dataclass(frozen=True, slots=True)
class _Torque(TorqueCommands):
    gap: Gap = field(default_factory=Gap)

    def run(self, *command: str) -> Output:
        self.gap.passed()
        return TorqueCommands.run(self, *command)


@dataclass(frozen=True, slots=True)
class _OpenPbs(OpenPbsCommands):
    gap: Gap = field(default_factory=Gap)
    told: list[str] = field(default_factory=list)

    def run(self, *command: str) -> Output:
        self.gap.passed()
        self.told.append(command[0])
        return OpenPbsCommands.run(self, *command)


@dataclass
class RealPbs:
    """The server, and machines with fixed addresses."""

    kind: str
    place: Path
    scratch: Path
    containers: Containers
    subnet: IPv4Network
    user: str = field(default_factory=lambda: os.environ.get("PBS_USER", "nobody"))
    running: dict[str, Instance] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    gap: Gap = field(default_factory=Gap)

    @property
    def addresses(self) -> dict[str, str]:
        return addresses.planned(self.subnet, (PREMISES, *NAMES))

    # --- commands

    def attempt(self, *command: str, user: str = "", script: str = "") -> Output:
        program, *arguments = command
        return subprocess.run(
            [*(_as(user) if user else ()), str(self.place / "bin" / program), *arguments],
            input=script,
            text=True,
            capture_output=True,
            timeout=ANSWER_S,
            check=False,
            cwd="/tmp",
        )

    async def run(self, *command: str, user: str = "", script: str = "") -> str:
        done = await asyncio.to_thread(self.attempt, *command, user=user, script=script)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout.strip()

    def bin(self, user: str = "") -> Path:
        """A directory of its commands, as this user has them; tests may spoil it."""
        made = self.scratch / f"bin-{user or 'root'}"
        if not made.exists():
            made.mkdir()
            for name in COMMANDS:
                words = [*(_as(user) if user else ()), str(self.place / "bin" / name)]
                (made / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
                (made / name).chmod(0o755)
        return made

    def client(self, bin: Path) -> Queue:
        if self.kind == "torque":
            ran = lambda command: self.calls.append(command[0])  # noqa: E731
            return TorqueQueue(_Torque(bin, ran=ran, gap=self.gap), NAMES)
        commands = _OpenPbs(bin, gap=self.gap, told=self.calls)
        return OpenPbsQueue(commands, NAMES, frozenset({"big"}))

    # --- the server

    def stop(self) -> None:
        self.attempt("qterm", "-t", "quick")
        _until(lambda: self.attempt("qstat", "-B").returncode != 0)

    def start(self) -> None:
        subprocess.run([str(self.place / "sbin" / "pbs_server")], check=True, timeout=ANSWER_S)
        _until(lambda: self.attempt("qstat", "-B").returncode == 0)

    # --- machines

    async def boot(self, name: str, entry: Entry) -> None:
        script = _names(self.addresses, entry) + entries.render_prepare(part_of(entry))
        script += entries.render_run(entry.command, entry.ready)
        launch = Launch(CLUSTER, name, 1, "general", "host", "default", user_data=script)
        (made,) = instances(await self.containers.create([launch]))
        assert made.address == self.addresses[name]
        self.running[name] = made

    async def cut(self, name: str) -> None:
        await self.containers.delete([self.running.pop(name)])

    async def submit(self, ask: Ask) -> str:
        options = ["-q", ask.queue, "-N", ask.name[:15], *self._wanted(ask)]
        options += ["-h"] if ask.held else []
        options += ["-W", f"depend=afterany:{ask.after}"] if ask.after else []
        return await self.run("qsub", *options, user=self.user, script="sleep 1000\n")

    def _wanted(self, ask: Ask) -> list[str]:
        last = str(ask.tasks - 1)
        memory = sum(chunk.count * chunk.memory for chunk in ask.chunks)
        if self.kind == "torque":
            word = PROPERTIES[ask.queue]
            nodes = [
                ":".join((str(c.count), f"ppn={c.cores}", *sorted(c.features), word))
                for c in ask.chunks
            ]
            listed = [f"nodes={'+'.join(nodes)}", *([f"mem={memory}mb"] if memory else [])]
            return ["-l", ",".join(listed), *(["-t", f"0-{last}"] if ask.tasks > 1 else [])]
        parts = [
            ":".join(
                (
                    *(str(c.count), f"ncpus={c.cores}"),
                    *([f"mem={c.memory}mb"] if c.memory else []),
                    *(f"{feature}=True" for feature in sorted(c.features)),
                )
            )
            for c in ask.chunks
        ]
        spread = any(chunk.spread and chunk.count > 1 for chunk in ask.chunks)
        options = ["-l", f"select={'+'.join(parts)}"]
        options += ["-l", "place=scatter"] if spread else []
        return [*options, *(["-J", f"0-{last}"] if ask.tasks > 1 else [])]

    async def reset(self, world: World) -> None:
        """No jobs, and no nodes of ours."""
        reading = await world.queue.read()
        ids = [one.id for one in reading.jobs]
        force = ["-p"] if self.kind == "torque" else ["-W", "force"]
        await asyncio.gather(*(asyncio.to_thread(self.attempt, "qdel", *force, id) for id in ids))
        await until(world, lambda seen: not seen.jobs)
        await world.queue.dismantle(NAMES)
        for name in [name for name in self.running if name != PREMISES]:
            await self.cut(name)

    @contextmanager
    def spoil(self, text: str) -> Iterator[None]:
        said = self.scratch / "said"
        said.write_text(text)
        whole = {path: path.read_text() for path in self.bin().iterdir()}
        for path in whole:
            path.write_text(f"#!/bin/sh\nexec cat {said}\n")
        try:
            yield
        finally:
            for path, script in whole.items():
                path.write_text(script)

    def world(self) -> World:
        queue, torque = self.client(self.bin()), self.kind == "torque"
        reason = ("-N", "by hand") if torque else ("-C", "by hand")
        shown = ("qstat", "-f") if torque else ("qstat", "-f", "-F", "json")
        return World(
            queue=queue,
            members=[
                Member(name, self.addresses[name], CORES, MEMORY, ("big",), ("cloud",))
                for name in NAMES
            ],
            submit=self.submit,
            end=lambda id: self.run("qdel", id),
            node_boots=lambda name: self.boot(name, queue.entry(name)),
            node_dies=self.cut,
            server_down=lambda: asyncio.to_thread(self.stop),
            server_up=lambda: asyncio.to_thread(self.start),
            drain_by_hand=lambda name: self.run("pbsnodes", *reason, "-o", name),
            drain_silently=lambda name: self.run("pbsnodes", "-o", name),
            told=lambda id: self.run(*shown, id),
            premises=PREMISES,
            elsewhere="house",
            feature="big",
            prepares=torque,
            spoil=self.spoil,
            powerless=lambda: self.client(self.bin(self.user)),
            commandless=lambda: self.client(self.scratch / "nowhere"),
            commands=lambda: len(self.calls),
            gap=self.gap,
            silence_s=None if torque else 100,
        )


def _as(user: str) -> list[str]:
    known = pwd.getpwnam(user)
    return ["setpriv", f"--reuid={user}", f"--regid={known.pw_gid}", "--clear-groups"]


def _names(known: Mapping[str, str], entry: Entry) -> str:
    """A node's hosts file; its server is where that has registered."""
    servers = {name: socket.gethostbyname(entry.registered or name) for name in entry.servers}
    lines = [f"{at} {name}" for name, at in {"localhost": "127.0.0.1", **known, **servers}.items()]
    return f"printf '%s\\n' {shlex.join(lines)} >/etc/hosts\n"


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + ANSWER_S
    while not holds():
        assert time.monotonic() < end, f"pbs_server took longer than {ANSWER_S:.0f} s"
        time.sleep(0.5)


@asynccontextmanager
async def real_pbs(place: Path, subnet: IPv4Network) -> AsyncIterator[RealPbs]:
    """With its queues, and a node of the premises that is on."""
    kind, hosts = detect(place), Path("/etc/hosts")
    with tempfile.TemporaryDirectory(prefix="tide-", dir="/var/tmp") as scratch:
        Path(scratch).chmod(0o755)
        known = (PREMISES, *NAMES)
        containers = Containers(Path(scratch, "nodes"), {}, [], [], subnet, nodes=known)
        Path(scratch, "nodes").mkdir()
        await containers.prepare(CLUSTER)
        pbs = RealPbs(kind, place, Path(scratch), containers, subnet)
        hosts_block.change(hosts, CLUSTER, pbs.addresses)
        try:
            for command in SETUP[kind]:
                await asyncio.to_thread(pbs.attempt, "qmgr", "-c", command)  # it may be there
            await pbs.boot(PREMISES, pbs.client(pbs.bin()).entry(PREMISES))
            yield pbs
        finally:
            for command in (f"delete node {PREMISES}", *(f"delete queue {q}" for q in PROPERTIES)):
                await asyncio.to_thread(pbs.attempt, "qmgr", "-c", command)
            hosts_block.change(hosts, CLUSTER, {})
            await containers.remove(CLUSTER)
            await containers.close()
