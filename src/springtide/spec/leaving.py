"""From one cluster file to another while the cluster lives: what changes, and who stays for now.

Pure. `diff` tells people what another file means; `union` keeps what left the file until its
nodes are gone. Called by the daemon's planner and parts.
"""

from collections.abc import Collection, Mapping

from pydantic import ValidationError

from springtide.nodeset import fold
from springtide.spec.changes import Changes, diff
from springtide.spec.cluster import Cluster
from springtide.spec.parts import Group, Partition

__all__ = ["Changes", "diff", "union"]


def union(wanted: Cluster, former: Cluster, staying: Collection[str]) -> Cluster:
    """The wanted cluster with nodes of the former one that are still there.

    They stay in their groups, behind the names of now. A node that the wanted cluster has in
    another group belongs there.
    """
    leaving = _leaving(wanted, former, frozenset(staying))
    if not leaving:
        return wanted
    groups = {**wanted.groups, **{k: _group(wanted, former, k, leaving[k]) for k in leaving}}
    brought = [key for key in leaving if key not in wanted.groups]
    flavors = {name: former.flavors[name] for key in brought for name in groups[key].flavors}
    images = {name: former.images[name] for key in brought for name in _images(former, key)}
    both = wanted.but(
        groups=groups, flavors={**flavors, **wanted.flavors}, images={**images, **wanted.images}
    )
    return _in_partitions(both, former, brought)


def _images(former: Cluster, group: str) -> list[str]:
    """The image of a group, and those that it is built from."""
    found = [former.image_of(group)]
    while (build := former.images[found[-1]].build) is not None:
        found.append(build.base)
    return found


def _leaving(wanted: Cluster, former: Cluster, staying: frozenset[str]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, group in former.node_group.items():
        if name in staying and name not in wanted.node_group:
            found.setdefault(group, []).append(name)
    return found


def _group(wanted: Cluster, former: Cluster, key: str, names: list[str]) -> Group:
    nodes = fold(names)
    if group := wanted.groups.get(key):
        return group.but(nodes=f"{group.nodes},{nodes}" if group.nodes else nodes)
    provider = former.provider_of(key)
    own = None if provider == wanted.provider else provider
    gone = former.groups[key]
    addresses = {name: at for name, at in gone.addresses.items() if name in names}
    image = gone.image if former.image == wanted.image else former.image_of(key)
    return gone.but(nodes=nodes, min=0, provider=own, addresses=addresses, image=image)


def _in_partitions(cluster: Cluster, former: Cluster, brought: Collection[str]) -> Cluster:
    """With the groups that left the file in the partitions they were in, where their jobs are."""
    partitions = dict(cluster.partitions)
    has_default = any(partition.default for partition in partitions.values())
    for key, partition in former.partitions.items():
        groups = tuple(group for group in partition.groups if group in brought)
        if groups and key in partitions:
            partitions[key] = partitions[key].but(groups=(*partitions[key].groups, *groups))
        elif groups:
            partitions[key] = _restricted(partition, cluster, default=not has_default)
    try:
        return cluster.but(partitions=partitions)
    except ValidationError:  # they would split or overlap the rebuild partitions of now
        return cluster


def _restricted(partition: Partition, cluster: Cluster, *, default: bool) -> Partition:
    groups = tuple(group for group in partition.groups if group in cluster.groups)
    return partition.but(groups=groups, default=partition.default and default)
