"""A deploy over a record that was lost: what serves is taken over, what does not is removed.

`create instances` begins with it. Without that a deploy would make a node a second time, and take
the first away with its jobs.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from springtide import decide, service
from springtide.model import Kind, Move, Node, NodeState
from springtide.ports import BatchNode, Instance, Unavailable
from springtide.steps.work import Work, insist


async def adopt(work: Work) -> set[str]:
    """Answers the nodes that are off by the record, and have instances which do not serve."""
    if work.operation.kind is not Kind.DEPLOY:
        return set()
    off = work.record.of(work.names, NodeState.OFF)
    found = await _instances(work, [node.name for node in off])
    if not found:
        return set()
    seen: Mapping[str, BatchNode] = {}
    with suppress(Unavailable):
        seen = await work.parts.batch.nodes(found)
    nodes = work.record.of(found)
    moves = [_move(node, seen.get(node.name), found[node.name]) for node in nodes]
    await work.record.move(moves, "record follows the world", work.operation.id)
    return {node.name for node in work.record.of(found, NodeState.OFF)}


async def _instances(work: Work, names: Sequence[str]) -> dict[str, list[Instance]]:
    found: dict[str, list[Instance]] = {}
    for provider, some in work.by_provider(names):
        listed = await insist(partial(provider.list, work.cluster), work.parts.spec.timing.stop)
        found |= {n: there for n, there in decide.instances_of(listed, some).items() if there}
    return found


def _move(node: Node, seen: BatchNode | None, instances: Sequence[Instance]) -> Move:
    """What serves is ready; else its next generation is one that nobody has used."""
    if seen is not None and seen.registered and (move := service.adoption(node, seen, instances)):
        return move
    return Move(node, replace(node, generation=max(one.generation for one in instances)))
