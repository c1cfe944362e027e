"""The state of a cloud that behaves as OCI is documented to: `oci` speaks its protocol over it.

It is written for tests: what it does not know it refuses and remembers, so that the test fails.
"""

import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from threading import RLock
from typing import Any

from oci.core import models

Json = dict[str, Any]

REGION, COMPARTMENT = "us-phoenix-1", "ocid1.compartment.oc1..nodes"
SUBNET, OTHER_SUBNET = "ocid1.subnet.oc1.phx.one", "ocid1.subnet.oc1.phx.two"
DOMAINS = ("Uocm:PHX-AD-1", "Uocm:PHX-AD-2", "Uocm:PHX-AD-3")
IMAGE, OTHER_IMAGE, ARM_IMAGE = (f"ocid1.image.oc1.phx.{name}" for name in ("x86", "x86b", "arm"))
FLEX_OPTIONS = {
    "ocpuOptions": {"min": 1.0, "max": 64.0},
    "memoryOptions": {"minInGBs": 1.0, "maxInGBs": 1024.0},
}
SHAPES: dict[str, Json] = {
    "VM.Standard.E4.Flex": {
        "ocpus": 1.0,
        "memoryInGBs": 16.0,
        "quotaNames": ["standard-e4-core-count", "standard-e4-memory-count"],
        **FLEX_OPTIONS,
    },
    "VM.Standard.A1.Flex": {
        "ocpus": 1.0,
        "memoryInGBs": 6.0,
        "quotaNames": ["standard-a1-core-count", "standard-a1-memory-count"],
        **FLEX_OPTIONS,
    },
    "VM.Standard2.2": {"ocpus": 2.0, "memoryInGBs": 30.0, "quotaNames": ["standard2-core-count"]},
    "VM.GPU3.2": {"ocpus": 12.0, "memoryInGBs": 180.0, "gpus": 2, "quotaNames": ["gpu3-count"]},
}
REQUESTS: dict[str, Any] = {
    "": models.LaunchInstanceDetails,
    "shapeConfig": models.LaunchInstanceShapeConfigDetails,
    "sourceDetails": models.InstanceSourceViaImageDetails,
    "createVnicDetails": models.CreateVnicDetails,
    "preemptibleInstanceConfig": models.PreemptibleInstanceConfigDetails,
    "agentConfig": models.LaunchInstanceAgentConfigDetails,
}
"""What a launch may say, by part."""
START_S = STOP_S = IMAGE_S = 0.03


