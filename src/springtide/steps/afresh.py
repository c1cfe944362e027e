"""Giving nodes in service a fresh start: which way, told to the batch system, and reboots.

Rebuild and update use it; their instances are deleted and made by `instances`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from springtide import decide, service
from springtide.model import Kind, Node, NodeState
from springtide.ports import BatchNode, CloudError, Instance, Launch, Power, Transient
from springtide.record import whole
from springtide.service import Fate
from springtide.steps.launches import described
from springtide.steps.work import (
    Fallen,
    Work,
    insist,
    merged,
    together,
)

Start = Callable[[Sequence[Launch]], Awaitable[Mapping[str, Instance | CloudError]]]

LOOK_S = 0.2
ISSUE_S = 60.0
"""The batch system reboots a node without jobs within this."""


async def have_rebooted(work: Work) -> Fallen:
    """Have the batch system reboot the nodes, if that is the way: it then waits for them."""
    names = [node.name for node in work.record.of(work.names, NodeState.DRAINING)]
    if work.operation.options.get("via") != "reboot" or not names:
        return {}
    batch, lock_s = work.parts.batch, work.parts.spec.timing.lock
    up = await still_up(work, names)
    why = f"rebuild by {work.operation.asked_by} (operation {work.operation.id})"
    await insist(partial(batch.reboot, up, why), lock_s)
    return await _issued(work, up)


async def expect(work: Work, names: Sequence[str]) -> None:
    """Have it know that what it heard from these nodes counts no more, if it does not yet.

    Called when their former instances are gone: one that lives might be heard from again.
    """
    call = partial(work.parts.batch.expect, await still_up(work, names))
    await insist(call, work.parts.spec.timing.lock)


async def still_up(work: Work, names: Sequence[str]) -> list[str]:
    """Those that the batch system has not let go of."""
    lock_s = work.parts.spec.timing.lock
    seen = await insist(partial(work.parts.batch.nodes, names), lock_s)
    gone = (Power.DOWN, Power.GOING_DOWN)
    return [name for name in names if name in seen and seen[name].power not in gone]


async def _issued(work: Work, names: Sequence[str]) -> Fallen:
    """Until the batch system has begun the reboots; those it does not begin fall out."""
    loop = asyncio.get_running_loop()
    end, waiting = loop.time() + ISSUE_S, set(names)
    while waiting:
        seen = await insist(
            partial(work.parts.batch.nodes, tuple(waiting)), work.parts.spec.timing.lock
        )
        waiting -= {name for name, node in seen.items() if node.power is not Power.UP}
        if waiting and loop.time() > end:
            return dict.fromkeys(waiting, f"Slurm did not reboot it within {ISSUE_S:.0f} s")
        if waiting:
            await asyncio.sleep(LOOK_S)
    return {}


# --- which way -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Way:
    """What becomes of a node, and the image it then has."""

    fate: Fate
    image: str | None


async def ways(work: Work) -> dict[str, Way]:
    """For each node that is in service still."""
    nodes = work.record.of(work.names, NodeState.DRAINING)
    seen = await insist(
        partial(work.parts.batch.nodes, [node.name for node in nodes]),
        work.parts.spec.timing.lock,
    )
    runs = await _running(work, nodes)
    targets = {
        node.name: target(work, node, seen.get(node.name), runs.get(node.name)) for node in nodes
    }
    own = {node.name: _image(node, runs.get(node.name)) for node in nodes}
    spec, gallery = work.parts.spec, work.parts.gallery
    strange = {n: i for n, i in targets.items() if not gallery.is_image(spec, i) and i != own[n]}
    await _say_unknown(work, strange)
    targets |= {name: own[name] or "" for name in strange}
    return {
        node.name: _way(work, node, seen.get(node.name), runs.get(node.name), targets[node.name])
        for node in nodes
    }


def _way(work: Work, node: Node, seen: BatchNode | None, runs: Instance | None, image: str) -> Way:
    if seen is not None and seen.power in (Power.DOWN, Power.GOING_DOWN):
        return Way(Fate.GO, image)
    parts = work.parts
    in_place = parts.providers.get(node.group, parts.home).in_place
    flavors = parts.spec.groups[node.group].flavors
    return Way(service.fate(node, runs, image, flavors, in_place), image)


def _image(node: Node, runs: Instance | None) -> str | None:
    """What it runs, as far as anybody knows."""
    return (runs.image if runs else None) or node.image


async def _say_unknown(work: Work, images: Mapping[str, str]) -> None:
    told = {
        name: f"the cluster file has no image {image}: it keeps the one it has"
        for name, image in images.items()
    }
    await work.record.note("not rebuilt", nodes=told, operation=work.operation.id)


def target(work: Work, node: Node, seen: BatchNode | None, runs: Instance | None) -> str:
    """The image that a node should run: as asked for, or as the file says."""
    options = work.operation.options
    reason = seen.reason if seen and options.get("via") == "batch" else ""
    action = options.get("action")
    if service.only_reboot(reason, action):
        return _image(node, runs) or ""
    asked = options.get("image") or service.image_asked(reason, action)
    return work.parts.wanted_image(node.group, asked)


async def _running(work: Work, nodes: Sequence[Node]) -> dict[str, Instance]:
    generations = {node.name: node.generation for node in nodes}
    found: dict[str, Instance] = {}
    for provider, _ in work.by_provider(generations):
        listed = await insist(partial(provider.list, work.cluster), work.parts.spec.timing.stop)
        found |= {one.node: one for one in listed if generations.get(one.node) == one.generation}
    return found


# --- reboots ---------------------------------------------------------------------------------


async def reboot(work: Work, names: Sequence[str]) -> Fallen:
    """Start these afresh in place. The intent is on disk first, so a crash repeats the reboot."""
    draining = work.record.of(names, NodeState.DRAINING)
    moves = [node.to(NodeState.REQUESTED) for node in draining]
    await work.record.move(moves, "reboot requested", work.operation.id)
    return await reboot_requested(work)


async def reboot_requested(work: Work) -> Fallen:
    """Those that were to be rebooted, now or before a crash: they have an instance still."""
    wanted = [n for n in work.record.of(work.names, NodeState.REQUESTED) if n.instance]
    await expect(work, [node.name for node in wanted])
    rebuilt = await _to_rebuild(work, wanted)
    rebooted = [node.name for node in wanted if node.name not in rebuilt]
    calls = [
        *(
            _start(work, p.rebuild, some, "instance rebuilt")
            for p, some in work.by_provider(rebuilt)
        ),
        *(
            _start(work, p.reboot, some, "instance rebooted")
            for p, some in work.by_provider(rebooted)
        ),
    ]
    return merged(await together(calls))


async def _to_rebuild(work: Work, nodes: Sequence[Node]) -> list[str]:
    """Those whose instance has not the image that they are to have."""
    parts = work.parts
    able = [n for n in nodes if parts.providers.get(n.group, parts.home).in_place]
    runs = await _running(work, able) if able else {}
    return [n.name for n in able if n.name in runs and _image(n, runs[n.name]) != n.image]


async def _start(work: Work, do: Start, names: Sequence[str], what: str) -> Fallen:
    pending, fallen = list(names), Fallen()
    while pending:
        results = await _call(work, do, pending)
        await _started(work, results, what)
        failed = {n: e for n, e in results.items() if isinstance(e, CloudError)}
        pending = decide.again(failed, results)
        fallen |= {n: decide.explain(e) for n, e in failed.items() if n not in pending}
    return fallen


async def _call(work: Work, do: Start, names: Sequence[str]) -> Mapping[str, Instance | CloudError]:
    nodes = work.record.of(names)
    chosen = {node.name: (node.flavor or "", node.zone, None) for node in nodes}

    async def call() -> Mapping[str, Instance | CloudError]:
        return await do(await described(work, chosen))

    try:
        results = await whole(call())
    except CloudError as error:
        return dict.fromkeys(names, error)
    silent = Transient("the provider said nothing about it")
    return {name: results.get(name, silent) for name in names}


async def _started(work: Work, results: Mapping[str, Instance | CloudError], what: str) -> None:
    made = {name: one for name, one in results.items() if isinstance(one, Instance)}
    moves = [
        node.to(
            NodeState.BOOTING,
            address=made[node.name].address or node.address,
            rebuilds=node.rebuilds + (what == "instance rebuilt"),
            config=work.parts.config_of(node.group),
        )
        for node in work.record.of(made, NodeState.REQUESTED)
    ]
    await work.record.move(moves, what, work.operation.id)


async def restart_with_configuration(work: Work) -> Fallen:
    """An update: the same instances, started afresh with the configuration of now."""
    if work.operation.kind is not Kind.UPDATE:
        return {}
    gone = await _gone(work)
    names = [name for name in _to_start(work) if name not in gone]
    return gone | await reboot(work, names)


def _to_start(work: Work) -> list[str]:
    """Those that Ansible configures run on, unless they would boot otherwise than they did."""
    parts = work.parts
    served = parts.software.serves if parts.software else lambda _: False
    nodes = work.record.of(work.names)
    return [n.name for n in nodes if not served(n.group) or n.config != parts.config_of(n.group)]


async def _gone(work: Work) -> Fallen:
    return {
        name: "the batch system has let go of it; it starts with the new configuration"
        for name, way in (await ways(work)).items()
        if way.fate is Fate.GO
    }
