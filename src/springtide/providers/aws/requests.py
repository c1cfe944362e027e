"""Launches as EC2 wants them. Pure."""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from springtide.ports import CloudError, Launch, Rejected
from springtide.providers.aws import boot
from springtide.providers.aws.shapes import NAME, types_of
from springtide.providers.cloud import Catalog, roster, script, tags
from springtide.spec.clouds import Aws

SPOT = "spot"
MARKETS = (None, "on-demand", SPOT)
OURS = ("ClientToken", "DryRun", "ImageId", "MaxCount", "MinCount", "SubnetId", "UserData")
"""What options must not set: nodes are found, told and counted by them."""
FLEET_NODES = "springtide-fleet-nodes"
"""For whom a fleet was made; which instance is which node, their own tags tell."""
TOKEN = "springtide-token"  # noqa: S105 - its name
"""What lets an instance of a fleet join: its user data is that of all."""
_KEYED = {"TagSpecifications": "ResourceType", "Tags": "Key", "BlockDeviceMappings": "DeviceName"}
"""Lists whose members are merged by a key of theirs; others replace ours."""
_CONVERTED = frozenset({"Key", "Value"})

Request = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """What launches alike need to know."""

    wanted: Aws
    catalog: Catalog
    root_device: str
    """Of the image."""


def refuse_options(options: Mapping[str, Any]) -> None:
    if wrong := sorted(set(options) & set(OURS)):
        raise CloudError(
            f"provider.options must not set {', '.join(wrong)}: take it out, the cluster file has "
            "other keys for what you want"
        )


def group_name(cluster: str) -> str:
    """Of what is the cluster's own: placement group and launch template."""
    return f"springtide-{cluster}"


def subnets_of(launch: Launch, wanted: Aws) -> list[str]:
    """Where it may be made: in its zone, or anywhere."""
    if launch.zone is None:
        return list(dict.fromkeys(wanted.subnets.values()))
    if launch.zone not in wanted.subnets:
        known = ", ".join(sorted(wanted.subnets))
        raise Rejected(
            f"{launch.node}: provider.subnets has no subnet of zone {launch.zone}, only of {known}"
        )
    return [wanted.subnets[launch.zone]]


def is_choice(launch: Launch, catalog: Catalog, wanted: Aws) -> bool:
    """Whether there are several types or subnets: only a fleet chooses among them."""
    types = types_of(catalog.flavor_type(launch))
    return len(types) > 1 or len(subnets_of(launch, wanted)) > 1


def ordered(launches: Sequence[Launch]) -> list[roster.Member]:
    return roster.ordered([(one.node, one.generation) for one in launches])


def token(launches: Sequence[Launch], salt: str = "") -> str:
    """The same for the same nodes in the same place: a lost reply is asked for again by it."""
    first = launches[0]
    place = (first.cluster, first.image, first.flavor, first.zone or "", first.market or "", salt)
    nodes = [f"{node}:{generation}" for node, generation in ordered(launches)]
    return sha256("\0".join([*place, *nodes]).encode()).hexdigest()[:40]


def run(launches: Sequence[Launch], plan: Plan) -> Request:
    """RunInstances; who they are is in a roster that they share."""
    first, members = launches[0], ordered(launches)
    labels = tags.shared(first) | {NAME: first.cluster} | roster.write(members)
    of_node = {one.node: one for one in launches}
    text = script.indexed([of_node[node] for node, _ in members], boot.LAUNCH_INDEX)
    request = _common(first, plan, labels) | {
        "InstanceType": plan.catalog.flavor_type(first),
        "SubnetId": subnets_of(first, plan.wanted)[0],
        "UserData": text,
        "MinCount": 1,
        "MaxCount": len(launches),
    }
    if plan.wanted.template:
        request["LaunchTemplate"] = template_named(plan.wanted.template)
    if first.market == SPOT:
        request["InstanceMarketOptions"] = {
            "MarketType": SPOT,
            "SpotOptions": {
                "SpotInstanceType": "one-time",
                "InstanceInterruptionBehavior": "terminate",
            },
        }
    return _plugged(request)


def template(launch: Launch, plan: Plan, site: Mapping[str, Any] | None = None) -> Request:
    """The launch template of a fleet, over the site's own; its instances are named later."""
    labels = tags.shared(launch) | {NAME: launch.cluster}
    token = boot.tag(TOKEN) if launch.token else "true"
    text = script.asked(launch, boot.tag(tags.NODE), boot.tag(tags.GENERATION), token)
    data = merge(site or {}, _common(launch, plan, labels)) | {"UserData": encoded(text)}
    data["MetadataOptions"] = {**data["MetadataOptions"], "InstanceMetadataTags": "enabled"}
    return _plugged(data)


