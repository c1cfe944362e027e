"""What EC2 says, in our words. Pure."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from springtide.ports import CloudFlavor, CloudImage, Instance, InstanceState
from springtide.providers.cloud import Catalog, roster, tags

NAME = "Name"
"""The tag that consoles show."""
BETWEEN_TYPES = "|"
LIVING = ("pending", "running", "shutting-down", "stopping", "stopped")
DEAD = ("shutting-down", "terminated")
SAME_START_S = 10.0
"""A machine that was stopped is not started again sooner than that."""
_STATES = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "shutting-down": InstanceState.DELETING,
    "terminated": InstanceState.DELETING,
    "stopping": InstanceState.STOPPED,
    "stopped": InstanceState.STOPPED,
}
_ARCHES = {"arm64": "aarch64", "aarch64": "aarch64"}

Raw = Mapping[str, Any]


def instance(raw: Raw, catalog: Catalog) -> Instance:
    """Whose roster or index makes no sense is nobody's: it is listed by its own id."""
    labels = tags_of(raw)
    node, generation = member(raw) or (raw["InstanceId"], 0)
    created_at, booted_at = _times(raw)
    return Instance(
        id=raw["InstanceId"],
        cluster=labels.get(tags.CLUSTER, ""),
        node=node,
        generation=generation,
        # A state that we do not know is one on the way to another.
        state=_STATES.get(state(raw), InstanceState.PENDING),
        address=raw.get("PrivateIpAddress"),
        image=catalog.image_name(raw.get("ImageId"), labels.get(tags.IMAGE)),
        flavor=flavor_name(raw.get("InstanceType"), labels.get(tags.FLAVOR), catalog),
        zone=raw.get("Placement", {}).get("AvailabilityZone"),
        created_at=created_at,
        booted_at=booted_at,
    )


def member(raw: Raw) -> roster.Member | None:
    """The node and generation it was made for: by its own tags, or by its place in a roster."""
    labels = tags_of(raw)
    generation = labels.get(tags.GENERATION, "")
    if tags.NODE in labels and generation.isdecimal():
        return labels[tags.NODE], int(generation)
    members = roster.read(labels)
    index = raw.get("AmiLaunchIndex", 0)
    return members[index] if index < len(members) else None


def tags_of(raw: Raw) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in raw.get("Tags", ())}


def state(raw: Raw) -> str:
    return str(raw.get("State", {}).get("Name", ""))


def is_dead(raw: Raw) -> bool:
    return state(raw) in DEAD


def is_spot(raw: Raw) -> bool:
    return raw.get("InstanceLifecycle") == "spot"


def types_of(flavor_type: str) -> list[str]:
    """A flavor may be any of several types."""
    return flavor_type.split(BETWEEN_TYPES)


def flavor_name(type: str | None, hint: str | None, catalog: Catalog) -> str | None:
    """What the cluster file calls it now; if nothing, its own name."""
    names = [name for name in catalog.flavors if type in types_of(catalog.type_of(name))]
    return hint if hint in names else next(iter(names), type)


def _times(raw: Raw) -> tuple[float, float]:
    """EC2 tells the last start; its first one is when the network was plugged in."""
    started_at = _seconds(raw.get("LaunchTime"))
    plugged = [
        _seconds(one.get("Attachment", {}).get("AttachTime"))
        for one in raw.get("NetworkInterfaces", ())
    ]
    created_at = min([at for at in plugged if at] + [started_at])
    if started_at - created_at < SAME_START_S:
        return created_at, created_at
    return created_at, started_at


def _seconds(at: datetime | None) -> float:
    return at.timestamp() if at else 0.0


def arch(name: str) -> str:
    return _ARCHES.get(name, name)


def flavor(raw: Raw, price: float | None = None) -> CloudFlavor:
    cpus = raw.get("VCpuInfo", {})
    arches = {arch(one) for one in raw.get("ProcessorInfo", {}).get("SupportedArchitectures", ())}
    return CloudFlavor(
        name=raw["InstanceType"],
        cpus=cpus.get("DefaultVCpus", 1),
        memory=raw.get("MemoryInfo", {}).get("SizeInMiB", 1),
        arch="aarch64" if "aarch64" in arches else "x86_64",
        threads=cpus.get("DefaultThreadsPerCore", 1),
        gpus=sum(one.get("Count", 0) for one in raw.get("GpuInfo", {}).get("Gpus", ())),
        price=price,
    )


def image(raw: Raw) -> CloudImage:
    labels = tags_of(raw)
    return CloudImage(
        id=raw["ImageId"],
        name=labels.get(NAME) or str(raw.get("Name", "")),
        cluster=labels.get(tags.CLUSTER, ""),
        created_at=_parsed(raw.get("CreationDate", "")),
        ready=raw.get("State") == "available",
        failed=raw.get("State") in ("failed", "invalid", "error"),
        arch=arch(raw.get("Architecture", "x86_64")),
    )


def _parsed(text: str) -> float:
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text):
        return 0.0
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
