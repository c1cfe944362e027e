"""Making and removing instances: create, wait until they run, delete until gone."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf

from springtide import decide, failures, triage
from springtide.model import Kind, Move, Node, NodeState
from springtide.ports import (
    OURS,
    BatchNode,
    CloudError,
    InstanceState,
    Power,
    Provider,
    Unavailable,
)
from springtide.service import Fate
from springtide.steps import afresh, farewell, unready
from springtide.steps.adoption import adopt
from springtide.steps.launches import launch
from springtide.steps.whole_jobs import give_up_spares
from springtide.steps.work import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    Fallen,
    Work,
    insist,
    merged,
    outlast,
    together,
)

IMAGED = "an image is being made of it"
SPARED = "it is in service after all"
SLACK_S = 10.0
"""The batch system counts whole seconds, and not at once."""
STOP_S = 30.0
"""A stop waits no longer for nodes that somebody drained; a start then may have to."""
LOOK_S = 0.5
"""Between two looks at a provider whose instances are coming or going."""


async def create_instances(work: Work) -> Fallen:
    """An instance for each node: remains are removed, intent is recorded, then they are made."""
    await work.parts.renew()
    await _let_leave(work)
    fallen = _strangers(work) | await _clear_remains(work)
    if work.operation.kind is Kind.REBUILD:
        fallen |= await _reboot_others(work)
    await _request(work, await _called_for(work, fallen))
    requested = work.record.of(work.names, NodeState.REQUESTED)
    wanted = [node.name for node in requested if node.name not in fallen and not node.instance]
    fallen |= await unready.close(work, wanted)
    wanted = [name for name in wanted if name not in fallen]
    launched = (launch(work, provider, names) for provider, names in work.by_provider(wanted))
    fallen |= merged(await together(launched))
    return fallen | await give_up_spares(work, fallen)


async def _let_leave(work: Work) -> None:
    """The batch system does not hear a node that it is powering down: so it is not made yet.

    When it asks for nodes itself, it has done with that. At a deploy it may not be there.
    """
    by_hand = work.operation.asked_by != "batch"
    if not by_hand or work.operation.kind not in (Kind.RESUME, Kind.ENLARGE):
        return
    off = [node.name for node in work.record.of(work.names, NodeState.OFF)]
    await wait_powered_down(work, off)
    with suppress(Unavailable):
        await work.parts.batch.undrain(off)  # once they register, nobody knows whose drain it was


async def wait_powered_down(work: Work, names: Sequence[str]) -> None:
    """Until the batch system believes that nodes are gone; longer than it may take, for nobody."""
    loop = asyncio.get_running_loop()
    limit_s = work.parts.spec.timing.stop + SLACK_S
    end = loop.time() + (min(limit_s, STOP_S) if work.operation.kind is Kind.STOP else limit_s)
    with suppress(Unavailable):
        while names and loop.time() < end:
            seen = await work.parts.batch.nodes(names)
            _remember_drains(work, seen.values())
            if not any(node.power is Power.GOING_DOWN for node in seen.values()):
                return
            await asyncio.sleep(LOOK_S)


def _remember_drains(work: Work, nodes: Iterable[BatchNode]) -> None:
    """Whose they are: when a node joins that it did not ask for, Slurm forgets it."""
    work.parts.drains |= {
        node.name: (node.reason, node.owner)
        for node in nodes
        if node.drained and node.reason and node.owner not in (None, OURS)
    }


async def _reboot_others(work: Work) -> Fallen:
    """Those of a rebuild that kept their instance."""
    kept = [node.name for node in work.record.of(work.names, NodeState.DRAINING)]
    return await afresh.reboot(work, kept) if kept else await afresh.reboot_requested(work)


async def _called_for(work: Work, fallen: Fallen) -> list[str]:
    """Nodes that are to have an instance: not what the batch system let go amid a rebuild."""
    names = [name for name in work.names if name not in fallen]
    if work.operation.kind is not Kind.REBUILD:
        return names
    off = [node.name for node in work.record.of(names, NodeState.OFF)]
    up = await afresh.still_up(work, off)
    await afresh.expect(work, up)
    return up


def _strangers(work: Work) -> Fallen:
    """Nodes that left the cluster file after somebody had asked for them."""
    known = work.parts.spec.node_group
    return {name: "it is no longer in the cluster file" for name in work.names if name not in known}


async def _clear_remains(work: Work) -> Fallen:
    """Remove what a failed or former life of these nodes left behind."""
    gone = work.record.of(work.names, NodeState.FAILED, NodeState.DELETING)
    remains = {node.name for node in gone} | await adopt(work) | await _past(work)
    return await remove(work.on(remains), work.parts.spec.timing.stop) if remains else {}


async def _past(work: Work) -> set[str]:
    """Ready nodes whose instance died, or that the batch system asks for afresh.

    Only a resume asks it: before a deploy has run, it may not be there. A node that it hears
    from has jobs, and a list that shows it without an instance may be old.
    """
    ready = work.record.of(work.names, NodeState.READY)
    limit_s, past = work.parts.spec.timing.stop, set[str]()
    for provider, names in work.by_provider(node.name for node in ready):
        instances = await insist(partial(provider.list, work.cluster), limit_s)
        past |= set(decide.lost(work.record.of(names), instances))
    if ready and work.operation.kind is Kind.RESUME:
        asked = partial(work.parts.batch.nodes, [node.name for node in ready])
        seen = await insist(asked, limit_s)
        past -= {name for name, node in seen.items() if node.registered}
        past |= set(decide.outlived(ready, seen))
    return past


async def _request(work: Work, names: Iterable[str]) -> None:
    """Intent on disk: from here on the nodes belong to a generation of their own."""
    parts, rebuilt = work.parts, work.operation.kind is Kind.REBUILD
    moves = [
        node.to(
            NodeState.REQUESTED,
            generation=node.generation + 1,
            image=(node.image if rebuilt else None) or parts.wanted_image(node.group),
            rebuilds=node.rebuilds + rebuilt,
            reason="",
        )
        for node in work.record.of(names, NodeState.OFF)
    ]
    await work.record.move(moves, "node requested", work.operation.id)


async def wait_reachable(work: Work) -> Fallen:
    """Until the provider says that each instance runs and where."""
    waits = (_wait_running(work, provider, some) for provider, some in work.by_provider(work.names))
    return merged(await together(waits))


async def _wait_running(work: Work, provider: Provider, names: Sequence[str]) -> Fallen:
    loop = asyncio.get_running_loop()
    end = loop.time() + work.parts.spec.timing.start
    waiting = {node.name: node for node in work.record.of(names, NodeState.BOOTING)}
    fallen = Fallen()
    while waiting:
        instances = await insist(lambda: provider.list(work.cluster), work.parts.spec.timing.start)
        fallen |= decide.dead(waiting.values(), instances)
        up = [i for i in instances if i.state is InstanceState.RUNNING]
        running = {i.node for i in up if i.address or i.node in work.parts.spec.addresses}
        waiting = {n: node for n, node in waiting.items() if n not in running | fallen.keys()}
        if waiting and loop.time() > end:
            return fallen | dict.fromkeys(waiting, "its instance did not run in time")
        if waiting:
            await asyncio.sleep(LOOK_S)
    return fallen


async def delete_instances(work: Work) -> Fallen:
    """Delete until the provider lists them no more. Nodes that are in use are left alone.

    What nobody else comes back for is deleted however long it takes: it would run on, paid for.
    Of a rebuild of several it falls out, and its rescue goes on: the others are to come back.
    """
    kept = await _kept(work)
    fallen = {name: why for name, why in kept.items() if why}
    await work.fell(fallen)
    going = work.on(name for name in work.names if name not in kept)
    rebuilt = work.operation.kind is Kind.REBUILD and len(going.names) > 1
    patient = not rebuilt and work.operation.kind is not Kind.DESTROY
    return fallen | await remove(going, inf if patient else work.parts.spec.timing.stop)


async def _kept(work: Work) -> dict[str, str]:
    """Nodes whose instance stays; those that fall out by that, with the reason."""
    if work.operation.kind is Kind.REBUILD:
        return await _not_recreated(work)
    if work.operation.kind in (Kind.SHRINK, Kind.STOP):
        return await farewell.let_go(work)
    if work.operation.kind is not Kind.SUSPEND or work.operation.options.get("now"):
        return {}
    # A suspend that was overtaken (spooled, delayed) must not kill a node in use.
    there = [n.name for n in work.record.of(work.names) if n.state is not NodeState.OFF]
    seen = await _ask(work, there)
    await _prove(work, seen.values())
    return decide.still_wanted(there, seen) | _imaged(work, there)


def _imaged(work: Work, names: Iterable[str]) -> dict[str, str]:
    """The batch system powers idle nodes down, drained or not; the reconciler comes back to it."""
    return dict.fromkeys(work.parts.gallery.claimed.intersection(names), IMAGED)


async def _prove(work: Work, seen: Iterable[BatchNode]) -> None:
    """Nodes that served well until they had nothing to do, and no pass may have seen."""
    well = [node.name for node in seen if node.state != "DOWN" and not node.drained]
    ready = work.record.of(well, NodeState.READY)
    await work.parts.holding.proved(ready, work.parts.spec.timing.grace)


async def _not_recreated(work: Work) -> dict[str, str]:
    """A rebuild: those that are only rebooted, and those that it did not come to."""
    used = await _used_meanwhile(work)
    going = work.on(name for name in work.names if name not in used)
    fallen = used | await afresh.have_rebooted(going)
    ways = await afresh.ways(going)
    await _aim(going, ways)
    in_place = (Fate.REBOOT, Fate.REBUILD)
    return {name: "" for name, way in ways.items() if way.fate in in_place} | fallen


async def _used_meanwhile(work: Work) -> Fallen:
    """What the batch system itself reboots, it reboots under no job."""
    draining = [node.name for node in work.record.of(work.names, NodeState.DRAINING)]
    if work.operation.options.get("via", "direct") != "direct" or not draining:
        return {}
    return await farewell.used_again(work.on(draining))


async def _aim(work: Work, ways: Mapping[str, afresh.Way]) -> None:
    """Record which image a node is to have, for the steps to come."""
    nodes = [n for n in work.record.of(ways) if ways[n.name].fate is not Fate.GO]
    moves = [Move(node, replace(node, image=ways[node.name].image)) for node in nodes]
    begun = [
        move for move, node in zip(moves, nodes, strict=True) if _is_made_anew(ways[node.name])
    ]
    await work.record.move(begun, "rebuild begun", work.operation.id)
    kept = [move for move in moves if move not in begun and move.after != move.before]
    await work.record.move(kept, "image known", work.operation.id)


def _is_made_anew(way: afresh.Way) -> bool:
    return way.fate in (Fate.RECREATE, Fate.REBUILD)


async def remove(work: Work, limit_s: float) -> Fallen:
    """Delete all instances of the nodes, of any generation, and record the nodes as off.

    Each at once: one that cannot be deleted must not keep others from being started again.
    """
    going = [n for n in work.record.of(work.names) if n.state is not NodeState.DELETING]
    await work.record.move(
        [node.to(NodeState.DELETING) for node in going if node.state is not NodeState.OFF],
        "instance deleting",
        work.operation.id,
    )
    await _drain_again(work, await _look(work, work.names))
    by_provider = work.by_provider(work.names)
    deleted = (_delete(work.on(some), provider, limit_s) for provider, some in by_provider)
    return merged(await together(deleted))


async def _depart(work: Work, names: Iterable[str]) -> None:
    gone = work.record.of(names, NodeState.DELETING)
    await work.record.move(
        [node.to(NodeState.OFF, instance=None, address=None) for node in gone],
        "instance gone",
        work.operation.id,
    )


async def _adopt(work: Work, nodes: Sequence[Node]) -> None:
    """What serves is ready; an instance that the record does not know is the reconciler's."""
    moves = [node.to(NodeState.OFF, reason=SPARED) for node in nodes]
    off = await work.record.move(moves, "instance spared", work.operation.id)
    known = [node.to(NodeState.READY, reason="") for node in off if node.instance]
    await work.record.move(known, "record follows the world", work.operation.id)