class Refusal(Exception):
    """An answer that is an error, as OCI words them."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def not_found() -> Refusal:
    return Refusal(
        404, "NotAuthorizedOrNotFound", "Authorization failed or requested resource not found."
    )


def full() -> Refusal:
    return Refusal(500, "InternalError", "Out of host capacity.")


def busy(what: str) -> Refusal:
    return Refusal(409, "IncorrectState", f"The {what} is not in a state that allows this")


@dataclass
class Thing:
    """Something that goes through states by itself."""

    id: str
    body: Json
    made_at: float = field(default_factory=time.time)
    since: float = field(default_factory=time.monotonic)
    states: list[tuple[float, str]] = field(default_factory=list)
    """Each from when on."""

    def turn(self, *states: str, pause_s: float = START_S) -> None:
        now = time.monotonic()
        self.states = [(now + number * pause_s, state) for number, state in enumerate(states)]

    @property
    def state(self) -> str:
        now = time.monotonic()
        return [state for at, state in self.states if at <= now][-1]

    def shown(self) -> Json:
        made_at = datetime.fromtimestamp(self.made_at, UTC).isoformat()
        return {
            **self.body,
            "id": self.id,
            "lifecycleState": self.state,
            "timeCreated": made_at,
        }


@dataclass
class Machine(Thing):
    """An instance, with its interface and address."""

    number: int = 0
    boots: int = 1

    @property
    def address(self) -> str:
        return f"10.0.{self.number // 250}.{self.number % 250 + 2}"

    @property
    def living(self) -> bool:
        return self.state != "TERMINATED"

    @property
    def user_data(self) -> str:
        return b64decode(self.body["metadata"]["user_data"]).decode()


class OciCloud:
    """One compartment of one tenancy."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.machines: dict[str, Machine] = {}
        self.images: dict[str, Thing] = {}
        self.histories: dict[str, Thing] = {}
        self.tokens: dict[str, tuple[Json, str]] = {}
        self.limits: dict[str, float] = {}
        """Of each availability domain; those left out are far away."""
        self.compartments = [COMPARTMENT]
        self.protected: set[str] = set()
        """Instances that nobody may delete."""
        self.refusals: list[Refusal] = []
        """Of the next launches."""
        self.throttled = 0
        """So many calls to come."""
        self.lost = 0
        """So many launches to come are made, and not answered."""
        self.lag_s = 0.0
        """Instances are listed so much later than they are made."""
        self.image_s = IMAGE_S
        """Images take so long."""
        self.page = 400
        self.calls: list[str] = []
        self.wrong: list[str] = []
        """Requests that no such cloud knows."""
        self._numbers = count(1)
        for id, arch in ((IMAGE, "x86"), (OTHER_IMAGE, "x86"), (ARM_IMAGE, "arm")):
            self._add_image(id, {"displayName": f"Linux {arch}", "compartmentId": None})

    # --- instances ---------------------------------------------------------------------------

    def launch(self, body: Json, token: str | None) -> Json:
        if self.refusals:
            raise self.refusals.pop(0)
        self._check_launch(body)
        if (known := self._once(body, token)) is not None:
            return self.machines[known].shown()
        self._check_limits(body)
        number = next(self._numbers)
        machine = Machine(f"ocid1.instance.oc1.phx.{number:08}", self._made(body), number=number)
        machine.turn("PROVISIONING", "RUNNING")
        self.machines[machine.id] = machine
        self._remember(body, token, machine.id)
        return machine.shown()

    def list_instances(self, query: Mapping[str, str]) -> list[Json]:
        seen = time.monotonic() - self.lag_s
        return [one.shown() for one in self.machines.values() if one.since <= seen]

    def instance(self, id: str) -> Machine:
        machine = self.machines.get(id)
        if machine is None or not machine.living:
            raise not_found()
        return machine

    def terminate(self, id: str, query: Mapping[str, str]) -> None:
        """Whoever keeps boot volumes pays for them: nobody here wants that."""
        machine = self.instance(id)
        if query.get("preserveBootVolume") != "false":
            raise self._unheard_of("TerminateInstance that keeps the boot volume")
        if id in self.protected:
            raise not_found()
        if machine.state == "TERMINATING":
            raise busy("instance")
        machine.turn("TERMINATING", "TERMINATED", pause_s=STOP_S)

    def act(self, id: str, action: str) -> Json:
        machine = self.instance(id)
        if machine.state != {"RESET": "RUNNING", "START": "STOPPED"}.get(action):
            raise busy("instance")
        machine.boots += 1
        machine.turn("STARTING", "RUNNING")
        return machine.shown()

    def attachments(self, query: Mapping[str, str]) -> list[Json]:
        return [
            {
                "id": f"{one.id}.attachment",
                "instanceId": one.id,
                "compartmentId": COMPARTMENT,
                "availabilityDomain": one.body["availabilityDomain"],
                "subnetId": one.body["createVnicDetails"]["subnetId"],
                "vnicId": f"{one.id}.vnic",
                "lifecycleState": "ATTACHED" if one.state != "TERMINATING" else "DETACHING",
                "timeCreated": one.shown()["timeCreated"],
            }
            for one in self.machines.values()
            if one.living
        ]

    def private_ips(self, query: Mapping[str, str]) -> list[Json]:
        """A secondary address of each comes last, to be passed over."""
        return [
            {"ipAddress": address, "vnicId": f"{one.id}.vnic", "isPrimary": address == one.address}
            for one in self.machines.values()
            if one.living and one.body["createVnicDetails"]["subnetId"] == query["subnetId"]
            for address in (one.address, one.address.replace("10.", "172.", 1))
        ]

    # --- what is beside them -----------------------------------------------------------------

    def shapes(self, query: Mapping[str, str]) -> list[Json]:
        """Of an image, those that it runs on."""
        image = query.get("imageId")
        return [
            {"shape": name, "gpus": 0, **shape}
            for name, shape in SHAPES.items()
            if image is None or (".A1." in name) == (image == ARM_IMAGE)
        ]

    def subnet(self, id: str) -> Json:
        if id not in (SUBNET, OTHER_SUBNET):
            raise not_found()
        block = "10.0.0.0/16"
        state = {"lifecycleState": "AVAILABLE", "displayName": "nodes", "cidrBlock": block}
        return {"id": id, **state}

    def availability(self, limit: str, domain: str) -> Json:
        living = [one.body for one in self.machines.values() if one.living]
        used = sum(self._used(body, limit, domain) for body in living)
        if not any(limit in shape["quotaNames"] for shape in SHAPES.values()):
            raise not_found()
        return {"used": int(used), "available": int(self.limits.get(limit, 1e6) - used)}

    def create_image(self, body: Json, token: str | None) -> Json:
        self.instance(body["instanceId"])
        if (known := self._once(body, token)) is not None:
            return self.images[known].shown()
        image = self._add_image(f"ocid1.image.oc1.phx.{next(self._numbers)}", body)
        image.turn("PROVISIONING", "AVAILABLE", pause_s=self.image_s)
        self._remember(body, token, image.id)
        return image.shown()

    def image(self, id: str) -> Thing:
        image = self.images.get(id)
        if image is None or image.state == "DELETED":
            raise not_found()
        return image

    def capture(self, body: Json) -> Json:
        machine = self.instance(body["instanceId"])
        if machine.state == "PROVISIONING":
            raise busy("instance")
        id = f"ocid1.consolehistory.oc1.phx.{next(self._numbers)}"
        history = self.histories[id] = Thing(id, {"instanceId": machine.id})
        history.turn("REQUESTED", "GETTING-HISTORY", "SUCCEEDED", pause_s=0.01)
        return history.shown()

    def history(self, id: str) -> Thing:
        if id not in self.histories:
            raise not_found()
        return self.histories[id]

    def said(self, id: str) -> bytes:
        """More than anybody wants to read."""
        machine = self.machines[self.history(id).body["instanceId"]]
        name = machine.body["displayName"]
        return b"Booting\n" * 4000 + f"{name} login: (boot {machine.boots})\n".encode()

    # --- for tests ---------------------------------------------------------------------------

    def stop(self, id: str) -> None:
        with self.lock:
            self.machines[id].turn("STOPPED")

    def lose(self, id: str) -> None:
        """OCI gives up an instance by itself, as when a host fails while it provisions."""
        with self.lock:
            self.machines[id].turn("TERMINATED")

    def nodes(self, cluster: str, node: str) -> Iterator[Machine]:
        for one in [*self.machines.values()]:
            tags = one.body["freeformTags"]
            if (tags.get("springtide-cluster"), tags.get("springtide-node")) == (cluster, node):
                yield one

    # --- inside ------------------------------------------------------------------------------

    def _add_image(self, id: str, body: Json) -> Thing:
        image = self.images[id] = Thing(id, body)
        image.turn("AVAILABLE")
        return image

    def _once(self, body: Json, token: str | None) -> str | None:
        """What the same request made before. A token is good for one request."""
        if token is None or token not in self.tokens:
            return None
        before, id = self.tokens[token]
        if before != body:
            raise Refusal(409, "InvalidatedRetryToken", "The retry token was used by another")
        return id

    def _remember(self, body: Json, token: str | None, id: str) -> None:
        if token is not None:
            self.tokens[token] = body, id

    def _made(self, body: Json) -> Json:
        size = body.get("shapeConfig") or SHAPES[body["shape"]]
        config = {"ocpus": float(size["ocpus"]), "memoryInGBs": float(size["memoryInGBs"])}
        image = body["sourceDetails"]["imageId"]
        return {**body, "region": "phx", "imageId": image, "shapeConfig": config}

    def _check_launch(self, body: Json) -> None:
        for part, model in REQUESTS.items():
            said = body.get(part, {}) if part else body
            unknown = said.keys() - set(model().attribute_map.values())
            if unknown:
                raise self._unheard_of(f"LaunchInstance: {part} {sorted(unknown)}")
        if body["compartmentId"] not in self.compartments:
            raise not_found()
        self.image(body["sourceDetails"]["imageId"])
        self.subnet(body["createVnicDetails"]["subnetId"])
        if body["shape"] not in SHAPES or body["availabilityDomain"] not in DOMAINS:
            raise Refusal(400, "InvalidParameter", f"Invalid shape {body['shape']} or domain")
        if body["shape"].endswith(".Flex") != ("shapeConfig" in body):
            raise Refusal(400, "InvalidParameter", "shapeConfig is for flexible shapes")

    def _unheard_of(self, what: str) -> Refusal:
        self.wrong.append(what)
        return Refusal(400, "InvalidParameter", what)

    def _check_limits(self, body: Json) -> None:
        made, domain = self._made(body), body["availabilityDomain"]
        for limit in self.limits.keys() & set(SHAPES[body["shape"]]["quotaNames"]):
            if self.availability(limit, domain)["available"] < _units(made, limit):
                raise Refusal(400, "LimitExceeded", f"The following limits are exceeded: {limit}")

    def _used(self, body: Json, limit: str, domain: str) -> float:
        here = body["availabilityDomain"] == domain
        return _units(body, limit) if here and limit in SHAPES[body["shape"]]["quotaNames"] else 0.0


def _units(body: Json, limit: str) -> float:
    size: Json = body["shapeConfig"]
    units: Mapping[str, Callable[[], Any]] = {
        "memory-count": lambda: size["memoryInGBs"],
        "core-count": lambda: size["ocpus"],
        "gpu3-count": lambda: SHAPES[body["shape"]]["gpus"],
    }
    return next(float(of()) for name, of in units.items() if limit.endswith(name))
