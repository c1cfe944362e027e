"""The place a provider works on, and words for writing tests about it."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from springtide.ports import CloudError, Instance, InstanceState, Launch, Provider, Transient

LIMIT_S = 200.0
CALL_S = 300.0
"""For a call of a client of the tests: a loaded machine that serves a thousand takes its time."""
BLUE, GREEN = f"blue-{os.getpid()}", f"green-{os.getpid()}"
"""Names of our own, for runs side by side on one machine."""


@dataclass(frozen=True, slots=True)
class World:
    """The place the provider works on. It outlives every client of it."""

    open: Callable[[str], Provider]
    """A new client for the cluster of that name, as a daemon that starts makes one."""
    spoil: Callable[[Launch], Launch]
    """The launch, such that the provider rejects it."""
    says: Callable[[str, str], str]
    """User data that has a node, named first, say a word."""
    said: Callable[[str], str | None]
    """The last word of a node of BLUE."""
    kill: Callable[[Instance], object]
    """Have an instance die by itself, such that it is still listed."""
    image: str = "host"
    flavor: str = "default"
    other_image: str | None = None
    """An image that instances can be rebuilt from; None if there is but one."""
    changes_user_data: bool = True
    """Whether a reboot runs the new user data."""
    dates_boots: bool = True
    """Whether the provider tells when an instance booted last."""
    snapshots: bool = False
    """Whether it makes images of instances."""
    refuse: Callable[[type[CloudError]], object] | None = None
    """Have the cloud refuse the next launch, in its own way, for a reason of this class."""
    refusals: tuple[type[CloudError], ...] = ()
    """The reasons that it can be made to refuse launches for."""
    lose_reply: Callable[[], object] | None = None
    """Have the cloud do what it is asked next, and break the connection before it answers."""
    calls: Callable[[], int] | None = None
    """How many calls the cloud has had, of whatever kind."""
    several: int = 6
    """How many instances to make over and over; fewer where each takes its time."""
    many: int = 0
    """How many instances to launch when calls are counted."""
    batch: int = 1
    """How many instances the cloud makes with one call."""
    unreached: Callable[[], Provider] | None = None
    """A client of the cloud where nobody answers."""
    throttle: Callable[[], object] | None = None
    """Have the cloud throttle the next call, whatever it is."""


def launch(world: World, cluster: str, node: str, generation: int = 1) -> Launch:
    return Launch(cluster, node, generation, "general", world.image, world.flavor)


def saying(world: World, node: str, word: str) -> Launch:
    return replace(launch(world, BLUE, node), user_data=world.says(node, word))


async def prepared(world: World, cluster: str) -> Provider:
    provider = world.open(cluster)
    await provider.prepare(cluster)
    return provider


def instances(answers: Mapping[str, Instance | CloudError]) -> list[Instance]:
    """Those of the answers that are instances, by node."""
    made = [answer for answer in answers.values() if isinstance(answer, Instance)]
    return sorted(made, key=lambda one: one.node)


def key(one: Instance) -> tuple[str, str, int, str | None]:
    return one.id, one.node, one.generation, one.address


def born(one: Instance) -> tuple[str, str, int]:
    """What the answer to a launch tells: some clouds know the address only later."""
    return one.id, one.node, one.generation


async def until(
    provider: Provider, cluster: str, holds: Callable[[Sequence[Instance]], bool]
) -> Sequence[Instance]:
    """The list, once the condition holds for it.

    It rests for as long as the list took: most are made by processes of this machine.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + LIMIT_S
    while True:
        began_at = loop.time()
        if holds(found := await provider.list(cluster)):
            return found
        assert loop.time() < end, f"still {found} after {LIMIT_S:.0f} s"
        await asyncio.sleep(min(max(0.02, loop.time() - began_at), 0.5))


async def running(provider: Provider, cluster: str, count: int) -> Sequence[Instance]:
    """The list, once that many run and nothing else is there."""
    states = [InstanceState.RUNNING] * count
    return await until(provider, cluster, lambda found: [one.state for one in found] == states)


async def heard(world: World, word: str, nodes: Sequence[str]) -> None:
    """Returns when all these nodes of BLUE have said the word."""
    end = asyncio.get_running_loop().time() + LIMIT_S
    while silent := [node for node in nodes if world.said(node) != word]:
        assert asyncio.get_running_loop().time() < end, f"{silent} did not say {word}"
        await asyncio.sleep(0.02)


async def delete_until_gone(provider: Provider, cluster: str) -> None:
    end = asyncio.get_running_loop().time() + LIMIT_S
    while found := await provider.list(cluster):
        assert asyncio.get_running_loop().time() < end, f"still {found} after {LIMIT_S:.0f} s"
        await provider.delete(found)
        await asyncio.sleep(0.02)


async def remove_until_gone(provider: Provider, cluster: str) -> None:
    """As who removes a site does: clouds take their time over what is on it."""
    end = asyncio.get_running_loop().time() + LIMIT_S
    while True:
        try:
            return await provider.remove(cluster)
        except Transient:
            assert asyncio.get_running_loop().time() < end, f"still there after {LIMIT_S:.0f} s"
        await asyncio.sleep(0.02)


@contextmanager
def nobody() -> Iterator[str]:
    """An address of this machine where nobody listens, nor can begin to within the block."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


async def cancelled_after(pause_s: float, doing: Coroutine[Any, Any, object]) -> None:
    """Begin it and cancel it after a while, if it is not done by then."""
    task = asyncio.create_task(doing)
    await asyncio.wait([task], timeout=pause_s)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
