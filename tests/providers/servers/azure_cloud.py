"""A subscription of Azure for tests: what there is in it, and its moods. `azure` serves it.

Written from the documented shapes; bodies of requests are held against the SDK's own, which are
made from Azure's specification. What it does not know it refuses, and keeps in `unknown`.
"""

import base64
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any
from urllib.parse import urlencode

from azure.mgmt.compute import types as shapes

TOKEN = "a-token-of-tests"
SUBSCRIPTION = "00000000-1111-2222-3333-444444444444"
GROUP = "hpc"
LOCATION = "westeurope"
SCOPE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
SUBNET = f"{SCOPE}/providers/Microsoft.Network/virtualNetworks/net/subnets/nodes"
URN = "Canonical:ubuntu-24_04-lts:server:latest"
OTHER = f"{SCOPE}/providers/Microsoft.Compute/images/other"
GALLERY = f"{SCOPE}/providers/Microsoft.Compute/galleries/site/images/arm"
OLDEST = {"Compute": "2021-07-01", "Network": "2022-11-01", "Authorization": "2022-04-01"}
"""The first versions of these services that know all that we ask."""


def sku(name: str, cpus: int, gib: float, family: str, **more: str) -> dict[str, Any]:
    has = {"vCPUs": str(cpus), "MemoryGB": str(gib), "CpuArchitectureType": "x64", **more}
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "family": family,
        "locations": [LOCATION],
        "locationInfo": [{"location": LOCATION, "zones": ["1", "2"]}],
        "capabilities": [{"name": key, "value": value} for key, value in has.items()],
        "restrictions": [],
    }


SKUS = [
    sku("Standard_D2s_v5", 2, 8, "standardDSv5Family", vCPUsPerCore="2"),
    sku("Standard_D4ps_v5", 4, 16, "standardDPSv5Family", CpuArchitectureType="Arm64"),
    sku("Standard_NC24ads_A100_v4", 24, 220, "StandardNCADSA100v4Family", GPUs="1"),
    {"resourceType": "disks", "name": "Premium_LRS", "locations": [LOCATION]},
]


