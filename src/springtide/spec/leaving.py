"""From one cluster file to another while the cluster lives: what changes, and who stays for now.

Pure. `diff` tells people what another file means; `union` keeps what left the file until its
nodes are gone. Called by the daemon's planner and parts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from springtide.nodeset import fold
from springtide.spec.cluster import Cluster

LONGEST = 60
"""Characters of a value that are shown."""

_FIXED: Mapping[str, str] = {
    "cluster": "it is the tag of all that was made",
    "state": "all files are there",
    "control": "daemon and batch system run there",
    "batch.kind": "the batch system runs",
    "batch.attach": "the batch system runs",
    "batch.user": "files belong to it",
}
"""What cannot change while a cluster lives, and why."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What another file changes."""

    lines: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    only_sizes: bool = True
    """Nothing but how many nodes groups have, and how many are always up."""


# --- what changes ------------------------------------------------------------------------


def diff(former: Cluster, wanted: Cluster) -> Changes:
    """What changes from one file to the other, a line each."""
    sizes, groups = list(_sizes(former, wanted)), list(_groups(former, wanted))
    both = _in_both(former, wanted)
    before, after = _settings(former, both), _settings(wanted, both)
    changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    lines = [_line(key, before.get(key), after.get(key)) for key in changed]
    refused = [key for key in changed if key in _FIXED]
    refusals = [f"{key} cannot change while the cluster lives: {_FIXED[key]}" for key in refused]
    moved = list(_moved(former, wanted))
    return Changes((*sizes, *groups, *lines), (*refusals, *moved), not (groups or lines or moved))


def _in_both(former: Cluster, wanted: Cluster) -> list[str]:
    """The groups that stay, in the order of the file."""
    return [key for key in former.groups if key in wanted.groups]


def _sizes(former: Cluster, wanted: Cluster) -> Iterator[str]:
    for key in _in_both(former, wanted):
        old, new = former.groups[key], wanted.groups[key]
        if new.min != old.min:
            yield f"groups.{key}.min: {old.min} → {new.min}"
        if gone := set(old.names) - set(new.names):
            yield f"groups.{key}: {fold(gone)} leave"
        if come := set(new.names) - set(old.names):
            yield f"groups.{key}: {fold(come)} come"


def _groups(former: Cluster, wanted: Cluster) -> Iterator[str]:
    for key in (key for key in former.groups if key not in wanted.groups):
        yield f"group {key} leaves, with {former.groups[key].nodes or 'no nodes'}"
    for key in (key for key in wanted.groups if key not in former.groups):
        yield f"group {key} comes, with {wanted.groups[key].nodes or 'no nodes'}"


def _settings(cluster: Cluster, groups: Collection[str]) -> dict[str, Any]:
    """All values by their dotted keys; of groups, of those that stay and without their sizes."""
    data = cluster.model_dump(mode="json")
    data["groups"] = {key: data["groups"][key] for key in groups}
    values = dict(_flat("", data))
    sized = {f"groups.{key}.{name}" for key in groups for name in ("nodes", "min")}
    return {key: value for key, value in values.items() if key not in sized}


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    else:
        yield prefix, value


def _line(key: str, before: Any, after: Any) -> str:
    return f"{key}: {_shown(before)} → {_shown(after)}"


def _shown(value: Any) -> str:
    text = "nothing" if value in (None, [], {}, "") else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _moved(former: Cluster, wanted: Cluster) -> Iterator[str]:
    """Instances stay where they were made."""
    for key in _in_both(former, wanted):
        old, new = former.provider_of(key), wanted.provider_of(key)
        both = set(former.names(key)) & set(wanted.names(key))
        if both and (old.kind, getattr(old, "subnet", None)) != (
            new.kind,
            getattr(new, "subnet", None),
        ):
            yield f"nodes of group {key} cannot move to another provider: rename them"


# --- who stays for now ---------------------------------------------------------------------


def union(wanted: Cluster, former: Cluster, staying: Collection[str]) -> Cluster:
    """The wanted cluster with nodes of the former one that are still there.

    They stay in their groups, behind the names of now, and in the partitions of these.
    """
    leaving = [name for name in former.node_group if name in frozenset(staying)]
    leaving = [name for name in leaving if name not in wanted.node_group]
    if not leaving:
        return wanted
    data = wanted.model_dump(mode="json")
    old = former.model_dump(mode="json")
    for key in dict.fromkeys(former.node_group[name] for name in leaving):
        names = [name for name in leaving if former.node_group[name] == key]
        if key in wanted.groups:
            data["groups"][key]["nodes"] = _listed([*wanted.names(key), *names])
        else:
            _bring_group(data, old, key, names)
    return Cluster.model_validate(data)


def _bring_group(data: dict[str, Any], old: dict[str, Any], key: str, names: list[str]) -> None:
    """A group that left as a whole, with what it is made of and where it was."""
    group = {**old["groups"][key], "nodes": _listed(names), "min": 0}
    data["groups"][key] = {**group, "provider": group["provider"] or old["provider"]}
    for flavor in group["flavors"]:
        data["flavors"].setdefault(flavor, old["flavors"][flavor])
    data["images"].setdefault(group["image"], old["images"][group["image"]])
    for name, partition in old["partitions"].items():
        if key in partition["groups"] and name in data["partitions"]:
            data["partitions"][name]["groups"].append(key)


def _listed(names: Iterable[str]) -> str:
    """In this order: the first `min` of a group are always up."""
    return ",".join(names)
