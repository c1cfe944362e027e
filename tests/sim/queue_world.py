"""The world of simulations with a polled batch system: a FakeQueue in place of a FakeBatch."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

from springtide.batch.fake_queue import FakeQueue, QueueTiming, Work
from springtide.batch.marks import Book
from springtide.batch.polled import Polled
from springtide.daemon import Daemon
from springtide.model import NodeState
from springtide.ports import BatchSystem, Instance, InstanceState, Member, Queue
from springtide.providers.fake import Faults
from springtide.record import Record
from tests.sim.world import Line, World

SPEC = """
cluster: sim
batch: {{kind: torque, polling: {{every: {every}, patience: {patience}, leave: {leave}}}}}
provider: {{kind: fake}}
flavors: {{small: {{cpus: {cores}, memory: 4G}}}}
groups: {{general: {{nodes: "c[1-{nodes}]", min: {min}, flavors: [small]}}}}
partitions: {{cloud: {{groups: [general]}}}}
timing: {{idle: {idle}, start: 120s, stop: 120s, gather: 20ms, reconcile: 30s, grace: 60s}}
"""
PREMISES = Member("old1", "10.0.0.1", 8, 16384, (), ("premises",))


def text(
    nodes: int = 3,
    cores: int = 1,
    min: int = 0,
    every: str = "10s",
    patience: str = "0s",
    leave: str = "all",
    idle: str = "60s",
) -> str:
    """A cluster file."""
    return SPEC.format(
        nodes=nodes, cores=cores, min=min, every=every, patience=patience, leave=leave, idle=idle
    )


class QueueWorld(World):
    """A fake cloud and a batch system that is read, with the real daemon between them."""

    def __init__(
        self,
        tmp_path: Path,
        spec: str | None = None,
        faults: Faults | None = None,
        timing: QueueTiming | None = None,
    ) -> None:
        super().__init__(tmp_path, faults=faults, text=spec or text())
        queues = {name: self._queues(group) for name, group in self.spec.node_group.items()}
        flavors = {key: self.spec.flavor(one.flavors[0]) for key, one in self.spec.groups.items()}
        sizes = {name: flavors[group] for name, group in self.spec.node_group.items()}
        self.members = {
            name: Member(name, "", size.cpus, size.memory, (), queues[name])
            for name, size in sizes.items()
        }
        self.queue = FakeQueue(
            lambda address: self.cloud.node_at(address, self.spec.cluster),
            timing or QueueTiming(latency_s=0.05, join_s=1.0, turn_s=1.0),
            [PREMISES],
        )

    def _queues(self, group: str) -> tuple[str, ...]:
        return tuple(key for key, one in self.spec.partitions.items() if group in one.groups)

    def _runs(self, instance: Instance) -> None:
        if instance.node in self.spec.managed:
            self.queue.boot_seen(instance.node)

    def _stopped(self, instance: Instance) -> None:
        deleted = instance.state is InstanceState.DELETING and not self._by_hand
        if instance.node in self.spec.managed:
            self.queue.stop_seen(instance.node, deleted=deleted)

    def _system(self) -> object:
        return self.queue

    def _connected(self, line: Line, record: Record) -> BatchSystem:
        now = asyncio.get_running_loop().time
        return Polled(cast(Queue, line), self.members, Book(record.store), now)

    async def prepared(self) -> None:
        """As after a deploy: the batch system accepts jobs for nodes that are off."""
        await self.queue.prepare(self.members.values())

    @property
    def up(self) -> set[str]:
        """Nodes with an instance."""
        return {instance.node for instance in self.cloud.alive()}


async def until(done: Callable[[], bool], limit_s: float = 900.0) -> None:
    async with asyncio.timeout(limit_s):
        while not done():
            await asyncio.sleep(0.25)


def is_over(*works: Work) -> bool:
    return all(work.ended_at is not None for work in works)


def states(daemon: Daemon) -> dict[str, NodeState]:
    return {name: node.state for name, node in daemon.parts.record.nodes.items()}
