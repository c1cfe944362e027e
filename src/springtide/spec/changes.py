"""What another cluster file means for a cluster that lives, in plain terms; pure.

`tide apply` and `tide plan apply` show it, and the daemon refuses what cannot change.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from springtide.nodeset import fold
from springtide.spec.cluster import Cluster
from springtide.spec.parts import Provider

T = TypeVar("T")

LONGEST = 60  # characters of a value that are shown

FIXED: Mapping[str, str] = {
    "cluster": "it is the tag of all that was made",
    "state": "all files are there",
    "control": "daemon and batch system run there",
    "batch.kind": "the batch system runs",
    "batch.attach": "the batch system runs",
    "batch.server": "its nodes and their jobs are there",
    "batch.root": "its nodes and their jobs are there",
    "batch.cell": "its nodes and their jobs are there",
    "batch.placeholder": "the queues have it",
    "batch.user": "files, processes and rights are its",
    "provider.control_address": "nodes that are up know the batch system by it",
    "batch.node_port": "every node that is up listens there",
}
"""What cannot change while a cluster lives, and why."""
ADVICE = "put it back, or destroy the cluster and deploy it again"
PLACES: Mapping[str, tuple[str, ...]] = {
    "containers": ("subnet",),
    "openstack": ("cloud",),
    "aws": ("region",),
    "oci": ("region", "compartment"),
    "azure": ("subscription", "resource_group"),
    "google": ("project",),
    "libvirt": ("uri",),
    "terraform": ("module", "resource"),
}
"""Keys of a provider that tell where instances are."""
_APART = frozenset({"nodes", "min", "image", "flavors"})
"""Keys of a group that have changes of their own."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A value by its dotted key, as short text."""

    key: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.key}: {self.old} → {self.new}"


