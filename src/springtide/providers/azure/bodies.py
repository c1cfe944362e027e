"""What we ask Azure for: a launch becomes the body of a request. Pure."""

from base64 import b64encode
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

from springtide.ports import Launch, Rejected
from springtide.providers.azure import names
from springtide.providers.cloud import Catalog, script, tags
from springtide.spec.clouds import Azure

NETWORK_API = "2022-11-01"
MIB_OF_GIB = 1024
SPOT = {
    "priority": "Spot",
    "evictionPolicy": "Delete",
    "billingProfile": {"maxPrice": -1},
}
"""Evicted machines are gone, and cost nothing; the price is at most that of others."""


def machine(launch: Launch, wanted: Azure, catalog: Catalog, key: str) -> dict[str, Any]:
    properties = {
        "hardwareProfile": {"vmSize": catalog.flavor_type(launch)},
        "storageProfile": _storage(launch, wanted, catalog),
        "osProfile": _system(launch, wanted, key),
        "networkProfile": _network(launch, wanted),
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
        "userData": user_data(launch),
        **_market(launch),
    }
    body: dict[str, Any] = {
        "location": wanted.location,
        "tags": tags.own(launch),
        "properties": properties,
    }
    if launch.zone is not None:
        body["zones"] = [launch.zone]
    return _ours(merged(body, wanted.options), launch)


def _ours(body: Any, launch: Launch) -> dict[str, Any]:
    """Options may add tags, which are texts, but not say whose a machine is."""
    told = {key: text(value) for key, value in body["tags"].items()}
    return {**body, "tags": told | tags.own(launch)}


def text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def user_data(launch: Launch) -> str:
    """Not `customData`, which cloud-init would prefer and nobody can change later."""
    return b64encode(script.named(launch).encode()).decode()


def snapshot(disk: str, location: str, of: dict[str, str]) -> dict[str, Any]:
    return {
        "location": location,
        "tags": of,
        "properties": {
            "creationData": {"createOption": "Copy", "sourceResourceId": disk},
            "incremental": False,
        },
    }


def image(source: str, disk: Any, location: str, of: dict[str, str]) -> dict[str, Any]:
    """Generalized: machines made of it are told anew who they are."""
    system = {"osType": "Linux", "osState": "Generalized", "snapshot": {"id": source}}
    return {
        "location": location,
        "tags": of,
        "properties": {
            "storageProfile": {"osDisk": system, "zoneResilient": False},
            "hyperVGeneration": disk.get("hyperVGeneration") or "V1",
        },
    }


def merged(known: Any, wanted: Any) -> Any:
    """What is wanted wins: key by key, and in lists of mappings, such as interfaces, by place."""
    match known, wanted:
        case dict(), dict():
            both = {key: merged(known[key], wanted[key]) for key in known.keys() & wanted.keys()}
            return {**known, **wanted, **both}
        case [dict(), *_], [dict(), *_]:
            pairs: Iterable[tuple[Any, Any]] = zip_longest(known, wanted, fillvalue={})
            return [merged(one, other) for one, other in pairs]
    return wanted


def _storage(launch: Launch, wanted: Azure, catalog: Catalog) -> dict[str, Any]:
    disk: dict[str, Any] = {"createOption": "FromImage", "deleteOption": "Delete"}
    if wanted.disk is not None:
        disk["diskSizeGB"] = -(-wanted.disk // MIB_OF_GIB)
    return {"imageReference": names.image_reference(catalog.image_id(launch)), "osDisk": disk}


def _system(launch: Launch, wanted: Azure, key: str) -> dict[str, Any]:
    path = f"/home/{wanted.admin}/.ssh/authorized_keys"
    return {
        "computerName": names.computer_name(launch.node),
        "adminUsername": wanted.admin,
        "linuxConfiguration": {
            "disablePasswordAuthentication": True,
            "ssh": {"publicKeys": [{"path": path, "keyData": key}]},
        },
    }


def _network(launch: Launch, wanted: Azure) -> dict[str, Any]:
    address = {
        "name": "node",
        "properties": {"primary": True, "subnet": {"id": names.resource_id(wanted.subnet)}},
    }
    interface = {
        "name": names.machine_name(launch),
        "tags": tags.own(launch),
        "properties": {
            "primary": True,
            "deleteOption": "Delete",
            "ipConfigurations": [address],
        },
    }
    return {"networkApiVersion": NETWORK_API, "networkInterfaceConfigurations": [interface]}


def _market(launch: Launch) -> dict[str, Any]:
    match launch.market:
        case None | "on-demand":
            return {}
        case "spot":
            return SPOT
    raise Rejected(
        f"{launch.node}: Azure has no market {launch.market}; write `spot`, or leave it out"
    )