async def _delete(work: Work, provider: Provider, limit_s: float) -> Fallen:
    """Once a deletion has taken too long it is said; with time left, it goes on."""
    loop = asyncio.get_running_loop()
    began, pause_s, said = loop.time(), FIRST_PAUSE_S, False
    left: dict[str, str] = dict.fromkeys(work.names, "")
    used = Fallen()
    while left := await _delete_some(work, provider, list(left), used):
        stuck = {name: f"its instance cannot be deleted: {why}" for name, why in left.items()}
        if loop.time() + pause_s > began + limit_s:
            return stuck | used
        if not said and loop.time() > began + work.parts.spec.timing.stop:
            await work.record.note("instance stuck", nodes=stuck, operation=work.operation.id)
            said = True
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return used


async def _delete_some(
    work: Work, provider: Provider, names: Sequence[str], used: Fallen
) -> dict[str, str]:
    """One try. What is gone, or serves and is added to `used`, is parted with at once."""
    spared = Fallen()
    left = await _delete_once(work, provider, names, spared)
    gone = [name for name in names if name not in left and name not in spared]
    await _depart(work, gone)
    await _adopt(work, work.record.of(spared, NodeState.DELETING))
    used |= spared
    await work.fell(spared)
    await work.part_with([*gone, *spared])
    return left


