"""What a small Google has: instances, operations, images, quotas; time passes when it is looked at.

Operations go PENDING, RUNNING, DONE, a step each time they or their instances are looked at.
"""

import re
import threading
import uuid
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

PROJECT = "tide-test"
REGION = "europe-west4"
ZONES = (f"{REGION}-a", f"{REGION}-b", f"{REGION}-c", "us-east1-b")
ROOT = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}"
SUBNETWORK = f"regions/{REGION}/subnetworks/nodes"
MACHINES = {
    "n2-standard-4": {"guestCpus": 4, "memoryMb": 16384, "architecture": "X86_64"},
    "e2-standard-2": {"guestCpus": 2, "memoryMb": 8192, "architecture": "X86_64"},
    "t2a-standard-4": {"guestCpus": 4, "memoryMb": 16384, "architecture": "ARM64"},
    "a2-highgpu-1g": {
        "guestCpus": 12,
        "memoryMb": 87040,
        "architecture": "X86_64",
        "accelerators": [{"guestAcceleratorType": "nvidia-tesla-a100", "guestAcceleratorCount": 1}],
    },
}
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL = re.compile(r"[a-z0-9_-]{0,63}")
STEPS = ("PENDING", "RUNNING", "DONE")
BOOTING = ("PROVISIONING", "STAGING", "RUNNING")
LEAVING = 2
"""An instance that is deleted is listed so often."""


