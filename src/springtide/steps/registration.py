"""Waiting until the batch system has heard from the nodes: that, and nothing less, is ready."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from math import inf

from springtide import decide
from springtide.batch.polled import Polled
from springtide.model import DRAINS, PLANS, Kind, Node, NodeState, Step
from springtide.ports import OURS, CloudError, Power, Unavailable
from springtide.steps import unready
from springtide.steps.boot_phases import keep_phases
from springtide.steps.roll_call import Seen
from springtide.steps.work import Fallen, Work
from springtide.story import voice_of

LET_GO = "the batch system powers it down"
"""How reasons begin of nodes that fell out because it did not wait for them."""
OPEN_S = 10.0
"""Jobs that a stop has kept waiting wait so long for the first nodes to register."""
DEATH_WATCH_S = 2.0
"""Between two looks at whether instances of joining nodes still live."""


async def wait_registered(work: Work) -> Fallen:
    """Joining nodes become ready as they register; the batch system then learns what they are."""
    fallen = await _wait(work)
    await _let_jobs_start(work)
    if Step.UNDRAIN not in PLANS[work.operation.kind]:
        await tell_instances(work)
    return fallen


async def _let_jobs_start(work: Work) -> None:
    """Open the queues that a stop has closed, if this is the start after it.

    Not before nodes have registered: Slurm takes a node for rebooted that gets a job and registers
    in one second, if it is somebody else's, and starts the job again only after two minutes. What
    cannot be opened now, the reconciler opens.
    """
    if work.operation.kind is Kind.DEPLOY:
        with suppress(Unavailable):
            await work.parts.batch.reopen()


async def tell_instances(work: Work) -> None:
    """When they serve, for no job waits for it; what fails only keeps people from seeing it."""
    spec, ready = work.parts.spec, work.record.of(work.names, NodeState.READY)
    known = {
        node.name: (node.instance, flavor.type or node.flavor or "")
        for node in ready
        if node.instance and (flavor := spec.flavors.get(node.flavor or ""))
    }
    if not known:
        return
    try:
        await work.parts.batch.set_instances(known)
    except Unavailable as error:
        told = dict.fromkeys(known, str(error))
        await work.record.note("instance not told", nodes=told, operation=work.operation.id)


async def _wait(work: Work) -> Fallen:
    """Joining nodes become ready as they register; the dead, unwanted and late fall out.

    All but the late at once, as do those that gave up: their jobs need not wait for the others.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + work.parts.spec.timing.start
    look_at = loop.time() + DEATH_WATCH_S
    open_at = loop.time() + OPEN_S
    fallen = Fallen()
    while joining := _joining(work, fallen):
        seen = await work.parts.roll_call.next(node.name for node in joining)
        await unready.notice(work.parts, seen.values())
        shut = await _welcome(work, joining, seen)
        lost = decide.unwanted(joining, seen)
        lost |= decide.gave_up(_joining(work, fallen | lost), work.parts.gave_up)
        if loop.time() > look_at:
            lost |= await _dead(work, _joining(work, fallen | lost))
            look_at = loop.time() + DEATH_WATCH_S
        await work.fell(lost)
        fallen |= lost
        if loop.time() > open_at:
            await _let_jobs_start(work)
            open_at = inf
        if loop.time() > end:
            late = dict.fromkeys((n.name for n in _joining(work, fallen)), _late(work)) | shut
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


async def _welcome(work: Work, joining: list[Node], seen: Seen) -> Fallen:
    """Those that registered are ready, if the batch system looks for them where they are.

    Answers why some are not, though they registered: jobs cannot be let in.
    """
    registered = [node for node in joining if node.name in seen and seen[node.name].registered]
    astray = decide.astray(registered, seen)
    arrived = [node for node in registered if node.name not in astray]
    shut = Fallen()
    if work.operation.kind not in DRAINS:
        await _forget_drains(work, arrived, seen)
        shut = await _open_up(work, arrived)
        arrived = [node for node in arrived if node.name not in shut]
    await _restore_drains(work, arrived, seen)
    await _ready(work, arrived)
    await keep_phases(work, arrived)
    await _tell_again(work, astray, "it had registered from another address")
    await _tell_again(work, _forgotten(work, joining, seen), "the batch system had forgotten it")
    return shut


def _forgotten(work: Work, joining: list[Node], seen: Seen) -> dict[str, str]:
    """Nodes that a batch system which is watched does not have any more, or after a restart of
    ours not yet: they would join in vain."""
    if not isinstance(work.parts.batch, Polled):
        return {}
    there = [node for node in joining if node.address and node.name in seen]
    lost = (n for n in there if seen[n.name].address is None)
    return {n.name: n.address for n in lost if n.address and seen[n.name].power is Power.GOING_UP}


async def _open_up(work: Work, nodes: list[Node]) -> Fallen:
    """A node that is still closed when it is called ready stays so: nobody comes back to it."""
    names = [node.name for node in nodes]
    try:
        await unready.open_up(work.parts, names, work.parts.spec.timing.lock)
    except Unavailable as error:
        why = f"it is set up, but jobs cannot be let in: {error}"
        return dict.fromkeys(await unready.closed(work.parts, names), why)
    return {}


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
    with suppress(Unavailable):
        if left:
            await work.parts.batch.undrain(left)


def _joining(work: Work, fallen: Fallen) -> list[Node]:
    found = work.record.of(work.names, NodeState.JOINING)
    return [node for node in found if node.name not in fallen]


async def _ready(work: Work, nodes: list[Node]) -> None:
    moves = [node.to(NodeState.READY) for node in nodes]
    await work.record.move(moves, "node registered", work.operation.id)


async def _tell_again(work: Work, addresses: Mapping[str, str], why: str) -> None:
    """Slurm takes a node's address from where it registers; behind a gateway that is wrong."""
    if addresses:
        with suppress(Unavailable):
            await work.parts.batch.set_addresses(addresses)
            told = dict.fromkeys(addresses, why)
            await work.record.note("address told", nodes=told, operation=work.operation.id)


def _late(work: Work) -> str:
    spec = work.parts.spec
    why = voice_of(spec).say("its slurmd does not start, or does not reach slurmctld")
    return f"it did not register within {spec.timing.start:.0f} s (timing.start): {why}"


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