def fleet(launches: Sequence[Launch], plan: Plan, version: str) -> Request:
    """CreateFleet: any of the types, in any of the subnets."""
    first = launches[0]
    overrides = [
        {"InstanceType": type, "SubnetId": subnet}
        for type in types_of(plan.catalog.flavor_type(first))
        for subnet in subnets_of(first, plan.wanted)
    ]
    named = {"LaunchTemplateName": group_name(first.cluster), "Version": version}
    return {
        "Type": "instant",
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": named, "Overrides": overrides}],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": len(launches),
            "DefaultTargetCapacityType": SPOT if first.market == SPOT else "on-demand",
        },
        "TagSpecifications": [
            tagged("fleet", {tags.CLUSTER: first.cluster}),
            tagged("instance", _fleet_labels(launches)),
        ],
        **_allocation(first, close=plan.wanted.placement),
    }


def _fleet_labels(launches: Sequence[Launch]) -> dict[str, str]:
    """Also for whom the fleet is: if it cannot be named at once, it is by whoever asks next."""
    meant = roster.write(ordered(launches)).items()
    listed = {key.replace(tags.NODES, FLEET_NODES): value for key, value in meant}
    return tags.shared(launches[0]) | {NAME: launches[0].cluster} | listed


def fleet_members(labels: Mapping[str, str]) -> list[roster.Member]:
    return roster.read(
        {key.replace(FLEET_NODES, tags.NODES): value for key, value in labels.items()}
    )


def _allocation(launch: Launch, *, close: bool) -> Request:
    """Machines that are close to each other are in one zone."""
    one_zone = {"SingleAvailabilityZone": True} if close else {}
    if launch.market == SPOT:
        strategy = {
            "AllocationStrategy": "price-capacity-optimized",
            "InstanceInterruptionBehavior": "terminate",
        }
        return {"SpotOptions": strategy | one_zone}
    return {"OnDemandOptions": {"AllocationStrategy": "lowest-price"} | one_zone}


def _common(launch: Launch, plan: Plan, labels: Mapping[str, str]) -> Request:
    """What RunInstances and templates have in common; options win over all but who they are."""
    if launch.market not in MARKETS:
        raise Rejected(f"{launch.node}: market {launch.market} is not on-demand or spot")
    wanted = plan.wanted
    request: Request = {
        "ImageId": plan.catalog.image_id(launch),
        "BlockDeviceMappings": [_root(plan)],
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
    }
    if wanted.security_groups:
        request["SecurityGroupIds"] = list(wanted.security_groups)
    if wanted.key:
        request["KeyName"] = wanted.key
    if wanted.profile_of_nodes:
        kind = "Arn" if wanted.profile_of_nodes.startswith("arn:") else "Name"
        request["IamInstanceProfile"] = {kind: wanted.profile_of_nodes}
    if wanted.placement:
        request["Placement"] = {"GroupName": group_name(launch.cluster)}
    ours = [tagged("instance", labels), tagged("volume", {tags.CLUSTER: launch.cluster})]
    return merge(merge(request, texts(wanted.options)), {"TagSpecifications": ours})


def _root(plan: Plan) -> Request:
    """It goes with its instance, whatever the image says."""
    disk: Request = {"DeleteOnTermination": True}
    if plan.wanted.disk:
        disk["VolumeSize"] = -(-plan.wanted.disk // 1024)
    return {"DeviceName": plan.root_device, "Ebs": disk}


def _plugged(request: Request) -> Request:
    """Interfaces that options ask for are in the subnet and groups; EC2 takes no others then."""
    if not isinstance(request.get("NetworkInterfaces"), list):
        return request
    rest = dict(request)
    place = {"SubnetId": rest.pop("SubnetId", ""), "Groups": rest.pop("SecurityGroupIds", [])}
    ours = {key: value for key, value in place.items() if value}
    return rest | {"NetworkInterfaces": [ours | one for one in request["NetworkInterfaces"]]}


def template_named(name: str) -> Request:
    kind = "LaunchTemplateId" if name.startswith("lt-") else "LaunchTemplateName"
    return {kind: name, "Version": "$Default"}


def tagged(resource: str, labels: Mapping[str, str]) -> Request:
    listed = [{"Key": key, "Value": value} for key, value in labels.items()]
    return {"ResourceType": resource, "Tags": listed}


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Request:
    """Mappings are merged, and some lists; else what is above wins."""
    result = dict(below)
    for key, value in above.items():
        old = below.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = merge(old, value)
        elif key in _KEYED and isinstance(old, list) and isinstance(value, list):
            result[key] = _merge_lists(_KEYED[key], old, value)
        else:
            result[key] = value
    return result


def _merge_lists(by: str, below: list[Request], above: list[Request]) -> list[Request]:
    known = {one.get(by): one for one in below}
    for one in above:
        known[one.get(by)] = merge(known.get(one.get(by), {}), one)
    return list(known.values())


def texts(value: Any, key: str = "") -> Any:
    """Options with the keys and values of tags as texts, even if they look like numbers."""
    if isinstance(value, dict):
        return {name: texts(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [texts(each) for each in value]
    return str(value) if key in _CONVERTED else value


def decoded(attribute: Mapping[str, Any]) -> str:
    """The user data that an instance has."""
    return b64decode(attribute.get("UserData", {}).get("Value", "")).decode(errors="replace")
