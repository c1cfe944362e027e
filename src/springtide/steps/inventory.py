"""Telling the batch system where nodes are, and when they are gone."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from springtide import decide
from springtide.bounds import Scene, bounds
from springtide.calendar import limits
from springtide.model import DRAINS, NOT_TAKEN, PLANS, Kind, Move, Node, NodeState, Step
from springtide.ports import ITSELF, OURS, NotTaken, Provider, Site, Unavailable
from springtide.steps import unready
from springtide.steps.instances import LOOK_S
from springtide.steps.site import written
from springtide.steps.work import Fallen, Parts, Work, insist, merged, together

PATIENCE_S = 15.0
"""So long nodes that are taken wait for others that are not, which as a rule is a passing thing."""


async def refresh_inventory(work: Work) -> Fallen:
    """Addresses of nodes that came, with one folded call; release of nodes that left."""
    fallen = await _learn_addresses(work)
    with suppress(Unavailable):
        await unready.heed(work.parts, unready.served(work, work.names))
    await publish(work)
    if Step.WRITE_BATCH_CONFIG not in PLANS[work.operation.kind]:
        fallen |= await tell_addresses(work.on(n for n in work.names if n not in fallen))
    await release(work)
    return fallen


async def publish(work: Work) -> None:
    """Every node knows the names of all that are there or have a place, and of no others."""
    if work.parts.site is not None:
        with written():
            await _publish(work, work.parts.site)


def known_addresses(parts: Parts) -> dict[str, str]:
    """Where nodes are, by the record or else by the file."""
    nodes = parts.record.nodes.values()
    there = {node.name: node.address for node in nodes if node.address}
    return {**parts.spec.addresses, **there}


async def _publish(work: Work, site: Site) -> None:
    """A server of names or files that is away must not keep nodes from joining that need it not."""
    try:
        await work.parts.configurator.publish(site, known_addresses(work.parts))
    except Unavailable as error:
        what, operation = "names or files not served", work.operation.id
        await work.record.note(what, operation=operation, detail=str(error))


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
    patient_until = asyncio.get_running_loop().time() + PATIENCE_S
    tell = partial(_tell, work, addresses, [], patient_until)
    try:
        refused = await insist(tell, work.parts.spec.timing.start)
    except Unavailable as error:
        refused = _why(error, addresses)
    taken = [node for node in booting if node.name not in refused]
    moves = [node.to(NodeState.JOINING) for node in taken]
    await work.record.move(moves, "address told", work.operation.id)
    if work.parts.spec.polled:
        await publish(work)  # nodes may wait until the batch system expects them
    return {name: f"its address could not be told: {why}" for name, why in refused.items()}


async def _tell(
    work: Work, addresses: Mapping[str, str], said: list[str], patient_until: float
) -> Mapping[str, str]:
    """One try; why it failed is noted, if that was not said before.

    Answers the nodes that are not taken, once others have waited for them long enough.
    """
    try:
        await work.parts.batch.set_addresses(addresses)
    except Unavailable as error:
        why = _why(error, addresses)
        if str(error) not in said:
            said.append(str(error))
            await work.record.note(NOT_TAKEN, nodes=why, operation=work.operation.id)
        if len(why) < len(addresses) and asyncio.get_running_loop().time() >= patient_until:
            return why
        raise
    return {}


def _why(error: Unavailable, addresses: Mapping[str, str]) -> Mapping[str, str]:
    return error.why if isinstance(error, NotTaken) else dict.fromkeys(addresses, str(error))


async def release(work: Work) -> None:
    """Nodes that are off may be asked for again at once; a failure only costs that time."""
    gone = [node.name for node in work.record.of(work.names, NodeState.OFF)]
    if not gone or work.parts.stopped:
        return
    try:
        if work.operation.kind in DRAINS:
            await work.parts.batch.undrain(gone)  # one that powered down already kept our drain
        await unready.let_go(work.parts, gone)
        await _hold_back(work, gone)
        await work.parts.batch.release(gone)
    except Unavailable as error:
        await work.record.note("release failed", operation=work.operation.id, detail=str(error))


async def _hold_back(work: Work, names: Sequence[str]) -> None:
    """What could not be started now must not be asked for again and again until it can.

    Nor what the calendar does not allow: jobs that wait would have it started at once. The
    reconciler ends these drains. A person's drain that went with the power comes back.
    """
    held = await _too_many(work, names)
    if work.operation.kind is Kind.RESUME:
        held |= work.parts.holding.held_back(work.parts.spec)
    why = {name: held[name] for name in names if name in held}
    if not why:
        return
    seen = await work.parts.batch.nodes(why)
    free = [name for name, node in seen.items() if node.owner in (None, OURS, ITSELF)]
    for some in decide.alike(free, why):
        await work.parts.batch.drain(some, why[some[0]])


async def _too_many(work: Work, gone: Sequence[str]) -> dict[str, str]:
    """Nodes that have to stay off by the calendar now that these are off, and why."""
    parts, spec = work.parts, work.parts.spec
    if not spec.calendar.entries or spec.polled:
        return {}
    known, seen = limits(spec, parts.clock), await parts.batch.nodes()
    scene = Scene(spec, known, parts.record.nodes, seen, gone=gone)
    return dict(bounds(scene, parts.clock).held)
