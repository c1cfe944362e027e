"""Whether all is as the cluster file says after a random week. `week` asks when all is calm."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from springtide import holds
from springtide.batch.fake_records import FakeNode
from springtide.model import Event, Hold, Node, NodeState
from springtide.ports import OURS, Instance, InstanceState, Power, Store
from tests.sim.scene import Scene

AWHILE_S = 3600.0
MOST_A_DAY = 250
BY_A_PERSON = ": killed by "
"""In the reason for the end of a job that a person ended, having meant its node alone."""


async def violations(scene: Scene) -> list[str]:
    """Everything that is not as it should be."""
    daemon = await scene.alive()
    record = daemon.parts.record
    return [
        *_jobs(scene),
        *_nodes(scene, record.nodes),
        *_instances(scene),
        *_drains(scene),
        *await _record(scene, record.store, record.nodes),
    ]


def hopeless(found: Iterable[str]) -> bool:
    """Whether waiting cannot help."""
    return any(one.endswith(" still") for one in found)


def _jobs(scene: Scene) -> Iterator[str]:
    batch = scene.world.batch
    for id, why in batch.killed_jobs.items():
        if BY_A_PERSON not in why:
            yield f"job {id} was killed: {why}"
    for job in batch.open_jobs:
        yield f"job {job.id} of {job.size} nodes is {job.state} still"


def _nodes(scene: Scene, nodes: Mapping[str, Node]) -> Iterator[str]:
    spec, batch = scene.world.spec, scene.world.batch
    kept = frozenset(spec.always_up)
    for name in spec.managed:
        node, seen = nodes[name], batch.node(name)
        found = [one for one in scene.world.cloud.alive(spec.cluster) if one.node == name]
        rests = seen.is_persons and (seen.down or node.state is NodeState.OFF)
        if name in kept and not rests:
            yield from _kept(node, seen, found)
        else:
            yield from _off(node, seen, found)


def _kept(node: Node, seen: FakeNode, found: Sequence[Instance]) -> Iterator[str]:
    name = node.name
    if node.state is not NodeState.READY:
        yield f"{name} should always be up, and is {node.state} in the record"
    if seen.power is not Power.UP or seen.down or not seen.registered or seen.reboot:
        yield f"{name} should always be up, and does not serve: {_shown(seen)}"
    if [(one.state, one.generation) for one in found] != [(InstanceState.RUNNING, node.generation)]:
        yield f"{name} should have one running instance of generation {node.generation}: {found}"
    elif (found[0].id, found[0].address, found[0].address) != (
        node.instance,
        node.address,
        seen.address,
    ):
        yield f"{name} is sought where it is not: {node}, {seen.address}, {found}"


def _off(node: Node, seen: FakeNode, found: Sequence[Instance]) -> Iterator[str]:
    """So is, until the drain is ended, a node that a person drained; it may be down as well."""
    name = node.name
    if node.state is not NodeState.OFF:
        yield f"{name} should be off, and is {node.state} in the record"
    if not (seen.power is Power.DOWN and not seen.down) and not (seen.down and seen.is_persons):
        yield f"{name} should be off, and the batch system says {_shown(seen)}"
    if found:
        yield f"{name} should be off, and has {found}"


def _shown(seen: FakeNode) -> str:
    shown = seen.shown()
    marks = "" if shown.registered else ", unheard"
    return f"{shown.state} {'+'.join(sorted(shown.flags))}{marks} {shown.reason!r}"


def _instances(scene: Scene) -> Iterator[str]:
    alive, spec = scene.world.cloud.alive(), scene.world.spec
    for one in alive:
        if one.cluster == spec.cluster and one.node not in spec.node_group:
            yield f"leaked: {one}"
    for id in scene.foreign - {one.id for one in alive}:
        yield f"{id} of another cluster is gone"


def _drains(scene: Scene) -> Iterator[str]:
    """Of what is down and off the drain went with the power, and waits for its owner still."""
    for name in scene.world.spec.managed:
        seen, owner = scene.world.batch.node(name), scene.drains.get(name)
        drained = seen.drained or (seen.down and seen.power is Power.DOWN)
        if owner and (not drained or seen.owner != owner):
            yield f"{owner}'s drain of {name} was ended: {_shown(seen)}, owner {seen.owner}"
        elif not owner and seen.drained:
            whose = "ours" if seen.owner == OURS else f"of {seen.owner}, who ended it,"
            yield f"a drain {whose} is left on {name}: {_shown(seen)}"


async def _record(scene: Scene, store: Store, nodes: Mapping[str, Node]) -> list[str]:
    unfinished = await store.operations(unfinished=True)
    found = [f"operation {o.id} ({o.kind}) is {o.state}" for o in unfinished]
    found += [f"request {one.id} waits: {one}" for one in await store.waiting()]
    found += [f"request {id} is in the spool" for id in scene.world.spool]
    kept = await store.nodes()
    found += [
        f"{name} is not on disk as it is in memory" for name in nodes if nodes[name] != kept[name]
    ]
    found += [f"a hold is left: {hold}" for hold in _overdue(scene, await store.holds())]
    return found


def _overdue(scene: Scene, known: Mapping[str, Hold]) -> Iterator[Hold]:
    """Those that still keep nodes from starting, and those that nobody will ever look at again."""
    now = scene.now()
    for hold in known.values():
        tried = hold.key.startswith("place:") and hold.until <= now
        if not tried or now > hold.until + holds.FORGOTTEN_S + AWHILE_S:
            yield hold


# --- what was done ---------------------------------------------------------------------------


def storm(deeds: Sequence[str], days: float) -> list[str]:
    """Operations by the thousand: somebody asks for the same again and again."""
    most = MOST_A_DAY * max(days, 1.0)
    return [f"a storm: {len(deeds)} operations"] if len(deeds) > most else []


async def deeds(scene: Scene) -> list[str]:
    """The operations of the week, in their order."""
    store = (await scene.alive()).parts.record.store
    done = await store.operations(limit=1_000_000)
    return [
        f"operation {one.id} {one.kind} {one.nodes}" for one in sorted(done, key=lambda o: o.id)
    ]


async def events(scene: Scene) -> Sequence[Event]:
    return await (await scene.alive()).parts.record.store.events(limit=1_000_000)


async def facts(scene: Scene) -> dict[str, int]:
    """How much happened."""
    world = scene.world
    return {
        "nodes": len(world.spec.managed),
        "jobs": len(world.batch.finished),
        "requeues": sum(job.requeues for job in world.batch.finished),
        "operations": len(await deeds(scene)),
        "lives": scene.lives,
        "instances": world.cloud.made,
        "calls to the cloud": world.cloud.calls.total(),
        "calls to the batch system": world.batch.calls.total(),
    }