@dataclass(frozen=True, slots=True)
class Changes:
    """What another file changes. Nodes are host lists, by group."""

    groups_removed: tuple[str, ...]
    groups_added: tuple[str, ...]
    names_removed: Mapping[str, str]
    names_added: Mapping[str, str]
    sizes: Mapping[str, tuple[int, int]]
    """`min` as it was and is, of groups that stay; so are images and flavors."""
    images: Mapping[str, tuple[str, str]]
    flavors: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
    partitions_removed: tuple[str, ...]
    partitions_added: tuple[str, ...]
    partitions_changed: tuple[str, ...]
    """How is in `settings`."""
    settings: tuple[Setting, ...]
    """All else, timing and batch system and providers, in the order of the file."""
    refusals: tuple[str, ...]
    """What cannot change while a cluster lives."""

    @property
    def only_sizes(self) -> bool:
        """Nothing but how many nodes groups have, and how many are always up."""
        sized = {"names_removed", "names_added", "sizes"}
        return not any(getattr(self, each.name) for each in fields(self) if each.name not in sized)

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each change, for people."""
        return (*self._names(), *self._values(), *map(str, self.settings))

    def _names(self) -> Iterator[str]:
        for key in self.groups_removed:
            yield f"group {key} leaves, with {self.names_removed.get(key, 'no nodes')}"
        for key in self.groups_added:
            yield f"group {key} comes, with {self.names_added.get(key, 'no nodes')}"
        for key, nodes in self.names_removed.items():
            if key not in self.groups_removed:
                yield f"groups.{key}: {nodes} leave"
        for key, nodes in self.names_added.items():
            if key not in self.groups_added:
                yield f"groups.{key}: {nodes} come"

    def _values(self) -> Iterator[str]:
        changed = {"min": self.sizes, "image": self.images, "flavors": self.flavors}
        for name, pairs in changed.items():
            for key, (old, new) in pairs.items():
                yield f"groups.{key}.{name}: {_text(name, old)} → {_text(name, new)}"
        yield from (f"partition {key} leaves" for key in self.partitions_removed)
        yield from (f"partition {key} comes" for key in self.partitions_added)


def diff(former: Cluster, wanted: Cluster) -> Changes:
    """What changes from one file to the other."""
    settings = _settings(former, wanted)
    changed = {setting.key.split(".")[1] for setting in settings if _is_of_partition(setting)}
    return Changes(
        groups_removed=_missing(former.groups, wanted.groups),
        groups_added=_missing(wanted.groups, former.groups),
        names_removed=_missing_names(former, wanted),
        names_added=_missing_names(wanted, former),
        sizes=_pairs(former, wanted, lambda spec, key: spec.groups[key].min),
        images=_pairs(former, wanted, Cluster.image_of),
        flavors=_pairs(former, wanted, lambda spec, key: spec.groups[key].flavors),
        partitions_removed=_missing(former.partitions, wanted.partitions),
        partitions_added=_missing(wanted.partitions, former.partitions),
        partitions_changed=tuple(key for key in wanted.partitions if key in changed),
        settings=settings,
        refusals=(*_fixed(settings), *_watched(former, wanted), *_moved(former, wanted)),
    )


def _missing(ours: Mapping[str, object], theirs: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(key for key in ours if key not in theirs)


def _missing_names(ours: Cluster, theirs: Cluster) -> Mapping[str, str]:
    """Names that a group has only here, as host lists."""
    found = {}
    for key in ours.groups:
        others = frozenset(theirs.names(key)) if key in theirs.groups else frozenset()
        if missing := [name for name in ours.names(key) if name not in others]:
            found[key] = fold(missing)
    return found


def _pairs(
    former: Cluster, wanted: Cluster, value: Callable[[Cluster, str], T]
) -> dict[str, tuple[T, T]]:
    """What a value of the groups that stay was and is, where it changes."""
    both = [key for key in former.groups if key in wanted.groups]
    values = {key: (value(former, key), value(wanted, key)) for key in both}
    return {key: (old, new) for key, (old, new) in values.items() if old != new}


# All else, by dotted keys


def _settings(former: Cluster, wanted: Cluster) -> tuple[Setting, ...]:
    before, after = dict(_flat(_rest(former, wanted))), dict(_flat(_rest(wanted, former)))
    changed = [key for key in after | before if before.get(key) != after.get(key)]
    return tuple(
        Setting(key, _text(key, before.get(key)), _text(key, after.get(key))) for key in changed
    )


def _rest(ours: Cluster, theirs: Cluster) -> Any:
    """What has no change of its own, of the groups and partitions that stay.

    Nor has an image that stays while its group begins to name it, or leaves it to the cluster.
    """
    data = ours.model_dump(mode="json")
    groups = {key: value for key, value in data["groups"].items() if key in theirs.groups}
    for key, value in groups.items():
        apart = _APART - ({"image"} if ours.image_of(key) == theirs.image_of(key) else set())
        groups[key] = {k: v for k, v in value.items() if k not in apart}
    data["groups"] = groups
    kept = {key: v for key, v in data["partitions"].items() if key in theirs.partitions}
    return data | {"partitions": kept}


def _flat(value: Any, *path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, *path, key)
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        # Filesystems of `shared` go by the path that nodes have them at, others by their number.
        named = {str(each.get("path", i)): each for i, each in enumerate(value, 1)}
        yield from _flat(named, *path)
    elif value not in (None, "", []):
        yield ".".join(path), value


def _text(key: str, value: Any) -> str:
    match value:
        case None | [] | ():
            return "nothing"
        case bool():
            return str(value).lower()
        case list() | tuple():
            text = ", ".join(map(str, value))
        case float():
            text = f"{value:g}" + " s" * (not key.endswith(".price"))
        case _:
            text = f"{value} MiB" if key.endswith(".memory") else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _is_of_partition(setting: Setting) -> bool:
    return setting.key.startswith("partitions.")


# What cannot change


def _fixed(settings: tuple[Setting, ...]) -> Iterator[str]:
    for setting in settings:
        if why := FIXED.get(setting.key):
            what = f"{setting.key} cannot change from {setting.old} to {setting.new}"
            yield f"{what} while the cluster lives: {why}; {ADVICE}"


def _watched(former: Cluster, wanted: Cluster) -> Iterator[str]:
    """A Slurm asks for nodes, or is watched: what was written for the one is not for the other."""
    if former.batch.kind == wanted.batch.kind and former.polled != wanted.polled:
        what = f"batch.polling cannot {'come' if wanted.polled else 'go'} while the cluster lives"
        why = "Slurm asks for nodes by itself, or is watched, and is set up for the one"
        yield f"{what}: {why}; {ADVICE}"


def _moved(former: Cluster, wanted: Cluster) -> Iterator[str]:
    """Instances stay where they were made, those of nodes that leave a group too."""
    for key, group in former.groups.items():
        now = {wanted.node_group[name] for name in group.names if name in wanted.node_group}
        staying = {key} if group.names and key in wanted.groups else set()
        was = former.provider_of(key)
        for other in [other for other in wanted.groups if other in now | staying]:
            if _where(was) != _where(wanted.provider_of(other)):
                yield _moving(key, other, was, wanted.provider_of(other))


def _where(provider: Provider) -> tuple[str, str]:
    found = (str(getattr(provider, key, None) or "") for key in PLACES.get(provider.kind, ()))
    return provider.kind, " ".join(filter(None, found))


def _moving(key: str, other: str, old: Provider, new: Provider) -> str:
    to = "" if key == other else f" to group {other}"
    where = [" ".join(filter(None, _where(each))) for each in (old, new)]
    advice = "give nodes elsewhere a group and names of their own"
    return f"nodes of group {key} cannot move{to} from {where[0]} to {where[1]}; {advice}"
