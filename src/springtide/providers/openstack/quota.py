"""What a project's quota has left for a cluster; pure. What others use of it counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from springtide.ports import Check, CloudFlavor
from springtide.providers.openstack.api import Json

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class Use:
    """Of a quota: servers, CPUs, MiB."""

    instances: int = 0
    cores: int = 0
    memory: int = 0

    def __add__(self, other: "Use") -> "Use":
        return Use(
            self.instances + other.instances,
            self.cores + other.cores,
            self.memory + other.memory,
        )

    @classmethod
    def of(cls, count: int, sizes: Sequence[CloudFlavor]) -> "Use":
        """Of so many nodes, all of the largest of these sizes."""
        return cls(
            count,
            count * max((one.cpus for one in sizes), default=0),
            count * max((one.memory for one in sizes), default=0),
        )


def used_by(servers: Sequence[Json]) -> Use:
    """What they take up already."""
    sizes = [one.get("flavor", {}) for one in servers]
    return Use(
        len(sizes),
        sum(int(one.get("vcpus", 0)) for one in sizes),
        sum(int(one.get("ram", 0)) for one in sizes),
    )


def check_quotas(limits: Mapping[str, int], wanted: Use, ours: Use, grouped: bool) -> list[Check]:
    """`limits` are those of Nova; ours are counted in them, and in what is wanted."""
    rows = [
        ("instances", "maxTotalInstances", "totalInstancesUsed", wanted.instances, ours.instances),
        ("cores", "maxTotalCores", "totalCoresUsed", wanted.cores, ours.cores),
        ("ram", "maxTotalRAMSize", "totalRAMUsed", wanted.memory, ours.memory),
    ]
    checks = [
        _check(name, limits.get(limit, UNLIMITED), limits.get(used, 0) - own, need)
        for name, limit, used, need, own in rows
    ]
    members = limits.get("maxServerGroupMembers", UNLIMITED)
    if grouped:
        checks.append(_check("server group members", members, 0, wanted.instances))
    return checks


def _check(name: str, limit: int, others: int, need: int) -> Check:
    called, others = f"cloud quota of {name}", max(others, 0)
    if limit == UNLIMITED:
        return Check(called, True, "it has no limit")
    text = f"{need} may be needed, others use {others} of {limit}"
    if need + others <= limit:
        return Check(called, True, text)
    todo = f"ask for {need + others}, or lower the groups' counts in the file"
    return Check(called, False, text, todo)