class Refusal(Exception):
    """An error in Azure's own words."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass(slots=True)
class Machine:
    """A virtual machine."""

    name: str
    body: dict[str, Any]
    address: str
    created_at: float
    visible_at: float
    allocated_at: float
    ready_at: float
    busy: str = "Creating"
    power: str = "running"
    failure: Refusal | None = None
    gone_at: float | None = None
    boots: list[tuple[float, str]] = field(default_factory=list)

    def provisioning(self, now: float) -> str:
        if self.gone_at is not None:
            return "Deleting"
        if self.failure:
            return "Failed" if now >= self.allocated_at else "Creating"
        return "Succeeded" if now >= self.ready_at else self.busy

    def statuses(self, now: float) -> list[dict[str, str]]:
        state = self.provisioning(now).lower()
        if self.failure and state == "failed":
            code = f"ProvisioningState/failed/{self.failure.code}"
            return [{"code": code, "level": "Error", "message": self.failure.message}]
        found = [{"code": f"ProvisioningState/{state}", "level": "Info"}]
        if now >= self.allocated_at and not self.failure:
            power = "starting" if self.power == "running" and now < self.ready_at else self.power
            found.append({"code": f"PowerState/{power}", "level": "Info"})
        return found

    def model(self, now: float) -> dict[str, Any]:
        wanted = self.body["properties"]
        disk = f"{SCOPE}/providers/Microsoft.Compute/disks/{self.name}_OsDisk_1"
        storage = wanted["storageProfile"]
        properties = {
            **{key: value for key, value in wanted.items() if key != "userData"},
            "storageProfile": {
                **storage,
                "osDisk": {**storage["osDisk"], "managedDisk": {"id": disk}},
            },
            "networkProfile": {"networkInterfaces": [{"id": interface_id(self.name)}]},
            "provisioningState": self.provisioning(now),
            "timeCreated": datetime.fromtimestamp(self.created_at, UTC).isoformat(),
            "vmId": f"vm-{self.name}",
        }
        return {**self.body, **identity("virtualMachines", self.name), "properties": properties}

    def user_data(self, now: float) -> str:
        """What it booted with last."""
        told = [data for at, data in self.boots if at <= now and not self.failure]
        return base64.b64decode(told[-1]).decode() if told else ""


def identity(kind: str, name: str) -> dict[str, str]:
    id = f"{SCOPE}/providers/Microsoft.Compute/{kind}/{name}"
    return {"id": id, "name": name, "type": f"Microsoft.Compute/{kind}"}


def interface_id(machine: str) -> str:
    return f"{SCOPE}/providers/Microsoft.Network/networkInterfaces/{machine}-4f2c"


@dataclass(slots=True)
class Ask:
    """A request, as the functions that answer it see it."""

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any]
    only_new: bool = False
    """If-None-Match: *"""
    parts: tuple[str, ...] = ()


@dataclass(slots=True)
class Answer:
    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


Route = Callable[["AzureServer", Ask], Answer]
ROUTES: list[tuple[str, re.Pattern[str], Route]] = []


def route(method: str, path: str) -> Callable[[Route], Route]:
    pattern = re.compile(path.replace("*", "([^/]+)"), re.IGNORECASE)

    def add(answer: Route) -> Route:
        ROUTES.append((method, pattern, answer))
        return answer

    return add


class AzureServer:
    """One subscription, and what tests can have it do."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.unknown: list[str] = []
        self.address = ""
        self.reset()

    def reset(self) -> None:
        self.machines: dict[str, Machine] = {}
        self.made: dict[str, dict[str, dict[str, Any]]] = {"images": {}, "snapshots": {}}
        self.made["images"]["other"] = {
            **identity("images", "other"),
            "properties": {"provisioningState": "Succeeded"},
        }
        self.interfaces_left: dict[str, dict[str, Any]] = {}
        self.operations: dict[str, tuple[float, Refusal | None]] = {}
        self.numbers = count(1)
        self.calls: list[str] = []
        self.page = 250
        self.allocate_s, self.boot_s, self.delete_s, self.hide_s = 0.02, 0.02, 0.04, 0.0
        self.refusals: list[tuple[Refusal, bool]] = []
        """For the next machines; True: Azure takes the request, and fails afterwards."""
        self.throttles = 0
        self.lose = 0
        self.limits = {"cores": 5000, "standardDSv5Family": 4000, "lowPriorityCores": 100}
        self.others_cores = 8
        self.rights: list[dict[str, Any]] = [{"actions": ["*"], "notActions": []}]
        self.skus = [dict(one) for one in SKUS]

    # --- machines ---

    def living(self) -> list[Machine]:
        now = time.time()
        with self.lock:
            for name, one in list(self.machines.items()):
                if one.gone_at is not None and one.gone_at <= now:
                    del self.machines[name]
            return list(self.machines.values())

    def machine(self, name: str) -> Machine:
        with self.lock:
            self.living()
            if name.lower() not in self.machines:
                raise Refusal(404, "ResourceNotFound", f"The Resource {name} was not found.")
            return self.machines[name.lower()]

    def put(self, name: str, body: dict[str, Any], only_new: bool) -> Answer:
        if not only_new:
            self.unknown.append(f"a change of {name}")
        check_body("VirtualMachine", body)
        check_machine(self, body)
        now = time.time()
        self.living()
        known = self.machines.get(name.lower())
        if known is not None:
            raise Refusal(412, "PreconditionFailed", f"The resource '{name}' exists.")
        refusal, later = self.refusals.pop(0) if self.refusals else (None, False)
        if refusal and not later:
            raise refusal
        number = next(self.numbers)
        allocated_at = now + self.allocate_s
        made = Machine(
            name,
            body,
            f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
            now,
            now + self.hide_s,
            allocated_at,
            allocated_at + self.boot_s,
            failure=refusal,
        )
        made.boots.append((made.ready_at, body["properties"].get("userData", "")))
        self.machines[name.lower()] = made
        return Answer(201, made.model(now), self.operation(made.ready_at, refusal))

    def operation(self, done_at: float, error: Refusal | None = None) -> dict[str, str]:
        id = f"op-{next(self.numbers)}"
        self.operations[id] = done_at, error
        path = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/{LOCATION}"
        link = f"{self.address}{path}/operations/{id}?api-version=2026-04-01"
        return {"Azure-AsyncOperation": link, "Location": link}

    def paged(self, ask: Ask, items: list[Any]) -> Answer:
        start = int(ask.query.get("$skiptoken", 0))
        body: dict[str, Any] = {"value": items[start : start + self.page]}
        if start + self.page < len(items):
            query = urlencode({**ask.query, "$skiptoken": start + self.page})
            body["nextLink"] = f"{self.address}{ask.path}?{query}"
        return Answer(200, body)

    # --- requests ---

    def answer(self, ask: Ask, token: str | None) -> Answer:
        with self.lock:
            self.calls.append(f"{ask.method} {ask.path}")
            try:
                return self._answer(ask, token)
            except Refusal as refusal:
                error = {"code": refusal.code, "message": refusal.message}
                headers = (
                    {
                        "Retry-After": "7",
                        "x-ms-ratelimit-remaining-resource": "Microsoft.Compute/PutVM;0",
                    }
                    if refusal.status == 429
                    else {}
                )
                return Answer(refusal.status, {"error": error}, headers)

    def loses(self) -> bool:
        """Whether this answer is to be lost; of several at once, no more than are to be."""
        with self.lock:
            losing = self.lose > 0
            self.lose -= losing
            return losing

    def _answer(self, ask: Ask, token: str | None) -> Answer:
        if ask.path.startswith("/blobs/"):
            return self.blob(ask, token)
        if token != f"Bearer {TOKEN}":
            raise Refusal(401, "InvalidAuthenticationToken", "The access token is invalid.")
        if self.throttles:
            self.throttles -= 1
            raise Refusal(429, "TooManyRequests", "Too many requests. Try later.")
        check_version(ask)
        for method, pattern, answer in ROUTES:
            if method == ask.method and (match := pattern.fullmatch(ask.path)):
                ask.parts = match.groups()
                return answer(self, ask)
        self.unknown.append(f"{ask.method} {ask.path} {ask.query}")
        raise Refusal(400, "InvalidResourceType", f"{ask.method} {ask.path} is not known.")

    def blob(self, ask: Ask, token: str | None) -> Answer:
        if token is not None:
            self.unknown.append(f"a token sent to {ask.path}")
        machine = self.machine(ask.path.removeprefix("/blobs/"))
        return Answer(200, f"cloud-init of {machine.name}: booted\n".encode())


