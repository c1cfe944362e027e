"""The calls of EC2 that a cluster needs."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from springtide.ports import (
    Check,
    CloudError,
    CloudFlavor,
    CloudImage,
    Instance,
    InstanceState,
    Launch,
    Need,
    Rejected,
    Site,
    Transient,
)
from springtide.providers.aws import images, requests, shapes
from springtide.providers.aws.account import Account
from springtide.providers.aws.checks import Checks
from springtide.providers.aws.errors import Duplicate, Missing, Unfit
from springtide.providers.aws.launches import Launcher, Raw
from springtide.providers.aws.prices import Prices
from springtide.providers.cloud import Catalog, script, tags
from springtide.providers.cloud.driver import Answers
from springtide.providers.cloud.here import own_address

PAGE = 1000
UNNAMED_S = 120.0
"""The instances of a fleet have their names by then, or never get them."""
CHANGE_S = 600.0
"""A machine that takes longer to stop is not waited for."""
PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0


class Ec2:
    """Implements `Driver`."""

    batch = 100
    in_place = False

    def __init__(self, account: Account, catalog: Catalog) -> None:
        self._account = account
        self._catalog = catalog
        self._launcher = Launcher(account, catalog)
        self._prices = Prices(account)
        self._checks = Checks(account, catalog, self._launcher, self._prices)

    def prepare(self, cluster: str) -> Site:
        wanted = self._account.wanted
        if wanted.placement:
            with suppress(Duplicate):
                self._account.ask(
                    "create_placement_group",
                    GroupName=requests.group_name(cluster),
                    Strategy="cluster",
                    TagSpecifications=[requests.tagged("placement-group", {tags.CLUSTER: cluster})],
                )
        return Site(wanted.control_address or own_address())

    def remove(self, cluster: str) -> None:
        """Also of instances that have no name, and so are not listed yet."""
        if left := self._living(cluster):
            going = self._terminate_all(
                [one["InstanceId"] for one in left if not shapes.is_dead(one)]
            )
            for error in going.values():
                raise error
            raise Transient(f"{len(left)} instances of {cluster} are still going")
        if self._account.wanted.placement:
            with suppress(Missing):
                self._account.ask("delete_placement_group", GroupName=requests.group_name(cluster))
        self._launcher.forget(cluster)

    def list(self, cluster: str) -> Sequence[Instance]:
        now = time.time()
        raws = [one for one in self._living(cluster) if not is_unnamed(one, now)]
        return [shapes.instance(one, self._catalog) for one in raws]

    def launch(self, launches: Sequence[Launch]) -> Answers:
        return self._launcher.launch(launches)

    def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        return self._terminate_all(
            [one.id for one in instances if one.state is not InstanceState.DELETING]
        )

    def renews(self, markets: Sequence[str]) -> bool:
        return requests.SPOT not in markets

    def reboot(self, instance: Instance, launch: Launch) -> Instance:
        """Spot instances cannot be stopped: they start afresh with the user data they have."""
        raw = self._settled(instance.id)
        if shapes.is_dead(raw):
            raise Transient(f"{launch.node}: {instance.id} is being deleted")
        stays = shapes.is_spot(raw) or not self._changes(instance.id, launch)
        if shapes.state(raw) == "running" and (stays or not self._stop(instance.id)):
            self._account.ask("reboot_instances", InstanceIds=[instance.id])
        else:
            self._start_with(instance.id, script.named(launch))
        return shapes.instance(self._one(instance.id), self._catalog)

    def rebuild(self, instance: Instance, launch: Launch) -> Instance:
        raise Rejected("EC2 makes another instance for another image")

    def console(self, instance: Instance) -> str:
        """Older machines tell what they said some minutes ago only."""
        ask: Callable[..., dict[str, str]] = self._account.ask
        with suppress(Missing):
            try:
                answer = ask("get_console_output", InstanceId=instance.id, Latest=True)
            except Rejected:
                answer = ask("get_console_output", InstanceId=instance.id)
            return answer.get("Output") or ""
        return ""

    def snapshot(self, instance: Instance, name: str) -> CloudImage:
        return images.snapshot(self._account, instance, name)

    def images(self, cluster: str) -> Sequence[CloudImage]:
        return images.found(self._account, cluster)

    def forget(self, image: CloudImage) -> None:
        images.forget(self._account, image)

    def flavors(self) -> Mapping[str, CloudFlavor]:
        """With prices of the types that the cluster file has."""
        found = [*self._account.pages("describe_instance_types", "InstanceTypes", MaxResults=100)]
        named = {
            type
            for name in self._catalog.flavors
            for type in shapes.types_of(self._catalog.type_of(name))
        }
        there = {one["InstanceType"] for one in found}
        prices = self._prices.on_demand(sorted(named & there))
        flavors = [shapes.flavor(one, prices.get(one["InstanceType"])) for one in found]
        return {one.name: one for one in flavors}

    def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        return self._checks.check(cluster, needs)

    def close(self) -> None:
        self._account.close()

    def _living(self, cluster: str) -> Sequence[Raw]:
        filters = [
            {"Name": f"tag:{tags.CLUSTER}", "Values": [cluster]},
            {"Name": "instance-state-name", "Values": list(shapes.LIVING)},
        ]
        found = self._account.pages(
            "describe_instances", "Reservations", Filters=filters, MaxResults=PAGE
        )
        return [one for reservation in found for one in reservation["Instances"]]

    def _one(self, id: str) -> Raw:
        found = self._account.ask("describe_instances", InstanceIds=[id])["Reservations"]
        raw: Raw = found[0]["Instances"][0]
        return raw

    def _terminate_all(self, ids: Sequence[str]) -> dict[str, CloudError]:
        refused: dict[str, CloudError] = {}
        for at in range(0, len(ids), PAGE // 2):
            refused |= self._terminate(ids[at : at + PAGE // 2])
        return refused

    def _terminate(self, ids: Sequence[str]) -> dict[str, CloudError]:
        """One that is unknown or protected spoils the call for all: it is found by halving."""
        if not ids:
            return {}
        try:
            self._account.ask("terminate_instances", InstanceIds=list(ids))
        except Rejected as error:
            if len(ids) > 1 and names_any(error, ids):
                return self._halved(ids)
            return dict.fromkeys(ids, error) if len(ids) > 1 else self._refused(ids[0], error)
        except CloudError as error:
            return dict.fromkeys(ids, error)
        return {}

    def _refused(self, id: str, error: Rejected) -> dict[str, CloudError]:
        """What is not found is gone, unless it was just made: then it is to be seen soon."""
        if not isinstance(error, Missing):
            return {id: error}
        if id in self._launcher.recent:
            return {id: Transient(f"{id} was just made and is not to be seen yet: {error}")}
        return {}

    def _halved(self, ids: Sequence[str]) -> dict[str, CloudError]:
        half = len(ids) // 2
        return self._terminate(ids[:half]) | self._terminate(ids[half:])

    def _changes(self, id: str, launch: Launch) -> bool:
        """Whether it has other user data than the launch's."""
        answer = self._account.ask(
            "describe_instance_attribute", InstanceId=id, Attribute="userData"
        )
        return script.told(requests.decoded(answer)) != launch.user_data

    def _stop(self, id: str) -> bool:
        """False if such an instance cannot be stopped."""
        try:
            self._account.ask("stop_instances", InstanceIds=[id])
        except Unfit:
            return False
        raw = self._settled(id)
        if shapes.state(raw) != "stopped":
            raise Transient(f"{id} was to stop and is {shapes.state(raw)}")
        return True

    def _start_with(self, id: str, text: str) -> None:
        self._account.ask(
            "modify_instance_attribute", InstanceId=id, UserData={"Value": text.encode()}
        )
        self._account.ask("start_instances", InstanceIds=[id])

    def _settled(self, id: str) -> Raw:
        """The instance, once it is neither starting nor stopping."""
        end, pause_s = time.monotonic() + CHANGE_S, PAUSE_S
        while shapes.state(raw := self._one(id)) in ("pending", "stopping"):
            if time.monotonic() > end:
                raise Transient(f"{id} is {shapes.state(raw)} for more than {CHANGE_S:.0f} s")
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S)
        return raw


def names_any(error: CloudError, ids: Sequence[str]) -> bool:
    """Whether the others could go without the one that the error is about."""
    return any(id in str(error) for id in ids)


def is_unnamed(raw: Raw, now: float) -> bool:
    """Made by a fleet a moment ago: who asked for it is about to name it."""
    launched = raw.get("LaunchTime")
    young = launched is not None and now - launched.timestamp() < UNNAMED_S
    return young and shapes.member(raw) is None
