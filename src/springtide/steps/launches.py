"""Launching instances: where, as what, and what follows when a provider will not.

Called by `instances`; reboots use `described`. A provider's passing failures are the guard's.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from springtide import decide
from springtide.decide import Choice
from springtide.model import Node, NodeState
from springtide.ports import CloudError, Instance, Launch, Provider, Rejected, Transient
from springtide.record import whole
from springtide.steps.work import FIRST_PAUSE_S, Fallen, Work

NO_PLACE = "every place where it could be made was full a moment ago"
UNASKED = frozenset({"batch", "reconcile"})
"""Who asks for operations that no person wants."""


async def described(work: Work, chosen: Mapping[str, Choice]) -> list[Launch]:
    """The launches of nodes, with what lets them join; raises CloudError."""
    nodes = work.record.of(chosen)
    try:
        configs = {group: work.parts.cloud_config(group) for group in {n.group for n in nodes}}
    except OSError as error:
        raise Rejected(f"{error.filename} cannot be read: {error.strerror}") from error
    tokens = await work.parts.tickets.issue(work.parts.spec, nodes)
    return [
        _describe(work, n, chosen[n.name], tokens.get(n.name, ""), configs[n.group]) for n in nodes
    ]


def _describe(work: Work, node: Node, choice: Choice, token: str, cloud_config: str) -> Launch:
    """The launch of a node with this choice of flavor, zone and market."""
    flavor, zone, market = choice
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
        market=market,
        user_data=work.parts.configurator.user_data(node, work.parts.site),
        cloud_config=cloud_config,
        token=token,
    )


async def launch(work: Work, provider: Provider, names: Sequence[str]) -> Fallen:
    """Launch what is not held."""
    fallen = _held(work, names) if _heeds_holds(work) else {}
    return fallen | await _launch(work, provider, [n for n in names if n not in fallen])


def _heeds_holds(work: Work) -> bool:
    """A person may know better than a hold, and a probe is to find out."""
    return work.operation.asked_by in UNASKED and not work.operation.options.get("probe")


def _held(work: Work, names: Iterable[str]) -> Fallen:
    """Nodes that are not launched now; not those that have an instance."""
    held = work.parts.holding.held_back(work.parts.spec)
    waiting = work.record.of(names, NodeState.REQUESTED)
    return {node.name: held[node.name] for node in waiting if node.name in held}


async def _launch(work: Work, provider: Provider, names: Sequence[str]) -> Fallen:
    """Until each node has an instance or no choice is left.

    A failure that may pass is the guard's, unless it came with other answers, which it hands on.
    """
    choices = _choices(work, names)
    fallen = {name: NO_PLACE for name in names if not choices[name]}
    pending = [name for name in names if choices[name]]
    while pending:
        chosen = {name: choices[name].pop(0) for name in pending}
        results = await _create(work, provider, chosen)
        await _made(work, results)
        await _learn(work, chosen, results)
        failed = {n: error for n, error in results.items() if isinstance(error, CloudError)}
        again = decide.again(failed, results)
        for name in again:
            choices[name].insert(0, chosen[name])
        if again:
            await asyncio.sleep(FIRST_PAUSE_S)
        pending = [*decide.elsewhere(failed, choices), *again]
        fallen |= {n: decide.explain(e) for n, e in failed.items() if n not in pending}
    return fallen


def _choices(work: Work, names: Sequence[str]) -> dict[str, list[Choice]]:
    """The places where each node may be tried, best first."""
    spec, groups = work.parts.spec, defaultdict[str, list[str]](list)
    for node in work.record.of(names):
        groups[node.group].append(node.name)
    if work.operation.asked_by not in UNASKED:
        return {n: decide.choices(spec, group) for group, some in groups.items() for n in some}
    places = work.parts.holding.places
    return {
        name: choices
        for group, some in groups.items()
        for name, choices in zip(some, places(spec, group, len(some)), strict=True)
    }


async def _create(
    work: Work, provider: Provider, chosen: Mapping[str, Choice]
) -> dict[str, Instance | CloudError]:
    """A provider that fails as a whole fails each node. What it makes must not be lost sight of."""

    async def call() -> Mapping[str, Instance | CloudError]:
        return await provider.create(await described(work, chosen))

    try:
        results = await whole(call())
    except CloudError as error:
        return dict.fromkeys(chosen, error)
    silent = Transient("the provider said nothing about it")
    return {name: results.get(name, silent) for name in chosen}


async def _learn(
    work: Work, chosen: Mapping[str, Choice], results: Mapping[str, Instance | CloudError]
) -> None:
    """What it means for others that come here: refusals first, for a success weighs more."""
    spec, nodes, holding = work.parts.spec, work.record.nodes, work.parts.holding
    failed = {n: error for n, error in results.items() if isinstance(error, CloudError)}
    refused = {(nodes[n].group, chosen[n], type(e)): e for n, e in failed.items()}
    for (group, choice, _), error in refused.items():
        await holding.refused(spec, group, choice, error)
    await holding.rejected(spec, {n: e for n, e in failed.items() if isinstance(e, Rejected)})
    made: dict[tuple[str, Choice], list[str]] = defaultdict(list)
    for name in results.keys() - failed.keys():
        made[nodes[name].group, chosen[name]].append(name)
    for (group, choice), names in made.items():
        if all((group, choice) != known[:2] for known in refused):
            await holding.made(spec, group, choice, names)


async def _made(work: Work, results: Mapping[str, Instance | CloudError]) -> None:
    made = {name: one for name, one in results.items() if isinstance(one, Instance)}
    known = work.parts.spec.addresses
    moves = [
        node.to(
            NodeState.BOOTING,
            instance=made[node.name].id,
            address=made[node.name].address or known.get(node.name),
            flavor=made[node.name].flavor,
            zone=made[node.name].zone,
            image=made[node.name].image,
            config=work.parts.config_of(node.group),
        )
        for node in work.record.of(made, NodeState.REQUESTED)
    ]
    await work.record.move(moves, "instance created", work.operation.id)
