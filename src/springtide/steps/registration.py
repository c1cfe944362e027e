"""Waiting until the batch system has heard from the nodes: that, and nothing less, is ready."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from springtide import decide
from springtide.model import DRAINS, Node, NodeState
from springtide.ports import OURS, CloudError, Power, Unavailable
from springtide.steps.roll_call import Seen
from springtide.steps.work import Fallen, Work

LET_GO = "the batch system powers it down"
"""How reasons begin of nodes that fell out because it did not wait for them."""
DEATH_WATCH_S = 2.0
"""Between two looks at whether instances of joining nodes still live."""


async def wait_registered(work: Work) -> Fallen:
    """Joining nodes become ready as they register; the dead, unwanted and late fall out.

    The first two at once: their jobs need not wait for the others.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + work.parts.spec.timing.start
    look_at = loop.time() + DEATH_WATCH_S
    fallen = Fallen()
    while joining := _joining(work, fallen):
        seen = await work.parts.roll_call.next(node.name for node in joining)
        await _welcome(work, joining, seen)
        lost = decide.unwanted(joining, seen)
        if loop.time() > look_at:
            lost |= await _dead(work, _joining(work, fallen | lost))
            look_at = loop.time() + DEATH_WATCH_S
        await work.fell(lost)
        fallen |= lost
        if loop.time() > end:
            late = dict.fromkeys((n.name for n in _joining(work, fallen)), _late(work))
            return late | {name: why for name, why in _let_go(work, seen).items() if name in late}
    return {}


def _let_go(work: Work, seen: Seen) -> Fallen:
    """Nodes that it was to have and waits for no more: jobs came and went, or it gave up.

    Not before their time is over: it may ask for them again, and they would be there.
    """
    if work.operation.asked_by != "batch":
        return {}  # those that it did not ask for are off to it until they register
    gone = [node.name for node in seen.values() if node.power is Power.DOWN]
    return dict.fromkeys(gone, f"{LET_GO}, or has done so")


async def _welcome(work: Work, joining: list[Node], seen: Seen) -> None:
    """Those that registered are ready, if the batch system looks for them where they are."""
    registered = [node for node in joining if node.name in seen and seen[node.name].registered]
    astray = decide.astray(registered, seen)
    arrived = [node for node in registered if node.name not in astray]
    if work.operation.kind not in DRAINS:
        await _forget_drains(work, arrived, seen)
    await _restore_drains(work, arrived, seen)
    await _ready(work, arrived)
    await _tell_again(work, astray)


async def _restore_drains(work: Work, nodes: list[Node], seen: Seen) -> None:
    """Whose drain it is, told again to a batch system that has kept nothing but the drain."""
    for node in nodes:
        known = work.parts.drains.pop(node.name, None)
        if known and seen[node.name].drained:
            with suppress(Unavailable):
                await work.parts.batch.drain([node.name], known[0], known[1])


async def _forget_drains(work: Work, nodes: list[Node], seen: Seen) -> None:
    """What an operation drained that lost the node: nobody else would undrain it."""
    left = [n.name for n in nodes if seen[n.name].drained and seen[n.name].owner == OURS]
    if left:
        with suppress(Unavailable):
            await work.parts.batch.undrain(left)


def _joining(work: Work, fallen: Fallen) -> list[Node]:
    found = work.record.of(work.names, NodeState.JOINING)
    return [node for node in found if node.name not in fallen]


async def _ready(work: Work, nodes: list[Node]) -> None:
    moves = [node.to(NodeState.READY) for node in nodes]
    await work.record.move(moves, "node registered", work.operation.id)


async def _tell_again(work: Work, addresses: Mapping[str, str]) -> None:
    """Slurm takes a node's address from where it registers; behind a gateway that is wrong."""
    if addresses:
        with suppress(Unavailable):
            await work.parts.batch.set_addresses(addresses)
            told = dict.fromkeys(addresses, "it had registered from another address")
            await work.record.note("address told", nodes=told, operation=work.operation.id)


def _late(work: Work) -> str:
    return (
        f"it did not register within {work.parts.spec.timing.start:.0f} s (timing.start): "
        "its slurmd does not start, or does not reach slurmctld"
    )


async def _dead(work: Work, joining: list[Node]) -> Fallen:
    """Nodes whose instance died; a list that fails tells nothing."""
    fallen = Fallen()
    for provider, names in work.by_provider(node.name for node in joining):
        try:
            instances = await work.parts.census.instances(provider)
        except CloudError:
            continue
        fallen |= decide.dead(work.record.of(names), instances)
    return fallen
