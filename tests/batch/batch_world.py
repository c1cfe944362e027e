"""A batch system as the engine has it, with nodes that boot and people who submit jobs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from springtide.batch.marks import Book
from springtide.batch.polled import Polled
from springtide.ports import BatchNode, BatchSystem, Job, Power, Site
from tests.batch.world import LIMIT_S, Ask, World, cloud

SITE = Site("127.0.0.1")


@dataclass(frozen=True, slots=True)
class BatchWorld:
    """The batch system, whose nodes are off and which has no jobs, and those who act on it."""

    batch: BatchSystem
    addresses: Mapping[str, str]
    """Of nodes that are for this test alone: two or more. No others take its jobs."""
    submit: Callable[[], Awaitable[str]]
    """A job of one node, which runs until it is ended. Answers its id."""
    node_boots: Callable[[str], Awaitable[object]]
    """The machine of a node starts; it reports to the batch system by and by."""
    node_dies: Callable[[str], Awaitable[object]]
    server_down: Callable[[], Awaitable[object]]
    server_up: Callable[[], Awaitable[object]]
    drain_by_hand: Callable[[str], Awaitable[object]]
    """An admin drains a node with the batch system's own command, and says `by hand`."""
    told: Callable[[str], Awaitable[str]]
    """What the owner of a job can read of what was told."""
    keeps_reasons: bool = True
    """Whether the batch system itself keeps the reason of a drain."""
    site: Site = SITE
    """Where its control host is."""
    begun: str = ""
    """A flag that nodes have when it has begun to have them come, if that takes it a while."""

    @property
    def names(self) -> list[str]:
        return list(self.addresses)


@dataclass(slots=True)
class Facts:
    """Where marks are kept."""

    kept: dict[str, str] = field(default_factory=dict)

    async def get(self, key: str) -> str | None:
        return self.kept.get(key)

    async def put(self, key: str, value: str) -> None:
        self.kept[key] = value


def polled(world: World) -> BatchWorld:
    """A batch system that is read, as `Polled` shows it."""
    members = {member.name: member for member in world.members}
    return BatchWorld(
        batch=Polled(world.queue, members, Book(Facts()), lambda: _now()),
        addresses={name: member.address for name, member in members.items()},
        submit=lambda: world.submit(Ask(cloud(world))),
        node_boots=world.node_boots,
        node_dies=world.node_dies,
        server_down=world.server_down,
        server_up=world.server_up,
        drain_by_hand=world.drain_by_hand,
        told=world.told or _nothing,
        keeps_reasons=world.keeps_reasons,
    )


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _nothing(id: str) -> str:
    return ""


# --- words -----------------------------------------------------------------------------------


async def node(world: BatchWorld, name: str) -> BatchNode:
    return (await world.batch.nodes([name]))[name]


async def job(world: BatchWorld, id: str) -> Job:
    found = [one for one in await world.batch.jobs() if one.id == id]
    assert len(found) == 1, f"{len(found)} jobs have the id {id}"
    return found[0]


async def until(world: BatchWorld, name: str, holds: Callable[[BatchNode], bool]) -> BatchNode:
    """The node, once it is so."""
    loop = asyncio.get_running_loop()
    end = loop.time() + LIMIT_S
    while not holds(found := await node(world, name)):
        assert loop.time() < end, f"still {found} after {LIMIT_S:.0f} s"
        await asyncio.sleep(0.1)
    return found


async def asked(world: BatchWorld, *names: str) -> None:
    """These nodes, which are off or on their way there, are wanted and on their way up."""
    for name in names:
        await until(world, name, lambda node: node.power is Power.DOWN)
    await world.batch.power_up(names)
    wanted = {world.begun} - {""}
    for name in names:
        await until(world, name, lambda n: n.power is Power.GOING_UP and wanted <= n.flags)


async def up(world: BatchWorld, count: int = 1) -> list[str]:
    """So many nodes in service, as operations bring them there."""
    await world.batch.reload(world.site)
    names = world.names[:count]
    await asked(world, *names)
    await world.batch.set_addresses({name: world.addresses[name] for name in names})
    for name in names:
        await world.node_boots(name)
    for name in names:
        await until(world, name, lambda node: node.registered)
    return names


async def running(world: BatchWorld) -> tuple[str, str]:
    """A job that runs, and its node."""
    id = await world.submit()
    return id, await started(world, id)


async def started(world: BatchWorld, id: str) -> str:
    loop = asyncio.get_running_loop()
    end = loop.time() + LIMIT_S
    while (found := await job(world, id)).state != "RUNNING":
        assert loop.time() < end, f"still {found} after {LIMIT_S:.0f} s"
        await asyncio.sleep(0.1)
    return found.nodes
