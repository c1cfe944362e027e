"""Making instances: one RunInstances for a batch, or one fleet where there is a choice.

Client tokens make the same launch again the same instances. A token that leads to instances that
are gone has served: the next one follows from it, so that a client of later finds it as well.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import Any

from springtide.ports import CloudError, Instance, Launch, NoCapacity, Transient
from springtide.providers.aws import requests, shapes
from springtide.providers.aws.account import Account
from springtide.providers.aws.errors import Duplicate, Mismatch, Missing, said
from springtide.providers.aws.recent import Recent
from springtide.providers.aws.requests import Plan, Request
from springtide.providers.cloud import Catalog, roster, tags

TOKENS = 5
PAGE = 1000
NAMERS = 8
"""Instances of a fleet that are named at a time."""

Raw = Mapping[str, Any]


class Launcher:
    """What it remembers are facts that do not change: devices of images, versions of templates."""

    def __init__(self, account: Account, catalog: Catalog) -> None:
        self._account = account
        self._catalog = catalog
        self.recent = Recent()
        self._lock = Lock()
        """Batches that are launched at once find out once."""
        self._root_devices: dict[str, str] = {}
        self._versions: dict[str, str] = {}

    def launch(self, launches: Sequence[Launch]) -> dict[str, Instance | CloudError]:
        first = launches[0]
        plan = self.plan(first)
        if requests.is_choice(first, self._catalog, plan.wanted):
            return self._fleet(launches, plan)
        return self._run(launches, plan)

    def plan(self, launch: Launch) -> Plan:
        id = self._catalog.image_id(launch)
        with self._lock:
            if id not in self._root_devices:
                self._root_devices[id] = self._root_device(id)
            return Plan(self._account.wanted, self._catalog, self._root_devices[id])

    def _root_device(self, image: str) -> str:
        found = self._account.ask("describe_images", ImageIds=[image])["Images"]
        if not found:
            raise Missing(f"there is no image {image}, or it is not shared with us")
        return str(found[0].get("RootDeviceName", "/dev/xvda"))

    def forget(self, cluster: str) -> None:
        """Remove the cluster's own launch template."""
        self._versions.clear()
        with suppress(Missing):
            self._account.ask(
                "delete_launch_template", LaunchTemplateName=requests.group_name(cluster)
            )

    def _run(self, launches: Sequence[Launch], plan: Plan) -> dict[str, Instance | CloudError]:
        request = requests.run(launches, plan)

        def ask(token: str) -> list[Raw]:
            answer = self._account.ask("run_instances", ClientToken=token, **request)
            return list(answer["Instances"])

        return decide_answers(launches, self._once(launches, ask), self._catalog, ())

    def _once(self, launches: Sequence[Launch], ask: Callable[[str], list[Raw]]) -> list[Raw]:
        """What the launches made, now or before, some of which may have died since."""
        salt = ""
        for _ in range(TOKENS):
            token = requests.token(launches, salt)
            try:
                made = ask(token)
            except Mismatch as error:
                made = self._made_with(token)
                if not made:
                    raise Transient(f"{error}; what it made then is not to be seen yet") from error
            self.recent.add(one["InstanceId"] for one in made)
            if not made or not all(map(shapes.is_dead, made)):
                return made
            salt = token
        raise Transient(f"what {launches[0].node} and others had is going; asked too often")

    def _made_with(self, token: str) -> list[Raw]:
        return self._described([{"Name": "client-token", "Values": [token]}])

    def _described(self, filters: Sequence[Request]) -> list[Raw]:
        found = self._account.pages(
            "describe_instances", "Reservations", Filters=list(filters), MaxResults=PAGE
        )
        return [one for reservation in found for one in reservation["Instances"]]

    # Fleets

    def _fleet(self, launches: Sequence[Launch], plan: Plan) -> dict[str, Instance | CloudError]:
        """First what earlier fleets made for these nodes, and could not name."""
        there = self._adopted(launches)
        left = [one for one in launches if one.node not in there]
        return {**there, **(self._new_fleet(left, plan) if left else {})}

    def _adopted(self, launches: Sequence[Launch]) -> dict[str, Instance]:
        ours = [
            {"Name": f"tag:{tags.CLUSTER}", "Values": [launches[0].cluster]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
        pairs = decide_adoptions(self._described(ours), requests.ordered(launches))
        tokens = tokens_of(launches)
        raws = [named(raw, member, tokens) for raw, member in pairs]
        self._name(raws)
        return {one.node: one for one in (shapes.instance(raw, self._catalog) for raw in raws)}

    def _new_fleet(
        self, launches: Sequence[Launch], plan: Plan
    ) -> dict[str, Instance | CloudError]:
        first = launches[0]
        request = requests.fleet(launches, plan, self._version(first, plan))
        refusals: list[CloudError] = []

        def ask(token: str) -> list[Raw]:
            answer = self._fleet_of(token, request)
            refusals[:] = [
                said("create fleet", one.get("ErrorCode", ""), one.get("ErrorMessage", ""))
                for one in answer.get("Errors", ())
            ]
            return self._of_fleet(answer, launches)

        made = self._once(launches, ask)
        self._name([one for one in made if not shapes.is_dead(one)])
        return decide_answers(launches, made, self._catalog, refusals)

    def _fleet_of(self, token: str, request: Request) -> Raw:
        try:
            return self._account.ask("create_fleet", ClientToken=token, **request)
        except Missing as error:
            if "LaunchTemplate" not in str(error):
                raise
            self._versions.clear()
            raise Transient(f"{error}; it is made anew") from error

    def _of_fleet(self, answer: Raw, launches: Sequence[Launch]) -> list[Raw]:
        """Its instances with the tags they are to have; each is the same node's every time."""
        told = {id: one for one in answer.get("Instances", ()) for id in one["InstanceIds"]}
        if not told:
            return []
        ids = sorted(told)
        found = {
            one["InstanceId"]: one
            for one in self._described([{"Name": "instance-id", "Values": ids}])
        }
        first, tokens = launches[0], tokens_of(launches)
        return [
            named(found.get(id) or unseen(id, told[id], first, self._catalog), member, tokens)
            for id, member in zip(ids, requests.ordered(launches), strict=False)
        ]

    def _name(self, instances: Sequence[Raw]) -> None:
        """A call for each; those that cannot be named now are named when asked again."""
        with ThreadPoolExecutor(NAMERS, thread_name_prefix="cloud-names") as pool:
            list(pool.map(self._name_one, instances))

    def _name_one(self, raw: Raw) -> None:
        try:
            self._account.ask("create_tags", Resources=[raw["InstanceId"]], Tags=raw["Tags"])
        except Missing as error:
            raise Transient(f"{raw['InstanceId']} is not to be seen yet: {error}") from error

    def _version(self, launch: Launch, plan: Plan) -> str:
        """The version of the cluster's own template that says this; made if there is none."""
        data = self.template(launch, plan)
        digest = sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:40]
        with self._lock:
            if digest not in self._versions:
                self._versions |= self.known_versions(launch.cluster)
            if digest not in self._versions:
                self._versions[digest] = self._new_version(launch.cluster, data, digest)
            return self._versions[digest]

    def template(self, launch: Launch, plan: Plan) -> Request:
        return requests.template(launch, plan, self._site_data(plan))

    def known_versions(self, cluster: str) -> dict[str, str]:
        """Of the cluster's own template, by what they say; none if there is no template."""
        pages = partial(self._account.pages, "describe_launch_template_versions")
        try:
            found = list(
                pages("LaunchTemplateVersions", LaunchTemplateName=requests.group_name(cluster))
            )
        except Missing:
            return {}
        return {one.get("VersionDescription", ""): str(one["VersionNumber"]) for one in found}

    def _new_version(self, cluster: str, data: Request, digest: str) -> str:
        request: Request = {
            "LaunchTemplateName": requests.group_name(cluster),
            "LaunchTemplateData": data,
            "VersionDescription": digest,
            "ClientToken": digest,
        }
        own = requests.tagged("launch-template", {tags.CLUSTER: cluster})
        try:
            self._account.ask("create_launch_template", TagSpecifications=[own], **request)
        except (Duplicate, Mismatch):
            answer = self._account.ask("create_launch_template_version", **request)
            return str(answer["LaunchTemplateVersion"]["VersionNumber"])
        return "1"

    def _site_data(self, plan: Plan) -> Request:
        if not plan.wanted.template:
            return {}
        request = requests.template_named(plan.wanted.template)
        version = request.pop("Version")
        (found,) = self._account.ask(
            "describe_launch_template_versions", Versions=[version], **request
        )["LaunchTemplateVersions"]
        return dict(found["LaunchTemplateData"])


def tokens_of(launches: Sequence[Launch]) -> Mapping[str, str]:
    return {one.node: one.token for one in launches if one.token}


def named(raw: Raw, member: roster.Member, tokens: Mapping[str, str]) -> Raw:
    """The instance of a fleet as it is once it has its name."""
    node, generation = member
    own = {tags.NODE: node, tags.GENERATION: str(generation), shapes.NAME: node}
    own |= {requests.TOKEN: tokens[node]} if node in tokens else {}
    listed = shapes.tags_of(raw) | own
    kept = {key: value for key, value in listed.items() if not key.startswith("aws:")}
    return {**raw, "Tags": [{"Key": key, "Value": value} for key, value in kept.items()]}


def unseen(id: str, pool: Raw, launch: Launch, catalog: Catalog) -> Raw:
    """An instance of a fleet that EC2 does not describe yet: as it was asked for."""
    override = pool.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    type = pool.get("InstanceType") or override.get("InstanceType")
    return {
        "InstanceId": id,
        "ImageId": catalog.image_id(launch),
        "InstanceType": type or shapes.types_of(catalog.flavor_type(launch))[0],
        "Placement": {"AvailabilityZone": override.get("AvailabilityZone") or launch.zone},
        "LaunchTime": datetime.now(UTC),
        "Tags": requests.tagged("instance", tags.shared(launch))["Tags"],
    }


def decide_adoptions(
    found: Sequence[Raw], wanted: Sequence[roster.Member]
) -> list[tuple[Raw, roster.Member]]:
    """Instances without a name, with members of their fleet that nobody is yet."""
    taken = {shapes.member(raw) for raw in found}
    free = [one for one in wanted if one not in taken]
    pairs: list[tuple[Raw, roster.Member]] = []
    for raw in sorted(found, key=lambda raw: str(raw["InstanceId"])):
        meant = requests.fleet_members(shapes.tags_of(raw))
        member = next((one for one in free if one in meant), None)
        if shapes.member(raw) is None and member is not None:
            free.remove(member)
            pairs.append((raw, member))
    return pairs


def decide_answers(
    launches: Sequence[Launch],
    made: Sequence[Raw],
    catalog: Catalog,
    refusals: Sequence[CloudError],
) -> dict[str, Instance | CloudError]:
    """There was room for those that died since: they are launched again, right here."""
    answers: dict[str, Instance | CloudError] = {}
    for raw in made:
        one = shapes.instance(raw, catalog)
        gone = Transient(f"{one.node}: {one.id} was made and is gone already")
        answers[one.node] = gone if shapes.is_dead(raw) else one
    full = decide_refusal(refusals, len(made), len(launches))
    return {one.node: answers.get(one.node, full) for one in launches}


def decide_refusal(refusals: Sequence[CloudError], made: int, wanted: int) -> CloudError:
    """Why a fleet is smaller than wanted: another choice may help if any pool of it was full."""
    full = [one for one in refusals if isinstance(one, NoCapacity)]
    for one in [*full, *refusals]:
        return one
    return NoCapacity(f"the cloud had room for {made} of {wanted}")
