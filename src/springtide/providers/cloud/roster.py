"""Which instance of a bulk launch is which node.

Clouds that make many instances with one call give all of them the same tags, and each its index
in the launch. So the tags hold the nodes of the launch in their order, and the index tells which
of them an instance is: nothing has to be written after the launch, and a crash loses nothing.

Values of tags are short, so a roster takes several: springtide-nodes, springtide-nodes-1, …
"""

from collections.abc import Mapping, Sequence
from itertools import count, groupby

from springtide.nodeset import NodeNameError, expand, fold
from springtide.providers.cloud.tags import NODES

LONGEST = 250
"""Characters of a value; OpenStack allows 255, AWS 256."""

Member = tuple[str, int]
"""A node and its generation."""


def write(members: Sequence[Member], longest: int = LONGEST) -> dict[str, str]:
    """The roster as tags. Members must be in the order of `ordered`."""
    values = [""]
    for generation, some in groupby(members, key=lambda member: member[1]):
        for part in _parts(generation, [node for node, _ in some], longest):
            joined = f"{values[-1]} {part}".strip()
            if len(joined) <= longest:
                values[-1] = joined
            else:
                values.append(part)
    return {_key(number): value for number, value in enumerate(values)}


def ordered(members: Sequence[Member]) -> list[Member]:
    """Such that host lists are short, and expand to the order they were folded in."""
    by_generation: dict[int, list[str]] = {}
    for node, generation in members:
        by_generation.setdefault(generation, []).append(node)
    return [
        (node, generation)
        for generation, nodes in sorted(by_generation.items())
        for node in expand(fold(nodes))
    ]


def read(tags: Mapping[str, str]) -> list[Member]:
    """The members in their order; none if the tags hold no roster, or one we did not write."""
    members: list[Member] = []
    for number in count():
        value = tags.get(_key(number))
        if value is None:
            return members
        for part in value.split():
            generation, _, nodes = part.partition(":")
            try:
                members += [(node, int(generation)) for node in expand(nodes)]
            except (NodeNameError, ValueError):
                return []
    return members


def _parts(generation: int, nodes: Sequence[str], longest: int) -> list[str]:
    """Host lists short enough for a value, that expand to this very order."""
    part = f"{generation}:{fold(nodes)}"
    if len(nodes) == 1 or (len(part) <= longest and expand(fold(nodes)) == list(nodes)):
        return [part]
    half = len(nodes) // 2
    return _parts(generation, nodes[:half], longest) + _parts(generation, nodes[half:], longest)


def _key(number: int) -> str:
    return f"{NODES}-{number}" if number else NODES
