"""What Azure answers: machines and interfaces become instances, flavors, images. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from springtide.ports import CloudFlavor, CloudImage, Instance, InstanceState
from springtide.providers.azure import names
from springtide.providers.cloud import Catalog, tags

Json = Mapping[str, Any]

ARCHITECTURES = {"x64": "x86_64", "Arm64": "aarch64"}
POWER = {
    "running": InstanceState.RUNNING,
    "starting": InstanceState.PENDING,
    "stopping": InstanceState.STOPPED,
    "stopped": InstanceState.STOPPED,
    "deallocating": InstanceState.STOPPED,
    "deallocated": InstanceState.STOPPED,
}
ALLOCATED = frozenset({"starting", "running"})


@dataclass(frozen=True, slots=True)
class Status:
    """The run time status of a machine."""

    power: str | None = None
    """None before it has a host."""
    succeeded: bool = False
    failure: str | None = None
    """The code of why it was not made."""
    said: str = ""

    @property
    def allocated(self) -> bool:
        """Whether it has a host: capacity is then no question any more."""
        return self.succeeded or self.power in ALLOCATED


def parse_status(machine: Json) -> Status:
    """Codes are such as ProvisioningState/failed/AllocationFailed and PowerState/running."""
    view = (machine.get("properties") or {}).get("instanceView") or {}
    power, failure, said, succeeded = None, None, "", False
    for status in view.get("statuses") or ():
        match str(status.get("code", "")).split("/"):
            case ["PowerState", state]:
                power = state.lower()
            case ["ProvisioningState", "failed", *code]:
                failure, said = "/".join(code) or "Failed", str(status.get("message") or "")
            case ["ProvisioningState", "succeeded", *_]:
                succeeded = True
    return Status(power, succeeded, failure, said)


def parse_state(provisioning: str, power: str | None) -> InstanceState:
    """A machine that runs is running, whatever became of what was last asked of it."""
    match provisioning.lower():
        case "deleting":
            return InstanceState.DELETING
        case "failed" | "canceled" if power not in ALLOCATED:
            return InstanceState.BROKEN
    return POWER.get(power or "", InstanceState.PENDING)


def instance(machine: Json, status: Status, address: str | None, catalog: Catalog) -> Instance:
    properties, own = machine["properties"], tagged(machine)
    created_at = parse_time(properties.get("timeCreated"))
    image = names.image_of((properties.get("storageProfile") or {}).get("imageReference"))
    size = (properties.get("hardwareProfile") or {}).get("vmSize")
    return Instance(
        id=machine["name"],
        cluster=own[tags.CLUSTER],
        node=own.get(tags.NODE) or str(machine["name"]),
        generation=parse_generation(own.get(tags.GENERATION)),
        state=parse_state(str(properties.get("provisioningState", "")), status.power),
        address=address,
        image=catalog.image_name(_as_written(image, catalog), own.get(tags.IMAGE)),
        flavor=catalog.flavor_name(size, own.get(tags.FLAVOR)),
        zone=next(iter(machine.get("zones") or ()), None),
        created_at=created_at,
        booted_at=created_at,
    )


def tagged(resource: Json) -> dict[str, str]:
    """Keys of tags know no case."""
    return {key.lower(): str(value) for key, value in (resource.get("tags") or {}).items()}


def parse_generation(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def parse_time(text: str | None) -> float:
    try:
        return datetime.fromisoformat(text).timestamp() if text else 0.0
    except ValueError:
        return 0.0


def addresses(interfaces: Iterable[Json]) -> dict[str, str]:
    """The first private address of each machine, by its resource id in lower case."""
    found: dict[str, str] = {}
    for interface in interfaces:
        properties = interface.get("properties") or {}
        owner = str((properties.get("virtualMachine") or {}).get("id", "")).lower()
        for config in properties.get("ipConfigurations") or ():
            address = (config.get("properties") or {}).get("privateIPAddress")
            if owner and address:
                found.setdefault(owner, str(address))
    return found


def image(found: Json) -> CloudImage:
    properties, own = found["properties"], tagged(found)
    return CloudImage(
        id=str(found["id"]).lstrip("/"),
        name=own.get(tags.IMAGE) or str(found["name"]),
        cluster=own.get(tags.CLUSTER, ""),
        created_at=float(own.get(CREATED) or 0.0),
        ready=properties.get("provisioningState") == "Succeeded",
        failed=properties.get("provisioningState") == "Failed",
        arch=own.get(ARCH, "x86_64"),
    )


CREATED = "springtide-created"
ARCH = "springtide-arch"
"""Images of Azure tell neither when they were made nor what for: their tags do."""


def flavor(sku: Json) -> CloudFlavor | None:
    """None if it is not a machine, or one whose size is not told."""
    if sku.get("resourceType") != "virtualMachines":
        return None
    has = {one["name"]: str(one["value"]) for one in sku.get("capabilities") or ()}
    try:
        cpus = int(has.get("vCPUsAvailable") or has["vCPUs"])
        memory = round(float(has["MemoryGB"]) * 1024)
        threads, gpus = int(has.get("vCPUsPerCore", 1)), int(has.get("GPUs", 0))
    except (KeyError, ValueError):
        return None
    arch = ARCHITECTURES.get(has.get("CpuArchitectureType", "x64"), "x86_64")
    return CloudFlavor(sku["name"], cpus, memory, arch, threads, gpus)


def _as_written(image: str | None, catalog: Catalog) -> str | None:
    """The id as the cluster file has it, if it is there."""
    known = catalog.image_ids()
    return next((id for id in known if image and names.same(id, image)), image)
