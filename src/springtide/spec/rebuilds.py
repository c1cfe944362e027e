"""What must fit together in the partitions for rebuild jobs; called by `checks`.

A rebuild partition has the nodes of whole user partitions, and no node is in two of them: else
a job of a user could run on nodes of which some have the new image and some have not.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from springtide.spec.findings import (
    KEY,
    RESERVED,
    Data,
    Finding,
    Loc,
    readable,
    reserved,
    section,
    undefined,
    words,
)
from springtide.spec.problems import folded

DEFAULT = "rebuild"
"""The partition for rebuild jobs, where the file names none."""
LOC: Loc = ("rebuild", "partitions")

Nodes = Mapping[str, frozenset[str]]


def check_rebuilds(data: Data, names: Mapping[str, list[str]]) -> Iterator[Finding]:
    partitions = _partitions(data)
    rebuilds = section(section(data, "rebuild"), "partitions")
    yield from _taken(rebuilds, partitions)
    yield from _undefined(rebuilds, partitions)
    if rebuilds:
        of_users = {key: _nodes(groups, names) for key, groups in partitions.items()}
        ours = {key: _nodes(_words(listed), of_users) for key, listed in rebuilds.items()}
        yield from _overlapping(ours)
        yield from _partly_covered(rebuilds, ours, of_users)


def _partitions(data: Data) -> Mapping[str, list[str]]:
    """The groups of each user partition, also of the one that is there by itself."""
    found = readable(data, "partitions") or {"main": {"groups": [*section(data, "groups")]}}
    return {key: _words(partition.get("groups")) for key, partition in found.items()}


def _words(value: object) -> list[str]:
    return [word for _, word in words(value)]


def _nodes(keys: list[str], members: Mapping[str, list[str]] | Nodes) -> frozenset[str]:
    return frozenset(name for key in keys for name in members.get(key, ()))


def _taken(rebuilds: Data, partitions: Mapping[str, object]) -> Iterator[Finding]:
    for key in rebuilds:
        if key.upper() in RESERVED:
            yield Finding((*LOC, key), reserved("rebuild partition", key), KEY)
        if key in partitions:
            message = f"{key!r} is a partition of users already; choose another name for this one"
            yield Finding((*LOC, key), message, KEY)
    if not rebuilds and DEFAULT in partitions:
        message = (
            f"{DEFAULT!r} is the name of the partition for rebuild jobs; rename this one, or that "
            "one with `rebuild: {partitions: {NAME: [PARTITION, …]}}`"
        )
        yield Finding(("partitions", DEFAULT), message, KEY)


def _undefined(rebuilds: Data, partitions: Mapping[str, object]) -> Iterator[Finding]:
    for key, listed in rebuilds.items():
        who = f"rebuild partition {key!r}"
        for i, name in words(listed):
            yield from undefined((*LOC, key, i), who, "partition", name, [*partitions])
        if listed in ([], ()):
            yield Finding((*LOC, key), f"{who} has no nodes; list partitions whose nodes it has")


def _overlapping(ours: Nodes) -> Iterator[Finding]:
    owner: dict[str, str] = {}
    for key, nodes in ours.items():
        shared = defaultdict(list)
        for name in nodes & owner.keys():
            shared[owner[name]].append(name)
        for other in [other for other in ours if other in shared]:
            who = f"rebuild partitions {other!r} and {key!r}"
            message = f"{who} both have {folded(shared[other])}; a node can be in one of them only"
            yield Finding((*LOC, key), message)
        owner = dict.fromkeys(nodes, key) | owner


def _partly_covered(rebuilds: Data, ours: Nodes, of_users: Nodes) -> Iterator[Finding]:
    """User partitions that no rebuild partition lists, but that share nodes with listed ones."""
    listed = {name for value in rebuilds.values() for name in _words(value)}
    for key, nodes in ours.items():
        for other, members in of_users.items():
            missing = members - nodes
            if other not in listed and missing and missing != members:
                yield Finding((*LOC, key), _partly(key, other, members & nodes, missing))


def _partly(key: str, other: str, has: frozenset[str], missing: frozenset[str]) -> str:
    return (
        f"rebuild partition {key!r} has only {folded(has)} of partition {other!r}, "
        f"not {folded(missing)}; list {other!r} in it too, for partitions are rebuilt whole"
    )
