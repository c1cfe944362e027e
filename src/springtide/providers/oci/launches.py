"""A launch as a request to OCI, and OCI's answers as instances: no calls are made here."""

import math
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from springtide.ports import Instance, InstanceState, Launch, Rejected
from springtide.providers.cloud import Catalog, script, tags
from springtide.providers.oci.shapes import parse_shape, render_shape
from springtide.spec.clouds import Oci

ZONE = "springtide-zone"
"""The launch's word for its availability domain."""
PREEMPTIBLE = "preemptible"
MARKETS = (None, "on-demand", PREEMPTIBLE)
GIB = 1024
TERMINATED = "TERMINATED"
STATES: Mapping[str, InstanceState] = {
    "PROVISIONING": InstanceState.PENDING,
    "STARTING": InstanceState.PENDING,
    "MOVING": InstanceState.PENDING,
    "CREATING_IMAGE": InstanceState.PENDING,
    # A reset stops and starts; one that stays off is STOPPED soon.
    "STOPPING": InstanceState.PENDING,
    "RUNNING": InstanceState.RUNNING,
    "STOPPED": InstanceState.STOPPED,
    "TERMINATING": InstanceState.DELETING,
    TERMINATED: InstanceState.DELETING,
}
"""Others, which OCI may come to have, are waited for."""


def decide_token(launch: Launch) -> str:
    """The same launch has the same token, so that OCI makes no second instance for it.

    The choice is part of it: OCI refuses a token that comes again with another request.
    """
    choice = (launch.image, launch.flavor, launch.zone or "", launch.market or "")
    return token(launch.cluster, launch.node, str(launch.generation), *choice)


def token(*parts: str) -> str:
    """OCI takes up to 64 characters."""
    return sha256("\0".join(parts).encode()).hexdigest()


def decide_domain(zone: str | None, known: Sequence[str]) -> str:
    """The availability domain: by its name, or the end of it, such as AD-1 or 1."""
    if zone is None and known:
        return known[0]
    for name in known:
        if zone and (
            name == zone or name.upper().endswith((f":{zone}".upper(), f"-{zone}".upper()))
        ):
            return name
    raise Rejected(f"OCI has no availability domain {zone} here; it has: {', '.join(known)}")


def render_launch(
    launch: Launch, wanted: Oci, catalog: Catalog, domain: str, key: str | None
) -> dict[str, Any]:
    """The request, with the file's options; what says whose it is cannot be overridden."""
    if launch.market not in MARKETS:
        raise Rejected(
            f"{launch.node}: OCI has no market {launch.market}; it has {PREEMPTIBLE} and on-demand"
        )
    shape = parse_shape(catalog.flavor_type(launch))
    disk = {"bootVolumeSizeInGBs": math.ceil(wanted.disk / GIB)} if wanted.disk else {}
    request: dict[str, Any] = {
        "availabilityDomain": domain,
        "compartmentId": wanted.compartment,
        "displayName": f"{launch.cluster}-{launch.node}",
        "shape": shape.name,
        "sourceDetails": {"sourceType": "image", "imageId": catalog.image_id(launch), **disk},
        "createVnicDetails": {"subnetId": _subnet(launch, wanted, domain), "assignPublicIp": False},
    }
    if shape.config:
        request["shapeConfig"] = shape.config
    if launch.market == PREEMPTIBLE:
        action = {"type": "TERMINATE", "preserveBootVolume": False}
        request["preemptibleInstanceConfig"] = {"preemptionAction": action}
    return merged(merged(request, wanted.options), _identity(launch, key))


def _identity(launch: Launch, key: str | None) -> dict[str, Any]:
    metadata = {"user_data": b64encode(script.named(launch).encode()).decode()}
    zone = {ZONE: launch.zone} if launch.zone else {}
    return {
        "freeformTags": {**tags.own(launch), **zone},
        "metadata": {**metadata, **({"ssh_authorized_keys": key} if key else {})},
    }


def _subnet(launch: Launch, wanted: Oci, domain: str) -> str:
    """Of the zone, whichever way the file calls it."""
    for zone, subnet in wanted.subnets.items():
        if zone == launch.zone or decide_matches(zone, domain):
            return subnet
    return wanted.subnet


def decide_matches(zone: str, domain: str) -> bool:
    try:
        return decide_domain(zone, [domain]) == domain
    except Rejected:
        return False


def merged(request: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Both; mappings become one, of all else what is named later counts."""
    both = dict(request)
    for key, value in more.items():
        old = both.get(key)
        nested = isinstance(old, Mapping) and isinstance(value, Mapping)
        both[key] = merged(old, value) if nested and isinstance(old, Mapping) else value
    return both


def is_ours(listed: Any, cluster: str) -> bool:
    """Of those that OCI lists: it shows what is gone for hours."""
    known = listed.freeform_tags or {}
    marked = known.get(tags.CLUSTER) == cluster and tags.NODE in known
    return marked and listed.lifecycle_state != TERMINATED


def parse_instance(listed: Any, address: str | None, catalog: Catalog) -> Instance:
    """One of ours."""
    known = listed.freeform_tags
    size = listed.shape_config
    shape = render_shape(listed.shape, getattr(size, "ocpus", None), _memory(size))
    created_at = listed.time_created.timestamp()
    return Instance(
        id=listed.id,
        cluster=known[tags.CLUSTER],
        node=known[tags.NODE],
        generation=_number(known.get(tags.GENERATION, "")),
        state=STATES.get(listed.lifecycle_state, InstanceState.PENDING),
        address=address,
        image=catalog.image_name(_image(listed), known.get(tags.IMAGE)),
        flavor=catalog.flavor_name(shape, known.get(tags.FLAVOR)),
        zone=known.get(ZONE) or listed.availability_domain,
        created_at=created_at,
        booted_at=created_at,
    )


def _image(listed: Any) -> str | None:
    image: str | None = listed.image_id or getattr(listed.source_details, "image_id", None)
    return image


def _memory(size: Any) -> float | None:
    memory: float | None = getattr(size, "memory_in_gbs", None)
    return memory


def _number(text: str) -> int:
    """Of a tag that somebody may have changed: 0 is nobody's generation."""
    return int(text) if text.isdecimal() else 0


def decide_addresses(
    attachments: Iterable[Any], addresses: Iterable[Any], subnets: Iterable[str]
) -> dict[str, str]:
    """Where instances are, by id: the primary address of the first interface on our subnets."""
    of_interface = {one.vnic_id: one.ip_address for one in addresses if one.is_primary}
    ours, found = set(subnets), dict[str, str]()
    for one in sorted(attachments, key=lambda one: one.time_created.timestamp()):
        attached = one.lifecycle_state in ("ATTACHING", "ATTACHED")
        if attached and one.subnet_id in ours and one.vnic_id in of_interface:
            found.setdefault(one.instance_id, of_interface[one.vnic_id])
    return found
