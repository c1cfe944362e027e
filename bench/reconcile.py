"""What a look at the whole cluster costs: reading Slurm's answer, an idle pass, repairs.

Slurm's programs are on paper and the cloud is a list, so that all CPU time is ours: parsing,
comparing, deciding, and the record on disk.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.nodeset import cpu_s
from bench.paper import BUSY, DOWN, OFF, UP, PaperSlurm, address, render
from bench.table import Table, milliseconds, ratio
from springtide.api.log import configure_log
from springtide.batch.slurm_text import parse_nodes
from springtide.configure.fake import FakeConfigurator
from springtide.engine import Engine
from springtide.layout import Layout
from springtide.model import Node, NodeState
from springtide.ports import CloudError, Instance, InstanceState, Site
from springtide.providers.none import NoProvider
from springtide.reconcile import Reconciler
from springtide.record import Record
from springtide.spec import Cluster, parse
from springtide.steps import Parts
from springtide.store import open_sqlite

NODES, FEW = 10_000, 1000
TROUBLES = (
    (0.1, "dead instances that Slurm has noticed", DOWN),
    (0.08, "that it has not, with a job each", BUSY),
)
"""Parts of the nodes. The last ones are as many as the brake lets go at once."""
GRACE_S = 61.0
REPEATS = 7
PATIENCE_S = 120.0
SPEC = """
cluster: scale
state: {state}
batch: {{kind: slurm}}
provider: {{kind: fake}}
groups: {{g: {{nodes: "n[00001-{nodes:05}]"}}}}
timing: {{grace: 1m}}
"""


def run(quick: bool) -> Iterator[Table]:
    nodes, repeats = (FEW, 2) if quick else (NODES, REPEATS)
    yield _parsing(nodes, repeats)
    yield asyncio.run(_passes(nodes, repeats))


# --- reading -----------------------------------------------------------------------------------


def _parsing(nodes: int, repeats: int) -> Table:
    table = Table(
        f"reading what Slurm says of {nodes:,} nodes, CPU ms, least of {repeats}",
        ["", "ours", "str.split", "ratio", "MB"],
        notes=["str.split: of every line of the same text, which parses nothing"],
    )
    for what, text in _texts(nodes).items():
        ours = cpu_s(partial(parse_nodes, text), repeats)
        floor = cpu_s(partial(_split, text), repeats)
        size = f"{len(text) / 1e6:.1f}"
        table.rows.append([what, milliseconds(ours), milliseconds(floor), ratio(ours, floor), size])
    return table


def _split(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def _texts(nodes: int) -> dict[str, str]:
    names = [f"n{number:05}" for number in range(1, nodes + 1)]
    drained = dict.fromkeys(names, "disk is broken, see ticket 4711 (by alice)")
    return {
        "all off": render(dict.fromkeys(names, OFF)),
        "all up": render(dict.fromkeys(names, UP)),
        "all drained by a person": render(dict.fromkeys(names, f"{UP}+DRAIN"), drained),
    }


# --- passes ------------------------------------------------------------------------------------


class Listed(NoProvider):
    """A provider that is a list."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self.there = {one.id: one for one in instances}
        self.calls = 0

    async def prepare(self, cluster: str) -> Site:
        return Site("127.0.0.1")

    async def remove(self, cluster: str) -> None:
        self.there.clear()

    async def list(self, cluster: str) -> Sequence[Instance]:
        self.calls += 1
        return tuple(self.there.values())

    async def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        self.calls += 1
        for one in instances:
            self.there.pop(one.id, None)
        return {}


@dataclass(slots=True)
class World:
    """Half of the nodes are up; nothing is wrong."""

    parts: Parts
    slurm: PaperSlurm
    cloud: Listed
    engine: Engine
    reconciler: Reconciler
    now: float = 1e9

    async def cost(self) -> tuple[float, int]:
        """CPU of a pass with all that follows from it, and calls to Slurm."""
        ledger = self.slurm.ledger
        ledger.calls.clear()
        ledger.own_s, began = 0.0, time.process_time()
        async with asyncio.timeout(PATIENCE_S):
            while await self.reconciler.once():
                pass
            await self.engine.idle()
        return time.process_time() - began - ledger.own_s, ledger.calls.total()

    def spoil(self, count: int, state: str) -> None:
        """Instances die, and that is how Slurm sees it."""
        doomed = list(self.cloud.there.values())[:count]
        for one in doomed:
            self.cloud.there[one.id] = replace(one, state=InstanceState.BROKEN)
        self.slurm.ledger.show(dict.fromkeys((one.node for one in doomed), state))

    async def repaired(self, count: int, state: str) -> tuple[float, int]:
        """The cost of repairs, when that has lasted."""
        off = self.count(NodeState.OFF)
        self.spoil(count, state)
        await self.cost()
        self.now += GRACE_S
        self.cloud.calls = 0
        cost = await self.cost()
        assert self.count(NodeState.OFF) == off + count, "not all were repaired"
        return cost

    def count(self, state: NodeState) -> int:
        return sum(node.state is state for node in self.parts.record.nodes.values())


async def _passes(nodes: int, repeats: int) -> Table:
    table = Table(
        f"a pass over {nodes:,} nodes, half of them up",
        ["", "CPU s", "calls to Slurm", "to the cloud"],
        notes=["with repairs: the pass, and the operation to its end"],
    )
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as directory:
        configure_log(Layout(Path(directory)))
        async with world_in(Path(directory), nodes) as world:
            costs = [await world.cost() for _ in range(repeats)]
            table.rows.append(_row("nothing to do", min(costs), world.cloud.calls // repeats))
            for part, what, state in TROUBLES:
                count = round(part * nodes)
                cost = await world.repaired(count, state)
                table.rows.append(_row(f"{count:,} {what}", cost, world.cloud.calls))
    return table


def _row(what: str, cost: tuple[float, int], cloud: int) -> Sequence[str]:
    return [what, f"{cost[0]:.3f}", str(cost[1]), str(cloud)]


@asynccontextmanager
async def world_in(directory: Path, count: int = NODES) -> AsyncIterator[World]:
    spec = parse(SPEC.format(state=directory, nodes=count), "scale.yaml")
    nodes = [_node(spec, at, name) for at, name in enumerate(spec.managed)]
    cloud = Listed([_instance(node) for node in nodes if node.instance])
    up = {node.name: UP if node.instance else OFF for node in nodes}
    slurm = PaperSlurm(spec, up)
    store = open_sqlite(Layout(directory).record)
    world: World
    record = Record(store, lambda: world.now)
    parts = Parts(
        spec=spec,
        record=record,
        providers={"g": cloud},
        home=cloud,
        batch=slurm,
        configurator=FakeConfigurator(),
    )
    await store.define(nodes)
    await parts.load()
    await parts.keep_site(Site("127.0.0.1"))
    engine = Engine(parts)
    world = World(parts, slurm, cloud, engine, Reconciler(parts, engine))
    try:
        yield world
    finally:
        await store.close()


def _node(spec: Cluster, at: int, name: str) -> Node:
    off = Node(name, "g")
    if at >= len(spec.managed) // 2:
        return off
    group = spec.groups["g"]
    return replace(
        off,
        state=NodeState.READY,
        generation=1,
        instance=f"i-{at}",
        address=address(at),
        image=group.image,
        flavor=group.flavors[0],
    )


def _instance(node: Node) -> Instance:
    return Instance(
        id=str(node.instance),
        cluster="scale",
        node=node.name,
        generation=1,
        state=InstanceState.RUNNING,
        address=node.address,
        image=node.image,
        flavor=node.flavor,
    )