def check_version(ask: Ask) -> None:
    services = re.findall(r"/providers/Microsoft\.(\w+)/", ask.path)
    oldest = OLDEST.get(services[-1] if services else "", "2020-01-01")
    version = ask.query.get("api-version", "")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", version) or version < oldest:
        raise Refusal(400, "InvalidApiVersionParameter", f"The api-version '{version}' is invalid.")


def check_body(shape: str, body: dict[str, Any]) -> None:
    for unknown in unknown_members(shape, body):
        message = f"Could not find member '{unknown}' on object of type '{shape}'"
        raise Refusal(400, "InvalidRequestContent", message)


def unknown_members(shape: str, value: dict[str, Any]) -> Iterator[str]:
    """Held against the SDK's own shapes, which say what there is in words of the protocol."""
    known = getattr(shapes, shape).__annotations__
    for key, item in value.items():
        if key not in known:
            yield key
            continue
        words = re.findall(r"\w+", str(known[key]))
        inner = next((word for word in words if isinstance(getattr(shapes, word, 0), type)), None)
        for one in item if isinstance(item, list) else [item]:
            if inner and isinstance(one, dict):
                yield from unknown_members(inner, one)


def check_machine(server: AzureServer, body: dict[str, Any]) -> None:
    properties = body["properties"]
    size = properties["hardwareProfile"]["vmSize"]
    if size not in {one["name"] for one in server.skus}:
        raise Refusal(400, "InvalidParameter", f"The value {size} provided for the VM size is bad.")
    image = properties["storageProfile"]["imageReference"]
    urn = ":".join(image.get(key, "") for key in ("publisher", "offer", "sku", "version"))
    if image.get("id", "").lower() != OTHER.lower() and urn != URN:
        raise Refusal(404, "PlatformImageNotFound", f"The platform image '{urn}' is not available.")
    system = properties["osProfile"]
    if "adminPassword" in system or not system["linuxConfiguration"]["ssh"]["publicKeys"]:
        raise Refusal(400, "InvalidParameter", "Authentication using SSH must be enabled.")
    network = properties["networkProfile"]
    (interface,) = network["networkInterfaceConfigurations"]
    (address,) = interface["properties"]["ipConfigurations"]
    if network.get("networkApiVersion") not in ("2020-11-01", "2022-11-01"):
        raise Refusal(400, "InvalidParameter", "networkApiVersion is required.")
    if address["properties"]["subnet"]["id"] != SUBNET:
        raise Refusal(400, "InvalidResourceReference", "The subnet was not found.")
