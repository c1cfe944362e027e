"""What the engine costs without a cloud: thousands of nodes, in few and in many requests.

The cloud and the batch system are fakes that answer at once, the record is on disk. What is
left is ours: it must grow with the nodes, not with the jobs that want them.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.table import Table
from springtide.api.log import configure_log
from springtide.batch.fake import FakeBatch, Timing
from springtide.configure.fake import FakeConfigurator
from springtide.daemon import Daemon
from springtide.layout import Layout
from springtide.model import Node, NodeState, Request
from springtide.providers.fake import FakeCloud, FakeProvider, Faults
from springtide.record import Record
from springtide.spec import parse
from springtide.steps import Parts
from springtide.store import open_sqlite

SHAPES = ((1, 1000), (1000, 1), (100, 10), (500, 2), (1, 5000), (1, 10_000), (1000, 10))
"""Requests x nodes each."""
FEW = ((1, 100), (100, 1), (10, 10))
PATIENCE_S = 120.0
SPEC = """
cluster: scale
batch: {{kind: fake}}
provider: {{kind: fake}}
groups: {{g: {{nodes: "n[1-{nodes}]"}}}}
"""


class JoblessBatch(FakeBatch):
    """Its scheduler would cost more than the engine, and has no jobs to schedule."""

    def _soon(self) -> None: ...


@dataclass(frozen=True, slots=True)
class World:
    """A cloud, a batch system, and the daemon between them."""

    cloud: FakeCloud
    batch: FakeBatch
    daemon: Daemon


@dataclass(frozen=True, slots=True)
class Cost:
    wall_s: float
    cpu_s: float
    cloud_calls: int
    batch_calls: int
    operations: int


def run(quick: bool) -> Iterator[Table]:
    """The log is written as ever, into a file that goes with the record."""
    shapes = FEW if quick else SHAPES
    yield _table({shape: asyncio.run(_cost(*shape)) for shape in shapes})


def _table(found: dict[tuple[int, int], Cost]) -> Table:
    table = Table(
        "the engine alone: a resume of so many nodes",
        ["requests x nodes", "wall s", "CPU s", "CPU ms/node", "cloud", "batch", "operations"],
        notes=["cloud, batch: calls to the provider and to the batch system"],
    )
    for (requests, size), cost in found.items():
        each = 1000 * cost.cpu_s / (requests * size)
        calls = (cost.cloud_calls, cost.batch_calls, cost.operations)
        times = (f"{cost.wall_s:.2f}", f"{cost.cpu_s:.2f}", f"{each:.2f}")
        table.rows.append([f"{requests} x {size}", *times, *map(str, calls)])
    return table


async def _cost(requests: int, size: int) -> Cost:
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as directory:
        configure_log(Layout(Path(directory)))
        async with _world(Path(directory), requests * size) as world:
            names = world.daemon.spec.managed
            await world.batch.power_up(names)
            calls = [names[at : at + size] for at in range(0, len(names), size)]
            return await _measured(world, calls)


async def _measured(world: World, calls: list[tuple[str, ...]]) -> Cost:
    daemon = world.daemon
    world.cloud.calls.clear()
    world.batch.calls.clear()
    wall, cpu = time.perf_counter(), time.process_time()
    async with asyncio.timeout(PATIENCE_S), _all_ready(daemon):
        await asyncio.gather(*(_call(daemon, at, names) for at, names in enumerate(calls)))
    await daemon.engine.idle()
    return Cost(
        time.perf_counter() - wall,
        time.process_time() - cpu,
        world.cloud.calls.total(),
        world.batch.calls.total(),
        len(await daemon.parts.record.store.operations(limit=100_000)),
    )


@asynccontextmanager
async def _all_ready(daemon: Daemon) -> AsyncIterator[None]:
    """What is asked for in the block has come true at its end."""
    missing, done = set(daemon.spec.managed), asyncio.Event()

    def changed(nodes: Sequence[Node]) -> None:
        missing.difference_update(n.name for n in nodes if n.state is NodeState.READY)
        if not missing:
            done.set()

    with daemon.parts.record.listening(changed):
        yield
        await done.wait()


async def _call(daemon: Daemon, at: int, names: tuple[str, ...]) -> None:
    await daemon.receive(Request(f"r{at:06}", "resume", names, time.time(), (str(at + 1),)))


@asynccontextmanager
async def _world(directory: Path, nodes: int) -> AsyncIterator[World]:
    spec = parse(SPEC.format(nodes=nodes), "scale")
    cloud = FakeCloud(Faults(boot_s=0))
    batch = JoblessBatch(spec.managed, cloud.node_at, Timing(join_s=0, idle_s=3600))
    cloud.on_running.append(lambda instance: batch.boot_seen(instance.node))
    layout, provider = Layout(directory), FakeProvider(cloud)
    parts = Parts(
        spec=spec,
        record=Record(open_sqlite(layout.record), time.time),
        providers={"g": provider},
        home=provider,
        batch=batch,
        configurator=FakeConfigurator(),
    )
    await parts.keep_site(await provider.prepare(spec.cluster))
    daemon = Daemon(parts, layout)
    try:
        async with daemon.running():
            yield World(cloud, batch, daemon)
    finally:
        await parts.record.store.close()