class Refused(Exception):
    """A call is answered with an error."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


@dataclass
class Operation:
    shown: dict[str, Any]
    step: int = 0
    stuck: bool = False
    errors: list[dict[str, str]] = field(default_factory=list)

    def look(self) -> dict[str, Any]:
        """As it is now; it is further along next time."""
        status = STEPS[min(self.step, 2)]
        self.step += not self.stuck
        answer = {**self.shown, "status": status, "progress": 50 * STEPS.index(status)}
        if status == "DONE" and self.errors:
            answer["error"] = {"errors": self.errors}
        return answer


@dataclass
class Machine:
    """An instance."""

    shown: dict[str, Any]
    making: Operation
    hidden: int = 0
    """So many lists do not show it yet."""
    leaving: int | None = None
    script: str = ""
    """What it booted with."""
    status: str | None = None

    def look(self) -> dict[str, Any]:
        status = self.status or BOOTING[min(self.making.step, 2)]
        return {**self.shown, "status": "STOPPING" if self.leaving is not None else status}


class State:
    """All of it; callers hold `lock`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.machines: dict[tuple[str, str], Machine] = {}
        self.operations: dict[str, Operation] = {}
        self.requests: dict[str, str] = {}
        self.images: dict[str, dict[str, Any]] = {}
        self.families: dict[str, str] = {}
        self.limits: dict[str, float] = {"INSTANCES": 5000, "CPUS": 40000, "N2_CPUS": 40000}
        self.room: dict[str, int] = {}
        """So many more instances fit into a zone."""
        self.denied: set[str] = set()
        """Rights that we do not have."""
        self.lag = 0
        """So many lists do not show what was just made."""
        self.stuck = False
        """Operations that begin now do not go on."""
        self.late_conflicts = False
        """Names that are taken are told in the operation."""
        self.unreachable: str | None = None
        """A zone that lists cannot reach."""
        self.failing: list[dict[str, str]] = []
        """Why the next launch makes nothing."""
        self.snapshot: list[tuple[str, dict[str, Any]]] = []
        """What the pages of a list are cut from."""
        self._addresses = 0
        self.add_image("debian-12-v1", family="debian-12")
        self.add_image("rocky-9-v1")
        self.add_image("debian-12-arm", arch="ARM64")

    # --- what tests do to it ---

    def add_image(self, name: str, family: str | None = None, arch: str = "X86_64") -> None:
        shown = {"name": name, "status": "READY", "architecture": arch, "id": number()}
        shown["selfLink"] = f"{ROOT}/global/images/{name}"
        shown["creationTimestamp"] = now()
        if family:
            shown["family"] = family
            self.families[family] = name
        self.images[name] = shown

    def machine(self, id: str) -> Machine:
        zone, name = id.split("/")
        return self.machines[zone, name]

    def stop(self, id: str) -> None:
        """It shut down by itself."""
        with self.lock:
            machine = self.machine(id)
            machine.status = "TERMINATED"
            machine.shown["lastStopTimestamp"] = now()

    def preempt(self, id: str) -> None:
        with self.lock:
            machine = self.machine(id)
            action = machine.shown["scheduling"]["instanceTerminationAction"]
            assert action == "DELETE"
            machine.leaving = LEAVING

    # --- what calls do to it ---

    def operate(
        self, type: str, link: str, zone: str | None, request: str | None = None
    ) -> Operation:
        name = f"operation-{uuid.uuid4()}"
        shown: dict[str, Any] = {
            "kind": "compute#operation",
            "name": name,
            "id": number(),
            "operationType": type,
            "targetLink": link,
            "insertTime": now(),
        }
        if zone:
            shown["zone"] = f"{ROOT}/zones/{zone}"
        if request:
            shown["clientOperationId"] = request
            self.requests[request] = name
        self.operations[name] = Operation(shown, stuck=self.stuck)
        return self.operations[name]

    def make(self, zone: str, name: str, properties: dict[str, Any], making: Operation) -> None:
        self._addresses += 1
        third, last = divmod(self._addresses, 250)
        wanted = deepcopy(properties)
        script = _script(wanted.get("metadata", {}))
        disk = wanted.pop("disks")[0]
        shown = {
            **wanted,
            "kind": "compute#instance",
            "id": number(),
            "name": name,
            "zone": f"{ROOT}/zones/{zone}",
            "machineType": f"{ROOT}/zones/{zone}/machineTypes/{wanted['machineType']}",
            "selfLink": f"{ROOT}/zones/{zone}/instances/{name}",
            "creationTimestamp": now(),
            "lastStartTimestamp": now(),
            "metadata": {**wanted.get("metadata", {}), "fingerprint": number()},
            "networkInterfaces": [
                {**each, "name": "nic0", "networkIP": f"10.{third // 250}.{third % 250}.{last + 2}"}
                for each in wanted["networkInterfaces"]
            ],
            "disks": [
                {
                    "boot": True,
                    "autoDelete": disk["autoDelete"],
                    "source": f"{ROOT}/zones/{zone}/disks/{name}",
                    "type": "PERSISTENT",
                }
            ],
        }
        self.machines[zone, name] = Machine(shown, making, hidden=self.lag, script=script)

    def set_metadata(self, machine: Machine, body: dict[str, Any]) -> None:
        if body.get("fingerprint") != machine.shown["metadata"]["fingerprint"]:
            raise Refused(412, "conditionNotMet", "Supplied fingerprint does not match.")
        machine.shown["metadata"] = {"items": body["items"], "fingerprint": number()}

    def boot(self, machine: Machine) -> None:
        machine.status = "RUNNING"
        machine.script = _script(machine.shown["metadata"])

    def listed(self) -> list[tuple[str, Machine]]:
        """All that lists show, by zone; time passes with it."""
        for operation in self.operations.values():
            operation.step += not operation.stuck
        for key, machine in [*self.machines.items()]:
            if machine.leaving is not None:
                machine.leaving -= 1
                if machine.leaving < 0:
                    del self.machines[key]
        shown = [
            (zone, each) for (zone, _), each in sorted(self.machines.items()) if not each.hidden
        ]
        for machine in self.machines.values():
            machine.hidden = max(0, machine.hidden - 1)
        return shown

    def usage(self) -> Counter[str]:
        used: Counter[str] = Counter()
        for machine in self.machines.values():
            kind = machine.shown["machineType"].rsplit("/", 1)[-1]
            family = f"{kind.split('-')[0].upper()}_CPUS"
            metric = family if family in self.limits else "CPUS"
            used += Counter({"INSTANCES": 1, metric: int(str(MACHINES[kind]["guestCpus"]))})
        return used


def _script(metadata: dict[str, Any]) -> str:
    items = {item["key"]: item["value"] for item in metadata.get("items", ())}
    assert all(len(value.encode()) <= 256 << 10 for value in items.values())
    return str(items.get("startup-script", ""))


def number() -> str:
    return str(uuid.uuid4().int % 10**18 + 1)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
