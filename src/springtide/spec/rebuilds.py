"""What must fit together in the partitions for rebuild jobs; called by `checks`.

A rebuild partition has the nodes of whole user partitions, and no node is in two of them: else
a job of a user could run on nodes of which some have the new image and some have not. Groups
count, also those without nodes, so that a file stays right when a group grows or shrinks.
"""

from collections.abc import Collection, Iterator, Mapping

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
from springtide.spec.problems import short

DEFAULT = "rebuild"
"""The partition for rebuild jobs, where the file names none."""
REBUILD_JOB = "rebuild-"
"""What names of jobs begin with that rebuild the nodes they run on, in such partitions."""
LOC: Loc = ("rebuild", "partitions")

Lists = Mapping[str, list[str]]


def partition_names(named: Collection[str]) -> list[str]:
    """The partitions for rebuild jobs, of those that the file names."""
    return [*named] or [DEFAULT]


def check_rebuilds(data: Data) -> Iterator[Finding]:
    partitions = _partitions(data)
    rebuilds = section(section(data, "rebuild"), "partitions")
    yield from _taken(rebuilds, partitions)
    yield from _undefined(rebuilds, partitions)
    listed = {key: _words(value) for key, value in rebuilds.items()}
    groups = {key: _groups(names, partitions) for key, names in listed.items()}
    yield from _overlapping(groups)
    yield from _partly_covered(listed, groups, partitions)


def _partitions(data: Data) -> Lists:
    """The groups of each user partition, also of the one that is there by itself."""
    found = readable(data, "partitions") or {"main": {"groups": [*section(data, "groups")]}}
    return {key: _words(partition.get("groups")) for key, partition in found.items()}


def _words(value: object) -> list[str]:
    return [word for _, word in words(value)]


def _groups(names: list[str], partitions: Lists) -> list[str]:
    """The groups of these partitions, each once."""
    return list(dict.fromkeys(group for name in names for group in partitions.get(name, ())))


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


def _overlapping(groups: Lists) -> Iterator[Finding]:
    owner: dict[str, str] = {}
    for key, mine in groups.items():
        for other in dict.fromkeys(owner[group] for group in mine if group in owner):
            both = [group for group in mine if owner.get(group) == other]
            message = f"rebuild partitions {other!r} and {key!r} both have {_named(both)}"
            yield Finding((*LOC, key), f"{message}; a node can be in one of them only")
        owner = dict.fromkeys(mine, key) | owner


def _partly_covered(listed: Lists, groups: Lists, partitions: Lists) -> Iterator[Finding]:
    """User partitions that no rebuild partition lists, but that share groups with listed ones."""
    whole = {name for names in listed.values() for name in names}
    for key, mine in groups.items():
        for other, theirs in partitions.items():
            has = [group for group in theirs if group in mine]
            missing = [group for group in theirs if group not in mine]
            if other not in whole and has and missing:
                yield Finding((*LOC, key), _partly(key, other, has, missing))


def _partly(key: str, other: str, has: list[str], missing: list[str]) -> str:
    return (
        f"rebuild partition {key!r} has only {_named(has)} of partition {other!r}, "
        f"not {_named(missing)}; list {other!r} in it too, for partitions are rebuilt whole"
    )


def _named(groups: list[str]) -> str:
    noun = "group" if len(groups) == 1 else "groups"
    return f"{noun} {short(', '.join(map(repr, groups)))}"
