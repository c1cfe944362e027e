"""Telling the batch system where nodes are, and when they are gone."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from springtide import decide
from springtide.model import DRAINS, PLANS, Kind, Move, Node, NodeState, Step
from springtide.ports import ITSELF, OURS, Provider, Unavailable
from springtide.steps.instances import LOOK_S
from springtide.steps.site import written
from springtide.steps.work import Fallen, Work, insist, merged, together


async def refresh_inventory(work: Work) -> Fallen:
    """Addresses of nodes that came, with one folded call; release of nodes that left."""
    fallen = await _learn_addresses(work)
    await publish(work)
    if Step.WRITE_BATCH_CONFIG not in PLANS[work.operation.kind]:
        fallen |= await tell_addresses(work.on(n for n in work.names if n not in fallen))
    await release(work)
    return fallen


async def publish(work: Work) -> None:
    """Every node knows the names of all that are there, and of no others."""
    nodes = work.record.nodes.values()
    known = {node.name: node.address for node in nodes if node.address}
    if work.parts.site is not None:
        with written():
            await work.parts.configurator.publish(work.parts.site, known)


async def _learn_addresses(work: Work) -> Fallen:
    """Clouds that answer a launch without an address are asked until they know it."""
    unknown = [n.name for n in work.record.of(work.names, NodeState.BOOTING) if not n.address]
    asked = (_ask_addresses(work, provider, some) for provider, some in work.by_provider(unknown))
    return merged(await together(asked))


async def _ask_addresses(work: Work, provider: Provider, names: Sequence[str]) -> Fallen:
    loop = asyncio.get_running_loop()
    end = loop.time() + work.parts.spec.timing.start
    fallen = Fallen()
    while waiting := [n for n in _booting(work, names) if not n.address and n.name not in fallen]:
        instances = await insist(lambda: provider.list(work.cluster), work.parts.spec.timing.start)
        fallen |= decide.dead(waiting, instances)
        await _learn(work, waiting, {(i.node, i.generation): i.address for i in instances})
        if loop.time() > end:
            left = [n.name for n in _booting(work, names) if not n.address]
            return fallen | dict.fromkeys(left, "its instance got no address in time")
        await asyncio.sleep(LOOK_S)
    return fallen


def _booting(work: Work, names: Sequence[str]) -> list[Node]:
    return work.record.of(names, NodeState.BOOTING)


async def _learn(
    work: Work, waiting: Sequence[Node], addresses: dict[tuple[str, int], str | None]
) -> None:
    known = [(n, addresses.get((n.name, n.generation))) for n in waiting]
    moves = [Move(node, replace(node, address=address)) for node, address in known if address]
    await work.record.move(moves, "address known", work.operation.id)


async def tell_addresses(work: Work) -> Fallen:
    """Where booting nodes are, told to the batch system; they join from here on.

    A plan that writes the batch system's configuration does so after that step.
    """
    booting = work.record.of(work.names, NodeState.BOOTING)
    addresses = {node.name: node.address for node in booting if node.address}
    if not addresses:
        return {}
    try:
        await insist(
            lambda: work.parts.batch.set_addresses(addresses), work.parts.spec.timing.start
        )
    except Unavailable as error:
        return dict.fromkeys(addresses, f"its address could not be told: {error}")
    await work.record.move(
        [node.to(NodeState.JOINING) for node in booting], "address told", work.operation.id
    )
    return {}


async def release(work: Work) -> None:
    """Nodes that are off may be asked for again at once; a failure only costs that time."""
    gone = [node.name for node in work.record.of(work.names, NodeState.OFF)]
    if not gone or work.parts.stopped:
        return
    try:
        if work.operation.kind in DRAINS:
            await work.parts.batch.undrain(gone)  # one that powered down already kept our drain
        await _hold_back(work, gone)
        await work.parts.batch.release(gone)
    except Unavailable as error:
        await work.record.note("release failed", operation=work.operation.id, detail=str(error))


async def _hold_back(work: Work, names: Sequence[str]) -> None:
    """What could not be started now must not be asked for again and again until it can.

    The reconciler ends these drains. A person's drain that went with the power comes back.
    """
    if work.operation.kind is Kind.RESUME:
        held = work.parts.holding.held_back(work.parts.spec)
        why = {name: held[name] for name in names if name in held}
        seen = await work.parts.batch.nodes([name for name in names if name in why])
        free = [name for name, node in seen.items() if node.owner in (None, OURS, ITSELF)]
        for some in decide.alike(free, why):
            await work.parts.batch.drain(some, why[some[0]])
