"""Google's answers as instances, images and flavors; pure."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from springtide.ports import CloudFlavor, CloudImage, Instance, InstanceState
from springtide.providers.google import names

SINGLE_THREADED = ("t2d", "t2a", "h3", "h4d", "c4a", "n4a")
"""Families whose virtual CPUs are whole cores; of all others each is a thread of two."""
ARCHES = {"ARM64": "aarch64", "X86_64": "x86_64"}
GONE = "DEPROVISIONING"
STATES: Mapping[str, InstanceState] = {
    "PENDING": InstanceState.PENDING,
    "PROVISIONING": InstanceState.PENDING,
    "STAGING": InstanceState.PENDING,
    "RUNNING": InstanceState.RUNNING,
    # Both of one that is deleted and of one that shuts down by itself: it is soon clear which.
    "STOPPING": InstanceState.DELETING,
    "PENDING_STOP": InstanceState.DELETING,
    GONE: InstanceState.DELETING,
    "SUSPENDING": InstanceState.STOPPED,
    "SUSPENDED": InstanceState.STOPPED,
    "STOPPED": InstanceState.STOPPED,
    "TERMINATED": InstanceState.STOPPED,
    "REPAIRING": InstanceState.BROKEN,
}
FIELDS = (
    "nextPageToken,unreachables,warning/code,items/*/warning/code,items/*/instances("
    "name,zone,status,description,machineType,creationTimestamp,lastStartTimestamp,"
    "lastStopTimestamp,networkInterfaces/networkIP)"
)
"""Of a list of instances; the scripts in their metadata are long."""


def instance(cluster: str, seen: Mapping[str, Any]) -> tuple[Instance, Mapping[str, Any]]:
    """With Google's image id and type, and what its description says; LookupError if not ours."""
    facts = names.read_description(seen.get("description"))
    name = str(seen["name"])
    member = names.member_of(cluster, name, facts)
    if member is None:
        raise LookupError(name)
    zone = last(seen.get("zone"))
    created_at = time(seen.get("creationTimestamp"))
    cards = seen.get("networkInterfaces") or [{}]
    instance = Instance(
        id=f"{zone}/{name}",
        cluster=cluster,
        node=member[0],
        generation=member[1],
        state=STATES.get(str(seen.get("status")), InstanceState.PENDING),
        address=cards[0].get("networkIP"),
        image=str(facts.get("image_id", "")) or None,
        flavor=last(seen.get("machineType")) or None,
        zone=zone,
        created_at=created_at,
        booted_at=_booted_at(seen, created_at),
    )
    return instance, facts


def _booted_at(seen: Mapping[str, Any], created_at: float) -> float:
    """Google tells starts after stops; of resets it tells nothing."""
    stopped, started = seen.get("lastStopTimestamp"), seen.get("lastStartTimestamp")
    return max(created_at, time(started)) if stopped and started else created_at


def image(cluster: str, seen: Mapping[str, Any], project: str) -> CloudImage:
    name = str(seen["name"])
    facts = names.read_description(seen.get("description"))
    return CloudImage(
        id=f"projects/{project}/global/images/{name}",
        name=str(facts.get("name") or name),
        cluster=cluster,
        created_at=time(seen.get("creationTimestamp")),
        ready=seen.get("status") == "READY",
        failed=seen.get("status") == "FAILED",
        arch=arch(seen),
    )


def arch(seen: Mapping[str, Any]) -> str:
    return ARCHES.get(str(seen.get("architecture")), "x86_64")


def flavor(seen: Mapping[str, Any]) -> CloudFlavor:
    name, cpus = str(seen["name"]), int(seen["guestCpus"])
    cards = (int(each.get("guestAcceleratorCount", 0)) for each in seen.get("accelerators") or ())
    single = name.split("-")[0] in SINGLE_THREADED or cpus < 2
    return CloudFlavor(
        name=name,
        cpus=cpus,
        memory=int(seen["memoryMb"]),
        arch=arch(seen),
        threads=1 if single else 2,
        gpus=sum(cards),
    )


def time(text: object) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


def last(url: object) -> str:
    """The name at the end of an address."""
    return str(url or "").rsplit("/", 1)[-1]


def image_path(project: str, id: str) -> str:
    """Any way of writing an image, as `projects/P/global/images/NAME` (or family/NAME)."""
    if found := re.fullmatch(r"(?:.*/)?projects/([^/]+)/global/images/(.+)", id):
        return f"projects/{found[1]}/global/images/{found[2]}"
    return f"projects/{project}/global/images/{id.removeprefix('global/images/')}"


def family_of(path: str) -> bool:
    return "/images/family/" in path
