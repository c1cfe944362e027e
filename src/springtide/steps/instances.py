"""Making and removing instances: create, wait until they run, delete until gone."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from springtide import decide
from springtide.model import Kind, Node, NodeState
from springtide.ports import CloudError, Instance, InstanceState, Launch, Provider, Transient
from springtide.steps.work import FIRST_PAUSE_S, LONGEST_PAUSE_S, Fallen, Work, insist

LOOK_S = 0.5
"""Between two looks at a provider whose instances are coming or going."""


async def create_instances(work: Work) -> Fallen:
    """An instance for each node: remains are removed, intent is recorded, then they are made."""
    fallen = _strangers(work) | await _clear_remains(work)
    await _request(work, (name for name in work.names if name not in fallen))
    standing = (name for name in work.names if name not in fallen)
    wanted = [node.name for node in work.record.of(standing, NodeState.REQUESTED)]
    made = await asyncio.gather(
        *(_launch(work, provider, names) for provider, names in work.by_provider(wanted))
    )
    for one in made:
        fallen |= one
    return fallen


def _strangers(work: Work) -> Fallen:
    """Nodes that left the cluster file after somebody had asked for them."""
    known = work.parts.spec.node_group
    return {name: "it is no longer in the cluster file" for name in work.names if name not in known}


async def _clear_remains(work: Work) -> Fallen:
    """Remove what a failed or former life of these nodes left behind."""
    gone = work.record.of(work.names, NodeState.FAILED, NodeState.DELETING)
    remains = [node.name for node in gone] + await _outlived(work)
    return await remove(work.on(remains)) if remains else {}


async def _outlived(work: Work) -> list[str]:
    """Only a resume asks: before a deploy has run, the batch system may not."""
    ready = work.record.of(work.names, NodeState.READY)
    if not ready or work.operation.kind is not Kind.RESUME:
        return []
    names = [node.name for node in ready]
    seen = await insist(lambda: work.parts.batch.nodes(names), work.parts.spec.timing.stop)
    return decide.outlived(ready, seen)


async def _request(work: Work, names: Iterable[str]) -> None:
    """Intent on disk: from here on the nodes belong to a generation of their own."""
    groups = work.parts.spec.groups
    moves = [
        node.to(
            NodeState.REQUESTED,
            generation=node.generation + 1,
            image=groups[node.group].image,
            reason="",
        )
        for node in work.record.of(names, NodeState.OFF)
    ]
    await work.record.move(moves, "node requested", work.operation.id)


async def _launch(work: Work, provider: Provider, names: Sequence[str]) -> Fallen:
    """Launch until each node has an instance or no choice and no time is left."""
    loop = asyncio.get_running_loop()
    end, pause_s = loop.time() + work.parts.spec.timing.start, FIRST_PAUSE_S
    tried = dict.fromkeys(names, 0)
    pending, fallen = list(names), Fallen()
    while pending:
        launches = [_describe(work, work.record.nodes[name], tried[name]) for name in pending]
        results = await _create(provider, launches)
        sorted_out = decide.sort_launches(results, _choices_left(work, tried))
        await _made(work, sorted_out.made)
        fallen |= sorted_out.fallen
        for name in sorted_out.elsewhere:
            tried[name] += 1
        pending = [*sorted_out.elsewhere, *sorted_out.again]
        if sorted_out.again and loop.time() + pause_s > end:
            fallen |= {name: _gave_up(results[name]) for name in sorted_out.again}
            pending = list(sorted_out.elsewhere)
        elif sorted_out.again:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return fallen


async def _create(
    provider: Provider, launches: Sequence[Launch]
) -> dict[str, Instance | CloudError]:
    """A provider that fails as a whole fails each node."""
    try:
        results = await provider.create(launches)
    except CloudError as error:
        return {launch.node: error for launch in launches}
    silent = Transient("the provider said nothing about it")
    return {launch.node: results.get(launch.node, silent) for launch in launches}


def _gave_up(error: object) -> str:
    return f"{decide.explain(Transient())} until the time to start was over: {error}"


def _choices_left(work: Work, tried: dict[str, int]) -> dict[str, int]:
    groups = work.parts.spec.node_group
    return {
        name: len(decide.choices(work.parts.spec, groups[name])) - 1 - count
        for name, count in tried.items()
    }


def _describe(work: Work, node: Node, choice: int) -> Launch:
    flavor, zone = decide.choices(work.parts.spec, node.group)[choice]
    assert node.image is not None
    assert work.parts.site is not None
    return Launch(
        cluster=work.cluster,
        node=node.name,
        generation=node.generation,
        group=node.group,
        image=node.image,
        flavor=flavor,
        zone=zone,
        user_data=work.parts.configurator.user_data(node, work.parts.site),
    )


async def _made(work: Work, made: Mapping[str, Instance]) -> None:
    moves = [
        node.to(
            NodeState.BOOTING,
            instance=made[node.name].id,
            address=made[node.name].address,
            flavor=made[node.name].flavor,
            zone=made[node.name].zone,
            image=made[node.name].image,
        )
        for node in work.record.of(made, NodeState.REQUESTED)
    ]
    await work.record.move(moves, "instance created", work.operation.id)


async def wait_reachable(work: Work) -> Fallen:
    """Until the provider says that each instance runs and where."""
    found = await asyncio.gather(
        *(_wait_running(work, provider, names) for provider, names in work.by_provider(work.names))
    )
    return {name: why for fallen in found for name, why in fallen.items()}


async def _wait_running(work: Work, provider: Provider, names: Sequence[str]) -> Fallen:
    loop = asyncio.get_running_loop()
    end = loop.time() + work.parts.spec.timing.start
    waiting = {node.name: node for node in work.record.of(names, NodeState.BOOTING)}
    fallen = Fallen()
    while waiting:
        instances = await insist(lambda: provider.list(work.cluster), work.parts.spec.timing.start)
        fallen |= decide.dead(waiting.values(), instances)
        running = {i.node for i in instances if i.state is InstanceState.RUNNING and i.address}
        waiting = {n: node for n, node in waiting.items() if n not in running | fallen.keys()}
        if waiting and loop.time() > end:
            return fallen | dict.fromkeys(waiting, "its instance did not run in time")
        if waiting:
            await asyncio.sleep(LOOK_S)
    return fallen


async def delete_instances(work: Work) -> Fallen:
    """Delete until the provider lists them no more. Nodes that are in use are left alone."""
    kept = await _still_wanted(work)
    return kept | await remove(work.on(name for name in work.names if name not in kept))


async def _still_wanted(work: Work) -> Fallen:
    """A suspend that was overtaken (spooled, delayed) must not kill a node in use."""
    if work.operation.kind is not Kind.SUSPEND:
        return {}
    seen = await insist(lambda: work.parts.batch.nodes(work.names), work.parts.spec.timing.lock)
    return decide.still_wanted(work.names, seen)


async def remove(work: Work) -> Fallen:
    """Delete all instances of the nodes, of any generation, and record the nodes as off."""
    going = [n for n in work.record.of(work.names) if n.state is not NodeState.DELETING]
    await work.record.move(
        [node.to(NodeState.DELETING) for node in going if node.state is not NodeState.OFF],
        "instance deleting",
        work.operation.id,
    )
    found = await asyncio.gather(
        *(_delete(work, provider, names) for provider, names in work.by_provider(work.names))
    )
    fallen = {name: why for one in found for name, why in one.items()}
    gone = work.record.of((n for n in work.names if n not in fallen), NodeState.DELETING)
    await work.record.move(
        [node.to(NodeState.OFF, instance=None, address=None) for node in gone],
        "instance gone",
        work.operation.id,
    )
    return fallen


async def _delete(work: Work, provider: Provider, names: Sequence[str]) -> Fallen:
    loop = asyncio.get_running_loop()
    end, pause_s = loop.time() + work.parts.spec.timing.stop, FIRST_PAUSE_S
    left: dict[str, str] = dict.fromkeys(names, "")
    while left:
        left = await _delete_once(work, provider, list(left))
        if not left:
            break
        if loop.time() + pause_s > end:
            return {name: f"its instance cannot be deleted: {why}" for name, why in left.items()}
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return {}


async def _delete_once(work: Work, provider: Provider, names: Sequence[str]) -> dict[str, str]:
    """Ask for deletion of what is listed; answers the nodes that still have an instance."""
    try:
        listed = decide.instances_of(await provider.list(work.cluster), names)
        doomed = [i for found in listed.values() for i in found]
        refused = await provider.delete(doomed) if doomed else {}
        listed = decide.instances_of(await provider.list(work.cluster), names) if doomed else {}
    except CloudError as error:
        return dict.fromkeys(names, str(error))
    return {
        name: str(next((refused[i.id] for i in found if i.id in refused), "it is still listed"))
        for name, found in listed.items()
        if found
    }
