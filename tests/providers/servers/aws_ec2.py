"""What moto's EC2 lacks, around it: time, room, tokens, fleets, placement groups.

Instances are pending, stopping and shutting down for a moment, and lists may lag behind. Launches
with the same token are the same, and get as many instances as there is room for.
"""

import threading
import time
import xml.etree.ElementTree as ET
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from moto.core.types import Base64EncodedString
from moto.core.utils import utcnow
from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import Instance, InstanceState

ACCOUNT, REGION = "123456789012", "eu-west-1"
NS = "http://ec2.amazonaws.com/doc/2016-11-15"
CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}
CODES |= {"stopping": 64, "stopped": 80}
PENDING_S = STOPPING_S = GOING_S = 0.03
RUNNING = b"<code>16</code><name>running</name>"
PENDING = b"<code>0</code><name>pending</name>"
IMAGE_GIB = "8"
TYPES = (("c5.large", "c5.xlarge"), ("g4dn.xlarge",), ("c6g.large",))
PAGE = 4
"""Reservations on a page, at most."""

Form = dict[str, str]
Forward = Callable[[dict[str, Any], Form], tuple[int, bytes]]


class Refusal(Exception):
    """An error that the service answers."""

    def __init__(self, code: str, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.code, self.status = code, status


class Ec2:
    """One account in one region, fresh. What tests do to it has the lock of who answers calls."""

    def __init__(self, forward: Forward, lock: threading.RLock) -> None:
        setattr(Instance, "get_tags", _tags_of)  # noqa: B010 - mypy knows no other way
        ec2_backends[ACCOUNT][REGION].reset()
        self.backend: Any = ec2_backends[ACCOUNT][REGION]
        self.lags = False
        """As long as it is so, nothing shows what is made meanwhile."""
        self.room: dict[tuple[str, str], int] = {}
        """How many instances of a type a zone has room for; no limit if not said."""
        self.groups: dict[str, str] = {}
        """Placement groups and their strategies."""
        self.placed: dict[str, str] = {}
        self.protected: set[str] = set()
        """Instances that must not be terminated."""
        self.booted: dict[str, str] = {}
        """The user data that instances booted with last."""
        self.requests: list[Form] = []
        """Launches, as they were asked for."""
        self.console = "booted\n"
        self._forward = forward
        self._lock = lock
        self._tokens: dict[str, tuple[Form, list[str], str]] = {}
        self._due: list[tuple[float, str, str]] = []
        self._late: set[str] = set()

    def answer(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        """Time stands still within a list: moto looks for what the page before ended with."""
        if "NextToken" not in form:
            self._age()
        own = getattr(self, f"_{form['Action']}", None)
        if own is None:
            return self._forward(environ, form)
        answer: tuple[int, bytes] = own(environ, form)
        return answer

    # What tests look at and do

    def instances(self) -> list[Instance]:
        with self._lock:
            return [one for some in self.backend.reservations.values() for one in some.instances]

    def living(self) -> list[Instance]:
        going = ("shutting-down", "terminated")
        with self._lock:
            self._age()
            return [one for one in self.instances() if one.state not in going]

    def die(self, id: str) -> None:
        """By itself: its kernel halts."""
        with self._lock:
            self._becomes(self.backend.get_instance(id), "stopped")

    def take(self, id: str) -> None:
        """A spot instance that the cloud wants back."""
        with self._lock:
            self._end(self.backend.get_instance(id))

    # Calls

    def _RunInstances(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        self.requests.append(form)
        if form.get("DryRun") == "true":
            return self._forward(environ, _sized(form))
        known = self._same(form)
        if known is not None:
            return self._reservation(environ, known[1])
        zone = self._zone(form.get("SubnetId", ""))
        granted = self._granted(form.get("InstanceType", ""), zone, int(form["MaxCount"]))
        if granted < int(form["MinCount"]):
            text = f"We currently do not have sufficient capacity in {zone}"
            raise Refusal("InsufficientInstanceCapacity", text, 500)
        made, answer = self._run(environ, form, granted)
        self._tokens[form["ClientToken"]] = form, made, ""
        return 200, answer.replace(RUNNING, PENDING)

    def _run(self, environ: dict[str, Any], form: Form, count: int) -> tuple[list[str], bytes]:
        """By moto, so many; then they are pending for a moment."""
        group = form.get("Placement.GroupName")
        if group and group not in self.groups:
            raise Refusal("InvalidPlacementGroup.Unknown", f"there is no group {group}")
        status, body = self._forward(environ, _sized(form) | {"MinCount": str(count)})
        root = ET.fromstring(body)  # noqa: S314 - our own server's
        if status != 200:
            raise Refusal(_text(root, "Code"), _text(root, "Message"), status)
        made = [one.text or "" for one in root.iter(f"{{{NS}}}instanceId")]
        for id in made:
            self._begin(self.backend.get_instance(id), group)
        return made, body

    def _begin(self, one: Instance, group: str | None) -> None:
        for nic in one.nics.values():
            nic.attach_time = one.launch_time
        if self.lags:
            self._late.add(one.id)
        if group:
            self.placed[one.id] = group
        self._becomes(one, "pending", PENDING_S, "running")

    def _same(self, form: Form) -> tuple[Form, list[str], str] | None:
        known = self._tokens.get(form["ClientToken"])
        if known is not None and known[0] != form:
            raise Refusal("IdempotentParameterMismatch", "the token came with other parameters")
        return known

    def _granted(self, type: str, zone: str, wanted: int) -> int:
        room = self.room.get((type, zone), wanted)
        granted = min(wanted, room)
        if (type, zone) in self.room:
            self.room[type, zone] = room - granted
        return granted

    def _CreateFleet(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        """Pools are filled in the order they are named in."""
        self.requests.append(form)
        if form.get("DryRun") == "true":
            return self._forward(environ, form)
        known = self._same(form)
        if known is not None:
            return 200, known[2].encode()
        head = "LaunchTemplateConfigs.1."
        left = int(form["TargetCapacitySpecification.TotalTargetCapacity"])
        spot = form["TargetCapacitySpecification.DefaultTargetCapacityType"] == "spot"
        made: list[str] = []
        items = problems = ""
        for number in _numbers(form, f"{head}Overrides."):
            type = form[f"{head}Overrides.{number}.InstanceType"]
            subnet = form[f"{head}Overrides.{number}.SubnetId"]
            granted = self._granted(type, self._zone(subnet), left)
            if granted < left:
                problems += _item(
                    errorCode="InsufficientInstanceCapacity", errorMessage=f"no {type}"
                )
            if granted:
                pool = self._pool(form, head, type, subnet, spot)
                ids, _ = self._run(environ, pool, granted)
                listed = "".join(f"<item>{id}</item>" for id in ids)
                items += f"<item><instanceIds>{listed}</instanceIds></item>"
                made, left = made + ids, left - granted
        answer = (
            f'<CreateFleetResponse xmlns="{NS}"><fleetId>fleet-{uuid4()}</fleetId>'
            f"<errorSet>{problems}</errorSet><fleetInstanceSet>{items}</fleetInstanceSet>"
            "</CreateFleetResponse>"
        )
        self._tokens[form["ClientToken"]] = form, made, answer
        return 200, answer.encode()

    def _pool(self, form: Form, head: str, type: str, subnet: str, spot: bool) -> Form:
        named = f"{head}LaunchTemplateSpecification."
        name, version = form[f"{named}LaunchTemplateName"], form[f"{named}Version"]
        data = self.backend.get_launch_template_by_name(name).get_version(int(version)).data
        pool = {
            "Action": "RunInstances",
            "Version": form["Version"],
            "LaunchTemplate.LaunchTemplateName": name,
            "LaunchTemplate.Version": version,
            "ImageId": data["ImageId"],
            "InstanceType": type,
            "SubnetId": subnet,
        }
        for number, disk in enumerate(data.get("BlockDeviceMappings", ()), 1):
            head = f"BlockDeviceMapping.{number}"
            pool[f"{head}.DeviceName"] = disk["DeviceName"]
            pool |= {f"{head}.Ebs.{k}": str(v).lower() for k, v in disk["Ebs"].items()}
        if "Placement" in data:
            pool["Placement.GroupName"] = data["Placement"]["GroupName"]
        (own,) = [key.split(".")[1] for key, value in form.items() if value == "instance"]
        tagged = f"TagSpecification.{own}."
        pool |= {
            key.replace(tagged, "TagSpecification.1."): value
            for key, value in form.items()
            if key.startswith(tagged)
        }
        return pool | ({"InstanceMarketOptions.MarketType": "spot"} if spot else {})

    def _DescribeInstances(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        form = dict(form)
        for number in _numbers(form, "Filter."):
            if form[f"Filter.{number}.Name"] == "client-token":
                known = self._tokens.get(form[f"Filter.{number}.Value.1"])
                form[f"Filter.{number}.Name"] = "instance-id"
                form[f"Filter.{number}.Value.1"] = known[1][0] if known else "i-none"
        if "InstanceId.1" not in form:
            form["MaxResults"] = str(min(PAGE, int(form.get("MaxResults", PAGE))))
        status, body = self._forward(environ, form)
        return status, self._seen(body)

    def _seen(self, body: bytes) -> bytes:
        """Without what is not to be seen yet."""
        hidden = self._hidden()
        if not hidden:
            return body
        root = ET.fromstring(body)  # noqa: S314 - our own server's
        for some in root.iter(f"{{{NS}}}instancesSet"):
            for item in list(some):
                if _text(item, "instanceId") in hidden:
                    some.remove(item)
        return ET.tostring(root)

    def _hidden(self) -> set[str]:
        return self._late if self.lags else set()

    def _reservation(self, environ: dict[str, Any], ids: Sequence[str]) -> tuple[int, bytes]:
        """The answer to a launch: instances as they are now."""
        asked = {"Action": "DescribeInstances", "Version": "2016-11-15"}
        asked |= {f"InstanceId.{number}": id for number, id in enumerate(ids, 1)}
        status, body = self._forward(environ, asked)
        root = ET.fromstring(body)  # noqa: S314 - our own server's
        answer = ET.Element(f"{{{NS}}}RunInstancesResponse")
        found = root.find(f"{{{NS}}}reservationSet/{{{NS}}}item")
        answer.extend(() if found is None else found)
        return status, ET.tostring(answer)

    def _TerminateInstances(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        if form.get("DryRun") == "true":
            return self._forward(environ, form)
        wanted = self._named(form)
        for one in wanted:
            if one.id in self.protected:
                raise Refusal("OperationNotPermitted", f"The instance '{one.id}' is protected")
        for one in wanted:
            if one.state not in ("shutting-down", "terminated"):
                self._end(one)
        return 200, f'<TerminateInstancesResponse xmlns="{NS}"/>'.encode()

    def _StopInstances(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        for one in self._named(form, "running"):
            if one.lifecycle == "spot":
                raise Refusal("UnsupportedOperation", "one-time spot instances cannot be stopped")
            self._becomes(one, "stopping", STOPPING_S, "stopped")
        return 200, f'<StopInstancesResponse xmlns="{NS}"/>'.encode()

    def _StartInstances(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        for one in self._named(form, "stopped"):
            one.launch_time = utcnow()
            self._becomes(one, "pending", PENDING_S, "running")
        return 200, f'<StartInstancesResponse xmlns="{NS}"/>'.encode()

    def _RebootInstances(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        for one in self._named(form, "running"):
            self._becomes(one, "running")
        return 200, f'<RebootInstancesResponse xmlns="{NS}"/>'.encode()

    def _ModifyInstanceAttribute(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        """Moto takes user data for encoded twice."""
        one = self.backend.get_instance(form["InstanceId"])
        self._expect(one, "stopped")
        one.user_data = Base64EncodedString(form["UserData.Value"])
        return 200, f'<ModifyInstanceAttributeResponse xmlns="{NS}"/>'.encode()

    def _CreateImage(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        """Moto does not tag the snapshots below, nor refuse names that are taken."""
        if any(one.name == form["Name"] for one in self.backend.amis.values()):
            raise Refusal("InvalidAMIName.Duplicate", f"{form['Name']} is in use")
        (number,) = [key.split(".")[1] for key, value in form.items() if value == "snapshot"]
        head = f"TagSpecification.{number}."
        labels = {
            form[f"{head}Tag.{one}.Key"]: form[f"{head}Tag.{one}.Value"]
            for one in _numbers(form, f"{head}Tag.")
        }
        rest = {key: value for key, value in form.items() if not key.startswith(head)}
        status, body = self._forward(environ, rest)
        made = self.backend.amis[_text(ET.fromstring(body), "imageId")]  # noqa: S314
        made.ebs_snapshot.add_tags(labels)
        return status, body

    def _GetConsoleOutput(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        self._named({"InstanceId.1": form["InstanceId"]})
        output = b64encode(self.console.encode()).decode()
        return 200, (
            f'<GetConsoleOutputResponse xmlns="{NS}"><output>{output}</output>'
            "</GetConsoleOutputResponse>"
        ).encode()

    def _CreatePlacementGroup(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        if form["GroupName"] in self.groups:
            raise Refusal("InvalidPlacementGroup.Duplicate", "it is there")
        self.groups[form["GroupName"]] = form["Strategy"]
        return 200, f'<CreatePlacementGroupResponse xmlns="{NS}"/>'.encode()

    def _DeletePlacementGroup(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        name = form["GroupName"]
        if name not in self.groups:
            raise Refusal("InvalidPlacementGroup.Unknown", f"there is no group {name}")
        if any(self.placed.get(one.id) == name for one in self.living()):
            raise Refusal("InvalidPlacementGroup.InUse", f"{name} has instances")
        del self.groups[name]
        return 200, f'<DeletePlacementGroupResponse xmlns="{NS}"/>'.encode()

    def _DeleteLaunchTemplate(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        name = form["LaunchTemplateName"]
        if name not in self.backend.launch_template_name_to_ids:
            raise Refusal("InvalidLaunchTemplateName.NotFoundException", f"no template {name}")
        return self._forward(environ, form)

    def _DescribeInstanceTypes(self, environ: dict[str, Any], form: Form) -> tuple[int, bytes]:
        """All types are a few here, a family on each page; moto would tell hundreds at once."""
        if "MaxResults" not in form:
            return self._forward(environ, form)
        page = int(form.pop("NextToken", 0))
        asked = {key: form[key] for key in ("Action", "Version")}
        asked |= {f"InstanceType.{n}": type for n, type in enumerate(TYPES[page], 1)}
        status, body = self._forward(environ, asked)
        if page + 1 < len(TYPES):
            head, end = body.rsplit(b"</DescribeInstanceTypesResponse>", 1)
            token = f"<nextToken>{page + 1}</nextToken></DescribeInstanceTypesResponse>"
            body = head + token.encode() + end
        return status, body

    # Time

    def _named(self, form: Form, state: str | None = None) -> list[Instance]:
        ids = [value for key, value in form.items() if key.startswith("InstanceId")]
        hidden = self._hidden()
        there = {one.id: one for one in self.instances() if one.id not in hidden}
        if missing := [id for id in ids if id not in there]:
            malformed = not missing[0].startswith("i-")
            code = "InvalidInstanceID." + ("Malformed" if malformed else "NotFound")
            raise Refusal(code, f"The instance IDs '{', '.join(missing)}' do not exist")
        some = [there[id] for id in ids]
        for one in some if state else ():
            self._expect(one, state or "")
        return some

    def _expect(self, one: Instance, state: str) -> None:
        if one.state != state:
            raise Refusal("IncorrectInstanceState", f"{one.id} is {one.state}, not {state}")

    def _end(self, one: Instance) -> None:
        self._due = [due for due in self._due if due[1] != one.id]
        one.terminate()
        self._becomes(one, "shutting-down", GOING_S, "terminated")

    def _becomes(self, one: Instance, state: str, after_s: float = 0.0, then: str = "") -> None:
        one._state = InstanceState(state, CODES[state])
        if state == "running":
            self.booted[one.id] = _decoded(one)
        if then:
            self._due.append((time.monotonic() + after_s, one.id, then))

    def _age(self) -> None:
        now = time.monotonic()
        due = [one for one in self._due if one[0] <= now]
        self._due = [one for one in self._due if one[0] > now]
        for _, id, state in due:
            self._becomes(self.backend.get_instance(id), state)

    def _zone(self, subnet: str) -> str:
        return str(self.backend.get_subnet(subnet).availability_zone)


def _tags_of(one: Instance) -> list[dict[str, str]]:
    """As moto's own, which looks through all tags of all resources each time."""
    return [{"key": k, "value": v} for k, v in [*one.ec2_backend.tags[one.id].items()]]


def _sized(form: Form) -> Form:
    """Disks are as large as the image says if nobody else does; moto must be told."""
    heads = [
        f"BlockDeviceMapping.{number}.Ebs." for number in _numbers(form, "BlockDeviceMapping.")
    ]
    return {f"{head}VolumeSize": IMAGE_GIB for head in heads} | form


def _decoded(one: Instance) -> str:
    return b64decode(str(one.user_data or "")).decode()


def _numbers(form: Form, head: str) -> list[str]:
    found = {key[len(head) :].split(".")[0] for key in form if key.startswith(head)}
    return sorted(found, key=int)


def _item(**texts: str) -> str:
    return "<item>" + "".join(f"<{k}>{v}</{k}>" for k, v in texts.items()) + "</item>"


def _text(root: ET.Element, path: str) -> str:
    """The text of the first element so called, in whatever namespace."""
    return next((one.text or "" for one in root.iter() if one.tag.endswith(path)), "")
