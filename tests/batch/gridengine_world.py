"""A real Grid Engine for the tests that all batch systems share: its nodes are containers."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

from springtide.batch.gridengine import GridEngineQueue
from springtide.batch.gridengine_cell import Cell
from springtide.batch.gridengine_commands import Commands
from springtide.batch.running import Output
from springtide.configure.queue_node import part_of
from springtide.node import entry as entries
from springtide.ports import Entry, Instance, Launch, Member
from springtide.providers.containers import Containers, Mount, addresses
from tests.batch.world import Ask, Gap, World, until
from tests.gridengine import conf
from tests.gridengine.bed import STRANGER, GridEngine, gridengine
from tests.providers.world import instances

CLUSTER = f"sge-{os.getpid()}"
CORES = 2
NAMES = ("n1", "n2", "n3", f"node-{'with-a-long-name-' * 2}4")
FULL = "n9"
"""A node that Grid Engine calls by its full name."""
DOMAIN = "example.org"
RESERVED = "nobody"
"""Who has the addresses of nodes that are off."""
SILENCE_S = 100.0


@dataclass(frozen=True, slots=True)
class Counted(Commands):
    """Remembers which commands it ran."""

    ran: list[str] = field(default_factory=list)
    gap: Gap = field(default_factory=Gap)

    def run(self, *command: str) -> Output:
        self.gap.passed()
        self.ran.append(command[0])
        return Commands.run(self, *command)


@dataclass
class Fleet:
    """Machines with fixed addresses: what a name has led to is remembered."""

    containers: Containers
    directory: Path
    addresses: dict[str, str]
    running: dict[str, Instance] = field(default_factory=dict)
    whole: bool = True
    """Nothing was killed: qmaster is slow to believe those who come back."""

    def reserve(self) -> None:
        for address in self.addresses.values():
            addresses.take(self.directory, address, RESERVED)

    async def boot(self, name: str, entry: Entry) -> None:
        """It gets the lowest address that is free: its own."""
        addresses.give_up(self.directory, self.addresses[name], RESERVED)
        script = entries.render_prepare(part_of(entry))
        script += entries.render_run(entry.command, entry.ready)
        launch = Launch(CLUSTER, name, 1, "general", "host", "default", user_data=script)
        (made,) = instances(await self.containers.create([launch]))
        assert made.address == self.addresses[name]
        self.running[name] = made

    async def cut(self, name: str) -> None:
        await self.containers.delete([self.running.pop(name)])
        self.reserve()


@asynccontextmanager
async def fleet(bed: GridEngine, subnet: IPv4Network) -> AsyncIterator[Fleet]:
    """Machines of the premises and ours, none of which runs."""
    shared = Mount(bed.shared, bed.shared, read_only=False)
    with tempfile.TemporaryDirectory(prefix="tide-", dir="/var/tmp") as state:
        containers = Containers(Path(state), {}, [shared], [], subnet)
        await containers.prepare(CLUSTER)
        machines = Fleet(containers, Path(state), _addresses(subnet))
        machines.reserve()
        try:
            yield machines
        finally:
            await containers.remove(CLUSTER)
            await containers.close()


def places(subnet: IPv4Network) -> dict[str, str]:
    """Addresses of machines, by the names that Grid Engine is to know."""
    return {_known_as(name): address for name, address in _addresses(subnet).items()}


def _addresses(subnet: IPv4Network) -> dict[str, str]:
    known = (conf.PREMISES, *NAMES, FULL)
    return {name: str(subnet[at]) for at, name in enumerate(known, start=2)}


def _known_as(name: str) -> str:
    return f"{name}.{DOMAIN} {name}" if name == FULL else name


async def reset(world: World, bed: GridEngine, machines: Fleet) -> None:
    """No jobs, and no nodes of ours: as if nothing had ever been prepared."""
    await asyncio.to_thread(bed.attempt, "qdel", "-f", "-u", "*")
    await until(world, lambda seen: not seen.jobs)
    await world.queue.dismantle(NAMES)
    for name in [name for name in machines.running if name != conf.PREMISES]:
        await machines.cut(name)
    await until(world, lambda seen: list(seen.nodes) == [conf.PREMISES])


class Shared:
    """A Grid Engine with a machine of the premises, for as many tests as leave it whole."""

    def __init__(self, subnet: IPv4Network) -> None:
        self._subnet = subnet
        self._stack = ExitStack()
        self._found: tuple[GridEngine, Fleet] | None = None

    def get(self) -> tuple[GridEngine, Fleet]:
        if self._found and not self._found[1].whole:
            self.close()
        if self._found is None:
            self._found = self._open()
        return self._found

    def _open(self) -> tuple[GridEngine, Fleet]:
        with ExitStack() as stack:
            bed = stack.enter_context(gridengine(placeholder=False, names=places(self._subnet)))
            runner = stack.enter_context(asyncio.Runner())
            inner = AsyncExitStack()
            machines = runner.run(inner.enter_async_context(fleet(bed, self._subnet)))
            stack.callback(lambda: runner.run(inner.aclose()))
            runner.run(machines.boot(conf.PREMISES, client(bed).entry(conf.PREMISES)))
            self._stack = stack.pop_all()
        return bed, machines

    def close(self) -> None:
        self._found = None
        self._stack.close()


def client(
    bed: GridEngine, bin: Path | None = None, names: Sequence[str] = NAMES
) -> GridEngineQueue:
    commands = Counted(bin or bed.bin, bed.root, conf.CELL)
    return GridEngineQueue(Cell(commands, conf.CLUSTER, conf.PLACEHOLDER, names), [conf.QUEUE])


def options(ask: Ask) -> list[str]:
    """Of qsub."""
    (chunk,) = ask.chunks
    words = ["-q", ask.queue, "-N", ask.name]
    if chunk.count > 1:
        words += ["-pe", f"by{chunk.cores}", str(chunk.count * chunk.cores)]
    elif chunk.cores > 1:
        words += ["-pe", "smp", str(chunk.cores)]
    words += ["-l", f"mem_free={chunk.memory}M"] if chunk.memory else []
    words += [word for feature in chunk.features for word in ("-l", f"{feature}=true")]
    words += ["-t", f"1-{ask.tasks}"] if ask.tasks > 1 else []
    words += ["-h"] if ask.held else []
    return words + (["-hold_jid", ask.after] if ask.after else [])


@contextmanager
def spoiled(bed: GridEngine, text: str) -> Iterator[None]:
    """All commands say this, and exit with 0."""
    said = bed.root / "said"
    said.write_text(text)
    whole = {path: path.read_text() for path in bed.bin.iterdir()}
    for path in whole:
        path.write_text(f"#!/bin/sh\nexec cat {said}\n")
    try:
        yield
    finally:
        for path, script in whole.items():
            path.write_text(script)


def make_world(bed: GridEngine, machines: Fleet) -> World:
    queue = client(bed)
    ran = queue._commands

    async def dies(name: str) -> None:
        machines.whole = False
        await machines.cut(name)

    async def server_down() -> None:
        machines.whole = False
        await asyncio.to_thread(bed.kill)

    async def run(*command: str) -> str:
        return await asyncio.to_thread(bed.run, *command)

    async def submit(ask: Ask) -> str:
        return await asyncio.to_thread(bed.submit, "sleep 1000", *options(ask))

    async def told(id: str) -> str:
        lines = (await run("qstat", "-j", id)).splitlines()
        return "\n".join(line for line in lines if line.startswith("context"))

    assert isinstance(ran, Counted)
    return World(
        queue=queue,
        members=[
            Member(name, machines.addresses[name], CORES, 1024, (conf.FEATURE,), (conf.QUEUE,))
            for name in NAMES
        ],
        submit=submit,
        end=lambda id: run("qdel", id.partition(".")[0]),
        node_boots=lambda name: machines.boot(name, queue.entry(name)),
        node_dies=dies,
        server_down=server_down,
        server_up=lambda: asyncio.to_thread(bed.start),
        drain_by_hand=lambda name: run("qmod", "-d", f"{conf.QUEUE}@{name}"),
        drain_silently=lambda name: run("qmod", "-d", f"*@{name}"),
        told=told,
        premises=conf.PREMISES,
        elsewhere=conf.ON_PREMISES,
        both_queues=True,
        feature=conf.FEATURE,
        keeps_reasons=False,
        spoil=lambda text: spoiled(bed, text),
        powerless=lambda: client(bed, bed.bin_of(STRANGER)),
        commandless=lambda: client(bed, bed.root / "nowhere"),
        commands=lambda: len(ran.ran),
        gap=ran.gap,
        silence_s=SILENCE_S,
    )
