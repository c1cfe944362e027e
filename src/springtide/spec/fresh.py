"""Groups whose nodes serve one job each: which they are, and what must fit together around them.

`checks` calls `check_fresh`. A node of such a group can have one job at a time, and Slurm knows
that only of whole partitions; so a partition has groups of one kind.
"""

from collections.abc import Iterator, Mapping

from springtide.spec.findings import KEY, Data, Finding, readable, section, words
from springtide.spec.parts import Group, Partition
from springtide.spec.problems import short

_ALONE = frozenset({"exclusive", "oversubscribe", "shared"})
"""Settings of a partition that say whether jobs share nodes."""


def fresh_nodes(groups: Mapping[str, Group]) -> frozenset[str]:
    """The nodes that serve one job."""
    return frozenset(name for group in groups.values() if group.fresh for name in group.names)


def is_fresh(partition: Partition, groups: Mapping[str, Group]) -> bool:
    """Whether each job of the partition gets nodes that no other job has used."""
    return any(groups[name].fresh for name in partition.groups)


def check_fresh(data: Data) -> Iterator[Finding]:
    groups = readable(data, "groups")
    fresh = [key for key, group in groups.items() if _is_on(group.get("fresh"))]
    yield from _watched(data, fresh)
    yield from _not_ours(data, fresh)
    yield from _mixed(data, fresh)
    yield from _shared(data, fresh)


def _is_on(value: object) -> bool:
    return value in (True, "true")


def _watched(data: Data, fresh: list[str]) -> Iterator[Finding]:
    """Between two looks a node may have had a job that nobody saw."""
    batch = section(data, "batch")
    if batch.get("kind", "slurm") == "slurm" and batch.get("polling") is None:
        return
    for key in fresh:
        message = (
            f"group {key!r} cannot be fresh: this batch system is looked at now and then, and "
            "starts a second job on a node before we see the first; leave `fresh` out, or have a "
            "Slurm that asks for nodes"
        )
        yield Finding(("groups", key, "fresh"), message, KEY)


def _not_ours(data: Data, fresh: list[str]) -> Iterator[Finding]:
    groups = readable(data, "groups")
    for key in fresh:
        provider = groups[key].get("provider") or data.get("provider")
        if isinstance(provider, dict) and provider.get("kind") == "none":
            message = f"group {key!r} cannot be fresh: its machines exist without us, and stay"
            yield Finding(("groups", key, "fresh"), f"{message}; leave `fresh` out", KEY)


def _mixed(data: Data, fresh: list[str]) -> Iterator[Finding]:
    for name, groups in _groups(data).items():
        others = ", ".join(key for key in groups if key not in fresh)
        for key in (key for key in groups if key in fresh and others):
            message = (
                f"group {key!r} is fresh, but partition {name!r} has {short(others)} as well, "
                "which would not be: give each kind partitions of its own"
            )
            yield Finding(("groups", key, "fresh"), message, KEY)


def _groups(data: Data) -> dict[str, list[str]]:
    """The groups of each partition, also of the one that is there by itself."""
    defined = section(data, "groups")
    found = readable(data, "partitions") or {"main": {"groups": [*defined]}}
    listed = {key: [w for _, w in words(one.get("groups"))] for key, one in found.items()}
    return {key: [name for name in names if name in defined] for key, names in listed.items()}


def _shared(data: Data, fresh: list[str]) -> Iterator[Finding]:
    for key, groups in _groups(data).items():
        if not any(name in fresh for name in groups):
            continue
        for parameter in section(readable(data, "partitions").get(key, {}), "parameters"):
            if parameter.lower() in _ALONE:
                message = (
                    f"{parameter} is written by Springtide: nodes of fresh groups have one job "
                    "at a time; leave it out"
                )
                yield Finding(("partitions", key, "parameters", parameter), message, KEY)
