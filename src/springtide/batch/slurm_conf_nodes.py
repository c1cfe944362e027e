"""The nodes and partitions of slurm.conf, as lines of it. Pure; called by `slurm_conf`."""

from collections.abc import Mapping, Sequence

from springtide.batch import slurm_rebuild
from springtide.batch.slurm_conf_lines import Settings, render_line
from springtide.batch.slurm_versions import Release, one_job_at_a_time
from springtide.nodeset import expand, fold
from springtide.spec import Cluster
from springtide.spec.fresh import is_fresh
from springtide.spec.parts import Flavor


def render_machines(
    cluster: Cluster,
    version: Release,
    times: Mapping[str, str] | None = None,
    default: bool = True,
    theirs: Mapping[str, str] | None = None,
) -> list[str]:
    nodes = [_node_line(cluster, group) for group in cluster.groups if cluster.names(group)]
    partitions = [
        _partition_line(cluster, version, name, times, default) for name in cluster.partitions
    ]
    # A node of several partitions stays as long as the most patient of them lets it.
    rebuilds = [
        render_line({**line, **(times or {})})
        for line in slurm_rebuild.settings(cluster, version, theirs)
    ]
    return [
        "\n".join(["# nodes", *(nodes or [_placeholder(cluster)])]),
        "\n".join(["# partitions", *partitions, *rebuilds]),
    ]


def _node_line(cluster: Cluster, group: str) -> str:
    """A node may become any of its group's flavors, so it promises what all of them have."""
    flavors = [cluster.flavor(name) for name in cluster.groups[group].flavors]
    shared = [f for f in flavors[0].features if all(f in other.features for other in flavors)]
    features = dict.fromkeys([*cluster.groups[group].features, *shared])
    weight = cluster.groups[group].weight
    settings = {
        "NodeName": fold(cluster.names(group)),
        **_places(cluster, group),
        "CPUs": str(min(flavor.cpus for flavor in flavors)),
        **_topology(flavors),
        "RealMemory": str(min(flavor.memory for flavor in flavors)),
        **({"Gres": ",".join(gres)} if (gres := _gres(flavors)) else {}),
        **({"Weight": str(weight)} if weight is not None else {}),
        **({"Feature": ",".join(features)} if features else {}),
        "State": "UNKNOWN" if is_foreign(cluster, group) else "CLOUD",
    }
    return render_line(settings)


def _places(cluster: Cluster, group: str) -> Settings:
    """Where machines on premises are, if the file says it; nodes of ours are told of later."""
    known, names = cluster.groups[group].addresses, expand(fold(cluster.names(group)))
    if not is_foreign(cluster, group) or not all(name in known for name in names):
        return {}
    return {"NodeAddr": ",".join(known[name] for name in names)}


def _topology(flavors: Sequence[Flavor]) -> Settings:
    """Sockets, cores and threads, where all flavors tell the same of a node that has them."""
    told = {(flavor.cpus, flavor.sockets, flavor.threads) for flavor in flavors}
    cpus, sockets, threads = next(iter(told))
    if len(told) > 1 or threads is None or cpus % ((sockets or 1) * threads):
        return {}
    return {
        "Sockets": str(sockets or 1),
        "CoresPerSocket": str(cpus // ((sockets or 1) * threads)),
        "ThreadsPerCore": str(threads),
    }


def _gres(flavors: Sequence[Flavor]) -> list[str]:
    """What all of them have."""
    return [one for one in flavors[0].gres if all(one in other.gres for other in flavors)]


def _placeholder(cluster: Cluster) -> str:
    """Without any node slurmctld does not start; a future one is shown to nobody."""
    return render_line({"NodeName": f"{cluster.cluster}-none", "State": "FUTURE"})


def _partition_line(
    cluster: Cluster, version: Release, name: str, times: Mapping[str, str] | None, default: bool
) -> str:
    partition = cluster.partitions[name]
    nodes = [node for group in partition.groups for node in cluster.names(group)]
    changed = {key.lower() for key in partition.parameters}
    return render_line(
        {
            "PartitionName": name,
            **({"Nodes": fold(nodes)} if nodes else {}),
            "Default": "YES" if partition.default and default else "NO",
            **(one_job_at_a_time(version) if is_fresh(partition, cluster.groups) else {}),
            **{key: value for key, value in (times or {}).items() if key.lower() not in changed},
            **partition.parameters,
        }
    )


def is_foreign(cluster: Cluster, group: str) -> bool:
    return cluster.provider_of(group).kind == "none"
