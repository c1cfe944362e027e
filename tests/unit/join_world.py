"""A cluster that nodes may join: a real record and real keys, and a clock that tests set."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from springtide.batch.fake import FakeBatch
from springtide.configure import identity
from springtide.configure.fake import FakeConfigurator
from springtide.configure.membership import Membership
from springtide.configure.welcome import Control
from springtide.daemon import Daemon
from springtide.joining import Asked, Joining, Machine
from springtide.layout import Layout
from springtide.model import Event, Node, NodeState
from springtide.ports import Site
from springtide.providers.fake import FakeCloud, FakeProvider
from springtide.record import Record
from springtide.spec import parse
from springtide.steps import Parts
from springtide.store import open_sqlite

TEXT = """
cluster: blue
state: STATE
batch: {kind: fake}
provider: {kind: command, create: [/bin/true], delete: [/bin/true], list: [/bin/true]}
flavors: {small: {cpus: 2, memory: 1000M}}
groups:
  general: {nodes: "b[1-4]", flavors: [small]}
  bare: {nodes: "x1", flavors: [small], without: [join]}
naming: {kind: hosts}
join: {port: PORT, listen: 127.0.0.1}
timing: {start: 600s}
"""
VERSION = "22.05.8"
PEER = "127.0.0.1"
MACHINE = Machine("x86_64", 2, 1000, VERSION, "boot-1", 0.0, ())


class Slurmlike(FakeBatch):
    """That tells a version of Slurm."""

    async def version(self) -> str:
        return VERSION


class JoinWorld:
    """The daemon's parts, and what nodes say to them."""

    def __init__(self, root: Path, text: str = TEXT, port: int = 6821) -> None:
        self.now = 1_000_000.0
        state = root / "s"
        self.spec = parse(text.replace("STATE", str(state)).replace("PORT", str(port)), "blue.yaml")
        self.layout = Layout(state)
        state.mkdir()
        self.layout.munge_key.parent.mkdir()
        self.layout.munge_key.write_bytes(b"munge-secret" * 20)
        control = Control(("head",), "", 6817, self.layout.munge_socket)
        self.membership = Membership(self.spec, control, self.layout.munge_key)
        identity.ensure(self.layout.join, "blue")
        cloud = FakeCloud()
        provider = FakeProvider(cloud)
        self.parts = Parts(
            spec=self.spec,
            record=Record(open_sqlite(self.layout.record), lambda: self.now),
            providers=dict.fromkeys(self.spec.groups, provider),
            home=provider,
            batch=Slurmlike(self.spec.node_group, cloud.node_at),
            configurator=FakeConfigurator(),
            membership=self.membership,
        )
        self.daemon = Daemon(self.parts, self.layout)

    @property
    def joining(self) -> Joining:
        return self.daemon.joining

    async def deployed(self) -> None:
        await self.parts.load()
        await self.parts.keep_site(Site(PEER))

    async def requested(self, name: str = "b1") -> Node:
        """A node whose instance is about to be made."""
        node = self.parts.record.nodes[name]
        move = node.to(NodeState.REQUESTED, generation=node.generation + 1, image="host")
        return (await self.parts.record.move([move], "node requested"))[0]

    async def token(self, node: Node) -> str:
        return (await self.parts.tickets.issue(self.spec, [node]))[node.name]

    async def moved(self, name: str, *states: NodeState) -> Node:
        for state in states:
            node = self.parts.record.nodes[name]
            await self.parts.record.move([node.to(state)], f"made {state}")
        return self.parts.record.nodes[name]

    async def invited(self, name: str = "b1") -> Asked:
        """What a node says that boots as it should."""
        node = await self.requested(name)
        token = await self.token(node)
        machine = replace(MACHINE, clock=self.now)
        return Asked("blue", name, node.generation, token, machine)

    async def joined(self, name: str = "b1", peer: str = PEER) -> tuple[Asked, dict[str, Any]]:
        """What it says once it has joined, and what it was told."""
        asked = await self.invited(name)
        answer = await self.joining.join(asked, peer)
        return replace(asked, secret=answer["key"]), answer

    async def events(self, what: str) -> list[Event]:
        return [one for one in await self.parts.record.store.events() if one.what == what]


@asynccontextmanager
async def join_world(root: Path, text: str = TEXT, port: int = 6821) -> AsyncIterator[JoinWorld]:
    world = JoinWorld(root, text, port)
    await world.deployed()
    try:
        yield world
    finally:
        await world.parts.record.store.close()