async def _used(work: Work, names: Sequence[str]) -> Fallen:
    """Nodes that serve after all: they registered late, or while nobody could delete them."""
    seen = await _look(work, names)
    await _drain_again(work, seen)
    serving = [n for n in seen.values() if n.power is Power.UP and n.registered]
    idle = [n.name for n in serving if not n.busy]
    unfit = {*await unready.closed(work.parts, idle), *_unconfigured(work, idle)}
    return {n.name: SPARED for n in serving if n.name not in unfit}


def _unconfigured(work: Work, names: Sequence[str]) -> list[str]:
    """Such nodes may have registered long ago; only a job that is there already may end."""
    return [n.name for n in work.record.of(names) if failures.is_unconfigured(n.reason)]


async def _drain_again(work: Work, seen: Mapping[str, BatchNode]) -> None:
    """Drains that went with the power, at once: until an instance is gone a job might come."""
    for node in filter(triage.has_lost_drain, seen.values()):
        again = partial(work.parts.batch.drain, [node.name], node.reason, str(node.owner))
        await outlast(work.parts, again, None)


async def _look(work: Work, names: Sequence[str]) -> Mapping[str, BatchNode]:
    """What the batch system says, unless all service is to end."""
    ends = work.operation.kind not in _SPARING or work.operation.options.get("now")
    if ends or work.unasked or work.parts.stopped:
        return {}
    return await _ask(work, names)


async def _ask(work: Work, names: Sequence[str]) -> Mapping[str, BatchNode]:
    nothing: Mapping[str, BatchNode] = {}
    asked = partial(work.parts.batch.nodes, names)
    return await outlast(work.parts, asked, nothing) if names else nothing


_SPARING = frozenset({Kind.RESUME, Kind.SUSPEND, Kind.ENLARGE, Kind.REPAIR})


async def _delete_once(
    work: Work, provider: Provider, names: Sequence[str], used: Fallen
) -> dict[str, str]:
    """Ask for deletion of what is listed; answers the nodes that still have an instance.

    Not of what serves, which is added to `used`.
    """
    try:
        listed = decide.instances_of(await provider.list(work.cluster), names)
        used |= await _used(work, [name for name, found in listed.items() if found])
        names = [name for name in names if name not in used]
        doomed = [i for name in names for i in listed[name]]
        refused = await provider.delete(doomed) if doomed else {}
        listed = decide.instances_of(await provider.list(work.cluster), names) if doomed else {}
    except CloudError as error:
        return dict.fromkeys(names, str(error))
    return {
        name: str(next((refused[i.id] for i in found if i.id in refused), "it is still listed"))
        for name, found in listed.items()
        if found
    }
