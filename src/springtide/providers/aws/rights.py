"""What the account may do, by calls that AWS decides on and does not make. `Checks` asks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from springtide.ports import Check, Denied, Launch, Need, Rejected
from springtide.providers.aws import requests, shapes
from springtide.providers.aws.account import Account
from springtide.providers.aws.errors import Allowed, Duplicate, Mismatch, Missing
from springtide.providers.aws.launches import Launcher
from springtide.providers.aws.requests import Request
from springtide.providers.cloud import Catalog, tags

BY_DRY_RUN = "by a dry run"


@dataclass(frozen=True, slots=True)
class Rights:
    """Policies allow changes to what has the cluster's tag: those need something to be tried on."""

    account: Account
    catalog: Catalog
    launcher: Launcher

    def of_instances(self, cluster: str, needs: Sequence[Need]) -> Iterator[Check]:
        for need in needs[:1]:
            zone = next((one for one in need.zones if one in self.account.wanted.subnets), None)
            launch = Launch(cluster, "check", 1, need.group, need.image, need.flavors[0], zone)
            request = requests.run([launch], self.launcher.plan(launch))
            request["InstanceType"] = shapes.types_of(request["InstanceType"])[0]
            yield self._dry("create instances", "run_instances", request)
        yield self._on_one("delete instances", cluster, "terminate_instances", "InstanceIds")

    def of_fleets(self, cluster: str, needs: Sequence[Need]) -> Iterator[Check]:
        """Nothing, where no launch has a choice."""
        for launch in self._choices(cluster, needs)[:1]:
            plan = self.launcher.plan(launch)
            own = [requests.tagged("launch-template", {tags.CLUSTER: cluster})]
            template: Request = {
                "LaunchTemplateName": requests.group_name(cluster),
                "LaunchTemplateData": self.launcher.template(launch, plan),
            }
            make = template | {"TagSpecifications": own}
            yield self._dry("create launch templates", "create_launch_template", make)
            versions = sorted(self.launcher.known_versions(cluster).values(), key=int)
            yield self._change(template, there=bool(versions))
            fleet = requests.fleet([launch], plan, versions[-1] if versions else "1")
            yield self._dry("create fleets", "create_fleet", fleet)
            name: Request = {"Tags": [{"Key": shapes.NAME, "Value": cluster}]}
            yield self._on_one("name instances", cluster, "create_tags", "Resources", name)

    def _choices(self, cluster: str, needs: Sequence[Need]) -> list[Launch]:
        wanted = self.account.wanted
        launches = [
            Launch(cluster, "check", 1, need.group, need.image, flavor, zone, market)
            for need in needs
            for flavor in need.flavors
            for zone in need.zones or (None,)
            for market in need.markets or (None,)
            if flavor in self.catalog.flavors and (zone is None or zone in wanted.subnets)
        ]
        return [one for one in launches if requests.is_choice(one, self.catalog, wanted)]

    def _change(self, template: Request, *, there: bool) -> Check:
        what = "change launch templates"
        if not there:
            return Check(f"right to {what}", None, "cannot be tried before there is one of ours")
        return self._dry(what, "create_launch_template_version", template)

    def _on_one(
        self, what: str, cluster: str, operation: str, key: str, more: Request | None = None
    ) -> Check:
        """To any instance of the cluster."""
        ours = [{"Name": f"tag:{tags.CLUSTER}", "Values": [cluster]}]
        found = self.account.ask("describe_instances", Filters=ours)["Reservations"]
        if not found:
            text = "cannot be tried before there is an instance"
            return Check(f"right to {what}", None, text)
        id = found[0]["Instances"][0]["InstanceId"]
        return self._dry(what, operation, {key: [id], **(more or {})})

    def _dry(self, what: str, operation: str, request: Request) -> Check:
        title = f"right to {what}"
        try:
            self.account.ask(operation, DryRun=True, **request)
        except Allowed:
            return Check(title, True, BY_DRY_RUN)
        except (Duplicate, Mismatch):
            return Check(title, True, f"{BY_DRY_RUN}: it is there")
        except Denied as error:
            todo = "allow it: docs/providers/aws.md has the least policy"
            return Check(title, False, str(error), todo)
        except Missing as error:
            return Check(title, None, f"cannot be tried: {error}")
        except Rejected as error:
            return Check(title, False, str(error), "correct the provider block")
        return Check(title, True, "the service does not know dry runs")
