"""What each call of the small Google does. `CALLS` has all that it knows."""

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.providers.servers.google_state import (
    LABEL,
    LEAVING,
    MACHINES,
    NAME,
    PROJECT,
    REGION,
    ROOT,
    SUBNETWORK,
    ZONES,
    Machine,
    Operation,
    Refused,
    State,
    now,
    number,
)

_TERM = r'([\w.-]+) = "([^"]*)"'
EMPTY = {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results on this page."}
STOCKOUT = {
    "code": "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    "message": "The zone does not have enough resources available to fulfill the request.",
}
QUOTA = {"code": "QUOTA_EXCEEDED", "message": "Quota 'INSTANCES' exceeded."}
TAKEN = {"code": "RESOURCE_ALREADY_EXISTS", "message": "The resource already exists"}
TOO_FEW = {
    "code": "VM_MIN_COUNT_NOT_REACHED",
    "message": "Requested minimum count of 1 VMs could not be created.",
}


@dataclass(frozen=True)
class Call:
    """What a request names, asks and sends."""

    named: dict[str, str]
    query: dict[str, str]
    body: Any


# --- instances ---------------------------------------------------------------------------


def bulk_insert(state: State, call: Call) -> Any:
    request = call.query.get("requestId")
    if request:
        assert str(uuid.UUID(request)) == request
        if request in state.requests:
            return state.operations[state.requests[request]].look()
    zone, body = call.named["zone"], call.body
    wanted = _checked(state, zone, body)
    taken = [name for name in wanted if (zone, name) in state.machines]
    if taken and not state.late_conflicts:
        link = f"projects/{PROJECT}/zones/{zone}/instances/{taken[0]}"
        raise Refused(409, "alreadyExists", f"The resource '{link}' already exists")
    bulk = state.operate("bulkInsert", f"{ROOT}/zones/{zone}", zone, request)
    bulk.shown["operationGroupId"] = group = str(uuid.uuid4())
    made = [name for name in wanted if _insert(state, zone, name, body, group, bulk)]
    status = {"targetVmCount": len(wanted), "createdVmCount": len(made), "status": "DONE"}
    status["failedToCreateVmCount"] = len(wanted) - len(made)
    bulk.shown["instancesBulkInsertOperationMetadata"] = {
        "perLocationStatus": {f"zones/{zone}": status}
    }
    if not made:
        bulk.errors = [TOO_FEW, *state.failing]
    state.failing = []
    return bulk.look()


def _insert(state: State, zone: str, name: str, body: Any, group: str, bulk: Operation) -> bool:
    """One of them, with its own operation; whether it was made."""
    single = state.operate("insert", f"{ROOT}/zones/{zone}/instances/{name}", zone)
    single.shown["operationGroupId"] = group
    single.step = 1
    if state.failing:
        single.errors = state.failing
    elif (zone, name) in state.machines:
        single.errors = [TAKEN]
    elif len(state.machines) >= state.limits["INSTANCES"]:
        single.errors = [QUOTA]
    elif state.room.get(zone, 1) <= 0:
        single.errors = [STOCKOUT]
    if single.errors:
        return False
    if zone in state.room:
        state.room[zone] -= 1
    state.make(zone, name, body["instanceProperties"], bulk)
    return True


def _checked(state: State, zone: str, body: Any) -> list[str]:
    """The names; raises what Google would say of a request that is not right."""
    properties, wanted = body["instanceProperties"], [*body["perInstanceProperties"]]
    disk = properties["disks"][0]["initializeParams"]
    image = disk["sourceImage"].rsplit("/", 1)[-1]
    faults = [
        ("zone", zone not in ZONES),
        ("count", not int(body.get("minCount", 1)) <= int(body["count"]) == len(wanted) <= 1000),
        ("names", not all(map(NAME.fullmatch, wanted))),
        ("labels", not all(map(LABEL.fullmatch, properties["labels"].values()))),
        ("machineType", properties["machineType"] not in MACHINES),
        ("diskType", "/" in disk["diskType"]),
        ("diskSizeGb", int(disk.get("diskSizeGb", 10)) < 10),
        ("description", len(properties.get("description", "")) > 2048),
        ("subnetwork", not properties["networkInterfaces"][0]["subnetwork"].endswith(SUBNETWORK)),
    ]
    for name, wrong in faults:
        if wrong:
            raise Refused(400, "invalid", f"Invalid value for field 'resource.{name}'.")
    if image not in state.images or "/family/" in disk["sourceImage"]:
        raise Refused(404, "notFound", f"The resource '{disk['sourceImage']}' was not found")
    return wanted


def aggregated(state: State, call: Call) -> Any:
    start = int(call.query.get("pageToken", 0))
    size = int(call.query["maxResults"])
    assert size <= 500
    wanted = _filter(call.query.get("filter", ""))
    if not start:
        state.snapshot = [
            (zone, each.look()) for zone, each in state.listed() if _passes(each, wanted)
        ]
    page = state.snapshot[start : start + size]
    scopes: dict[str, Any] = {}
    for zone in ZONES:
        inside = [shown for where, shown in page if where == zone]
        scopes[f"zones/{zone}"] = {"instances": inside} if inside else {"warning": EMPTY}
    answer: dict[str, Any] = {"kind": "compute#instanceAggregatedList", "items": scopes}
    if state.unreachable:
        warning = {"code": "UNREACHABLE", "message": "The zone cannot be reached."}
        scopes[f"zones/{state.unreachable}"] = {"warning": warning}
    if start + size < len(state.snapshot):
        answer["nextPageToken"] = str(start + size)
    return answer


def _filter(text: str) -> dict[str, str]:
    """Strictly what Google documents: one comparison, or several in parentheses."""
    single = re.fullmatch(_TERM, text)
    if single:
        return {single[1]: single[2]}
    assert re.fullmatch(rf"(?:\({_TERM}\) ?)+", text), f"no filter: {text!r}"
    return dict(re.findall(_TERM, text))


def _passes(machine: Machine, wanted: dict[str, str]) -> bool:
    return _has_labels(machine.shown, wanted)


def _has_labels(shown: dict[str, Any], wanted: dict[str, str]) -> bool:
    assert all(key.startswith("labels.") for key in wanted)
    labels = shown.get("labels", {})
    return all(labels.get(key.removeprefix("labels.")) == value for key, value in wanted.items())


def _instance(state: State, call: Call) -> Machine:
    zone, name = call.named["zone"], call.named["instance"]
    if (zone, name) not in state.machines:
        link = f"projects/{PROJECT}/zones/{zone}/instances/{name}"
        raise Refused(404, "notFound", f"The resource '{link}' was not found")
    return state.machines[zone, name]


def get_instance(state: State, call: Call) -> Any:
    return _instance(state, call).look()


def delete_instance(state: State, call: Call) -> Any:
    machine = _instance(state, call)
    if machine.leaving is None:
        machine.leaving = LEAVING
    return state.operate("delete", machine.shown["selfLink"], call.named["zone"]).look()


def _ready(state: State, call: Call, *states: str) -> Machine:
    machine = _instance(state, call)
    if machine.look()["status"] not in states:
        raise Refused(400, "resourceNotReady", "The resource is not ready")
    return machine


def set_metadata(state: State, call: Call) -> Any:
    machine = _ready(state, call, "RUNNING", "TERMINATED")
    state.set_metadata(machine, call.body)
    return state.operate("setMetadata", machine.shown["selfLink"], call.named["zone"]).look()


def reset(state: State, call: Call) -> Any:
    """Which changes no time that Google tells."""
    machine = _ready(state, call, "RUNNING")
    state.boot(machine)
    return state.operate("reset", machine.shown["selfLink"], call.named["zone"]).look()


def start(state: State, call: Call) -> Any:
    machine = _ready(state, call, "TERMINATED")
    machine.shown["lastStartTimestamp"] = now()
    state.boot(machine)
    return state.operate("start", machine.shown["selfLink"], call.named["zone"]).look()


def serial_port(state: State, call: Call) -> Any:
    machine = _instance(state, call)
    text = "boot\n" * 8000 + f"login: {machine.shown['name']}\n"
    begin = int(call.query.get("start", 0))
    kept = text[begin:]
    return {"contents": kept, "start": str(len(text) - len(kept)), "next": str(len(text))}


# --- operations --------------------------------------------------------------------------


def operation(state: State, call: Call) -> Any:
    return state.operations[call.named["operation"]].look()


def operations(state: State, call: Call) -> Any:
    wanted = _filter(call.query["filter"])
    found = [
        each.look()
        for each in state.operations.values()
        if all(each.shown.get(key) == value for key, value in wanted.items())
    ]
    first = int(call.query.get("pageToken", 0))
    size = int(call.query["maxResults"])
    answer: dict[str, Any] = {"items": found[first : first + size]}
    if first + size < len(found):
        answer["nextPageToken"] = str(first + size)
    return answer


# --- images ------------------------------------------------------------------------------


def _image(state: State, name: str) -> dict[str, Any]:
    if name not in state.images:
        raise Refused(404, "notFound", f"The resource 'images/{name}' was not found")
    return state.images[name]


def get_image(state: State, call: Call) -> Any:
    return _image(state, call.named["image"])


def get_family(state: State, call: Call) -> Any:
    return _image(state, state.families.get(call.named["family"], "none"))


def insert_image(state: State, call: Call) -> Any:
    body = call.body
    if body["name"] in state.images:
        raise Refused(409, "alreadyExists", f"The resource '{body['name']}' already exists")
    zone, disk = re.findall(r"zones/([^/]+)/disks/([^/]+)$", body["sourceDisk"])[0]
    machine = state.machines[zone, disk]
    if machine.look()["status"] == "RUNNING" and call.query.get("forceCreate") != "true":
        raise Refused(400, "resourceInUseByAnotherResource", "The disk is being used")
    link = f"{ROOT}/global/images/{body['name']}"
    more = {"status": "PENDING", "id": number(), "selfLink": link, "creationTimestamp": now()}
    state.images[body["name"]] = {**body, **more}
    return state.operate("insert", link, None).look()


def list_images(state: State, call: Call) -> Any:
    wanted = _filter(call.query["filter"])
    found = [each for each in state.images.values() if _has_labels(each, wanted)]
    answer = {"items": [dict(each) for each in found]} if found else {"warning": EMPTY}
    for each in found:
        each["status"] = "READY"
    return answer


def delete_image(state: State, call: Call) -> Any:
    shown = _image(state, call.named["image"])
    del state.images[shown["name"]]
    return state.operate("delete", shown["selfLink"], None).look()


# --- what there is -----------------------------------------------------------------------


def get_project(state: State, call: Call) -> Any:
    return {"name": PROJECT, "kind": "compute#project"}


def get_zone(state: State, call: Call) -> Any:
    zone = call.named["zone"]
    if zone not in ZONES:
        raise Refused(404, "notFound", f"The resource 'zones/{zone}' was not found")
    region = zone.rsplit("-", 1)[0]
    return {"name": zone, "status": "UP", "region": f"{ROOT}/regions/{region}"}


def get_region(state: State, call: Call) -> Any:
    used = state.usage()
    quotas = [
        {"metric": key, "limit": limit, "usage": used[key]} for key, limit in state.limits.items()
    ]
    return {"name": call.named["region"], "quotas": quotas}


def get_subnetwork(state: State, call: Call) -> Any:
    at = f"regions/{call.named['region']}/subnetworks/{call.named['subnetwork']}"
    if at != SUBNETWORK:
        raise Refused(404, "notFound", f"The resource '{at}' was not found")
    return {"name": "nodes", "region": f"{ROOT}/regions/{REGION}", "ipCidrRange": "10.0.0.0/8"}


def subnetwork_rights(state: State, call: Call) -> Any:
    return {"permissions": [one for one in call.body["permissions"] if one not in state.denied]}


def get_machine(state: State, call: Call) -> Any:
    name = call.named["machineType"]
    if name not in MACHINES:
        raise Refused(404, "notFound", f"The resource 'machineTypes/{name}' was not found")
    return {"name": name, **MACHINES[name]}


def list_machines(state: State, call: Call) -> Any:
    """Two on a page."""
    first = int(call.query.get("pageToken", 0))
    items = [{"name": name, **each} for name, each in MACHINES.items()]
    answer: dict[str, Any] = {"items": items[first : first + 2]}
    if first + 2 < len(items):
        answer["nextPageToken"] = str(first + 2)
    return answer


CALLS: dict[str, Callable[[State, Call], Any]] = {
    "instances.bulkInsert": bulk_insert,
    "instances.aggregatedList": aggregated,
    "instances.get": get_instance,
    "instances.delete": delete_instance,
    "instances.setMetadata": set_metadata,
    "instances.reset": reset,
    "instances.start": start,
    "instances.getSerialPortOutput": serial_port,
    "zoneOperations.wait": operation,
    "zoneOperations.list": operations,
    "images.get": get_image,
    "images.getFromFamily": get_family,
    "images.insert": insert_image,
    "images.list": list_images,
    "images.delete": delete_image,
    "projects.get": get_project,
    "zones.get": get_zone,
    "regions.get": get_region,
    "subnetworks.get": get_subnetwork,
    "subnetworks.testIamPermissions": subnetwork_rights,
    "machineTypes.get": get_machine,
    "machineTypes.list": list_machines,
}
