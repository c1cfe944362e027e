"""OpenStack's answers as values of ours; pure."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from springtide.ports import CloudFlavor, CloudImage, Instance, InstanceState, Rejected
from springtide.providers.cloud import Catalog, tags
from springtide.providers.openstack.api import Json
from springtide.providers.openstack.identity import IMAGE_ID, ZONE, member_of

_S = InstanceState
STATES = {
    "ACTIVE": _S.RUNNING,
    "BUILD": _S.PENDING,
    "DELETED": _S.DELETING,
    "ERROR": _S.BROKEN,
    "HARD_REBOOT": _S.PENDING,
    "MIGRATING": _S.RUNNING,
    "PASSWORD": _S.RUNNING,
    "PAUSED": _S.STOPPED,
    "REBOOT": _S.PENDING,
    "REBUILD": _S.PENDING,
    "RESCUE": _S.BROKEN,
    "RESIZE": _S.PENDING,
    "REVERT_RESIZE": _S.PENDING,
    "SHELVED": _S.STOPPED,
    "SHELVED_OFFLOADED": _S.STOPPED,
    "SHUTOFF": _S.STOPPED,
    "SOFT_DELETED": _S.DELETING,
    "SUSPENDED": _S.STOPPED,
    "VERIFY_RESIZE": _S.RUNNING,
}
"""What Nova may say of a server; what else it says counts as on its way."""

_GOING = ("deleting", "soft-deleting")
_STARTING = ("reboot", "rebuild", "powering-on")
"""What tasks begin with that end in a server that runs."""
_ARCHES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


Refs = Mapping[str, Sequence[str]]
"""What the cluster file calls images by, their ids or names, by Glance's id."""


def parse_server(server: Json, catalog: Catalog, refs: Refs) -> Instance:
    metadata: Mapping[str, str] = server.get("metadata", {})
    node, generation = member_of(server)
    image = (server.get("image") or {}).get("id") or metadata.get(IMAGE_ID)
    flavor = server.get("flavor", {}).get("original_name")
    created_at = parse_time(server.get("created"))
    return Instance(
        id=server["id"],
        cluster=metadata.get(tags.CLUSTER, ""),
        node=node,
        generation=generation,
        state=state_of(server),
        address=address_of(server),
        image=image_name(image, metadata.get(tags.IMAGE), catalog, refs),
        flavor=catalog.flavor_name(flavor, metadata.get(tags.FLAVOR)),
        zone=metadata.get(ZONE),
        created_at=created_at,
        booted_at=created_at,
    )


def image_name(id: str | None, hint: str | None, catalog: Catalog, refs: Refs) -> str | None:
    """What the cluster file calls it now: of several names, the one that it was made by."""
    names = [catalog.image_name(ref, hint) for ref in refs.get(id or "", ())]
    return hint if hint in names else next(iter(names), id)


def state_of(server: Json) -> InstanceState:
    """Nova shows only by its task that a server is going, or that a dead one is started again."""
    task = server.get("OS-EXT-STS:task_state") or ""
    if task.startswith(_GOING):
        return InstanceState.DELETING
    if task.startswith(_STARTING):
        return InstanceState.PENDING
    return STATES.get(server.get("status", ""), InstanceState.PENDING)


def address_of(server: Json) -> str | None:
    """A fixed one; IPv4 if it has one."""
    fixed = [
        one
        for some in server.get("addresses", {}).values()
        for one in some
        if one.get("OS-EXT-IPS:type", "fixed") == "fixed"
    ]
    fixed.sort(key=lambda one: int(one.get("version", 4)))
    return str(fixed[0]["addr"]) if fixed else None


def fault_of(server: Json) -> str:
    return str((server.get("fault") or {}).get("message", ""))


def parse_image(image: Json) -> CloudImage:
    return CloudImage(
        id=image["id"],
        name=image.get("name") or image["id"],
        cluster=image.get(tags.CLUSTER, ""),
        created_at=parse_time(image.get("created_at")),
        ready=image.get("status") == "active",
        failed=image.get("status") == "killed",
        arch=_arch(image.get("architecture")),
    )


def parse_flavor(flavor: Json) -> CloudFlavor:
    extra: Mapping[str, str] = flavor.get("extra_specs", {})
    return CloudFlavor(
        name=flavor["name"],
        cpus=int(flavor["vcpus"]),
        memory=int(flavor["ram"]),
        arch=_arch(extra.get("hw:architecture") or extra.get("capabilities:cpu_info:arch")),
        threads=_threads(extra.get("hw:cpu_threads", "1")),
        gpus=gpus_of(extra),
    )


def gpus_of(extra: Mapping[str, str]) -> int:
    """PCI devices by their alias, `a100:2,nic:1`, where its name tells, and virtual ones."""
    count = 0
    for part in extra.get("pci_passthrough:alias", "").split(","):
        alias, _, number = part.strip().partition(":")
        if alias and not re.search(r"nic|net|vf|nvme|ssd|fpga|qat", alias, re.I):
            count += int(number) if number.isdecimal() else 1
    virtual = (n for key, n in extra.items() if re.fullmatch(r"resources\d*:V?P?GPU", key))
    return count + sum(int(number) for number in virtual if number.isdecimal())


def parse_time(text: str | None) -> float:
    """Nova and Glance tell UTC."""
    try:
        told = datetime.fromisoformat(text or "")
    except ValueError:
        return 0.0
    return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()


def one_of(found: Json | None, what: str) -> Json:
    if found is None:
        raise Rejected(f"the project sees no {what}, or several of that name; use its id")
    return found


def _arch(text: str | None) -> str:
    return _ARCHES.get((text or "").lower(), text or "x86_64")


def _threads(text: str) -> int:
    return int(text) if text.isdecimal() and int(text) else 1
