"""Whether the account could do what the cluster file wants; `tide check` shows the answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from springtide.ports import Check, CloudError, Denied, Need, Rejected
from springtide.providers.aws import quotas, requests, shapes
from springtide.providers.aws.account import Account
from springtide.providers.aws.launches import Launcher
from springtide.providers.aws.prices import Prices
from springtide.providers.aws.rights import Rights
from springtide.providers.cloud import Catalog, tags

OPEN_TO_OTHERS = 0o077
KERNEL_MIB = 256
KERNEL_SHARE = 0.97
"""What of its nominal memory a machine shows, at most."""

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Checks:
    """Each check says what it found out, or that it could not."""

    account: Account
    catalog: Catalog
    launcher: Launcher
    prices: Prices

    def check(self, cluster: str, needs: Sequence[Need]) -> list[Check]:
        """Without credentials nothing else can be found out."""
        checks = [*self._guarded("credentials", self._credentials)]
        if any(one.name == "credentials" and not one.ok for one in checks):
            return checks
        types = self._types(needs)
        rights = Rights(self.account, self.catalog, self.launcher)
        parts: list[tuple[str, Callable[[], Iterator[Check]]]] = [
            ("images", lambda: self._images(needs)),
            ("flavors", lambda: self._flavors(needs, types)),
            ("zones", lambda: self._zones(needs)),
            ("subnets", lambda: self._subnets(needs)),
            ("rights", lambda: rights.of_instances(cluster, needs)),
            ("rights of fleets", lambda: rights.of_fleets(cluster, needs)),
            ("quota", lambda: self._quotas(cluster, needs, types)),
            ("prices", lambda: self._prices(needs, types)),
        ]
        for name, part in parts:
            checks += self._guarded(name, part)
        return checks

    def _guarded(self, name: str, part: Callable[[], Iterator[Check]]) -> list[Check]:
        try:
            return list(part())
        except Denied as error:
            todo = "allow it: docs/providers/aws.md has the least policy"
            return [Check(name, False, str(error), todo)]
        except CloudError as error:
            return [Check(name, None, f"cannot be found out: {error}", "try again")]

    def _credentials(self) -> Iterator[Check]:
        file = self.account.credentials_file()
        if file and file.exists() and file.stat().st_mode & OPEN_TO_OTHERS:
            text = f"{file} can be read by others"
            yield Check("credentials file", False, text, f"chmod 600 {file}")
        try:
            who = self.account.ask("get_caller_identity", service="sts")
        except Denied as error:
            todo = "give this machine a role, or name provider.profile or provider.credentials"
            yield Check("credentials", False, str(error), todo)
        else:
            yield Check("credentials", True, f"account {who['Account']}, as {who['Arn']}")

    def _images(self, needs: Sequence[Need]) -> Iterator[Check]:
        for name in sorted({need.image for need in needs} & self.catalog.images.keys()):
            flavors = {one for need in needs if need.image == name for one in need.flavors}
            arches = {
                self.catalog.flavors[one].arch for one in flavors if one in self.catalog.flavors
            }
            for arch in sorted(arches):
                yield self._image(name, arch)

    def _image(self, name: str, arch: str) -> Check:
        title, id = f"image {name}", self.catalog.images[name].id_for(arch)
        if id is None:
            return Check(title, False, f"it has no id for {arch}", f"add it to images.{name}.id")
        try:
            found = self.account.ask("describe_images", ImageIds=[id])["Images"]
        except Rejected as error:
            found, why = [], str(error)
        else:
            why = "there is none"
        if not found:
            region = self.account.wanted.region
            todo = f"images of EC2 are those of a region: name one of {region}, or copy it there"
            return Check(title, False, f"{id}: {why}", todo)
        image = shapes.image(found[0])
        if image.arch != arch:
            todo = f"name an image for {arch} in images.{name}.id, or correct the flavor's arch"
            return Check(title, False, f"{id} is for {image.arch}, its flavor is {arch}", todo)
        if not image.ready:
            return Check(title, False, f"{id} is {found[0].get('State')}", "wait until it is ready")
        return Check(title, True, f"{id}, {arch}")

    def _types(self, needs: Sequence[Need]) -> dict[str, Raw]:
        """What EC2 says of the types that the file names; those it does not know are absent."""
        names = {type for need in needs for one in need.flavors for type in self._types_of(one)}
        filters = [{"Name": "instance-type", "Values": sorted(names)}]
        try:
            found = list(
                self.account.pages("describe_instance_types", "InstanceTypes", Filters=filters)
            )
        except CloudError:
            return {}
        return {one["InstanceType"]: one for one in found}

    def _types_of(self, flavor: str) -> list[str]:
        known = flavor in self.catalog.flavors
        return shapes.types_of(self.catalog.type_of(flavor) if known else flavor)

    def _flavors(self, needs: Sequence[Need], types: Mapping[str, Raw]) -> Iterator[Check]:
        for flavor in sorted({one for need in needs for one in need.flavors}):
            for type in self._types_of(flavor):
                yield self._flavor(flavor, type, types.get(type))

    def _flavor(self, name: str, type: str, raw: Raw | None) -> Check:
        title = f"flavor {name}"
        if raw is None:
            region = self.account.wanted.region
            todo = f"correct flavors.{name}.type: `aws ec2 describe-instance-types` lists them"
            return Check(title, False, f"{region} has no type {type}", todo)
        has = shapes.flavor(raw)
        return decide_flavor(title, name, self.catalog, has)

    def _zones(self, needs: Sequence[Need]) -> Iterator[Check]:
        known = self.account.wanted.subnets
        for need in needs:
            for zone in need.zones:
                if zone not in known:
                    todo = f"add the subnet of {zone} to provider.subnets"
                    text = f"{need.group} wants {zone}, which has no subnet"
                    yield Check(f"zone {zone}", False, text, todo)

    def _subnets(self, needs: Sequence[Need]) -> Iterator[Check]:
        wanted = self.account.wanted.subnets
        free = 0
        for zone, id in wanted.items():
            try:
                (subnet,) = self.account.ask("describe_subnets", SubnetIds=[id])["Subnets"]
            except Rejected as error:
                todo = "correct provider.subnets: `aws ec2 describe-subnets` lists them"
                yield Check(f"subnet {id}", False, str(error), todo)
                continue
            free += subnet["AvailableIpAddressCount"]
            if subnet["AvailabilityZone"] != zone:
                text = f"it is in {subnet['AvailabilityZone']}, not in {zone}"
                yield Check(f"subnet {id}", False, text, "correct provider.subnets")
        count = sum(need.count for need in needs)
        text = f"{free} addresses are free, {count} nodes may be wanted"
        yield Check(
            "addresses", free >= count, text, "" if free >= count else "add a larger subnet"
        )

    def _quotas(
        self, cluster: str, needs: Sequence[Need], types: Mapping[str, Raw]
    ) -> Iterator[Check]:
        """What others of the account use counts, this machine included; ours is in the needs."""
        running = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping"]}]
        pages = self.account.pages(
            "describe_instances", "Reservations", Filters=running, MaxResults=1000
        )
        others = [
            one
            for reservation in pages
            for one in reservation["Instances"]
            if shapes.tags_of(one).get(tags.CLUSTER) != cluster
        ]
        cpus = {name: shapes.flavor(raw).cpus for name, raw in types.items()}
        used = quotas.used(others, cpus)
        for key, wanted in sorted(self._wanted(needs, cpus).items()):
            yield decide_quota(key, quotas.limit(self.account, key), used.get(key, 0), wanted)

    def _wanted(self, needs: Sequence[Need], cpus: Mapping[str, int]) -> dict[quotas.Key, int]:
        """The vCPUs of all nodes, if each is of the largest type of its family that it may be."""
        sums: dict[quotas.Key, int] = {}
        for need in needs:
            largest: dict[quotas.Key, int] = {}
            for type in (one for flavor in need.flavors for one in self._types_of(flavor)):
                for market in need.markets or ("on-demand",):
                    key = quotas.family(type), market == requests.SPOT
                    largest[key] = max(largest.get(key, 0), cpus.get(type, 0))
            for key, size in largest.items():
                sums[key] = sums.get(key, 0) + need.count * size
        return sums

    def _prices(self, needs: Sequence[Need], types: Mapping[str, Raw]) -> Iterator[Check]:
        usual = self.prices.on_demand(sorted(types))
        spot = any(requests.SPOT in need.markets for need in needs)
        cheap = self.prices.spot(sorted(types)) if spot and types else {}
        for type in sorted(types):
            known = [
                f"{price:g} $ an hour {how}"
                for price, how in ((usual.get(type), "on demand"), (cheap.get(type), "spot"))
                if price
            ]
            yield Check(f"price of {type}", None, ", ".join(known) or "not told")


def decide_flavor(title: str, name: str, catalog: Catalog, has: Any) -> Check:
    """The file's word against the cloud's."""
    told = catalog.flavors.get(name)
    shown = f"{has.name} has {has.cpus} vCPUs and {has.memory} MiB"
    if told is None:
        return Check(title, True, shown)
    if told.arch != has.arch:
        return Check(title, False, f"{has.name} is {has.arch}", f"set flavors.{name}.arch")
    if told.cpus > has.cpus:
        todo = f"set flavors.{name}.cpus to {has.cpus} or less"
        return Check(title, False, f"{shown}; the file says {told.cpus}", todo)
    most = int(has.memory * KERNEL_SHARE - KERNEL_MIB)
    if told.memory > most:
        todo = f"set flavors.{name}.memory to {most}M or less: the kernel takes some"
        return Check(title, False, f"{shown}; the file says {told.memory} MiB", todo)
    return Check(title, True, shown)


def decide_quota(key: quotas.Key, limit: float | None, used: int, wanted: int) -> Check:
    family, spot = key
    title = f"quota of {family} {'spot' if spot else 'on-demand'} vCPUs"
    asked = f"{wanted} may be wanted, {used} are used by others"
    if limit is None:
        return Check(title, None, f"{asked}; the limit is not told")
    if wanted + used <= limit:
        return Check(title, True, f"{asked}, of {limit:.0f}")
    todo = (
        f"ask for {wanted + used} with `aws service-quotas request-service-quota-increase "
        f"--service-code ec2 --quota-code {quotas.code(key)} --desired-value {wanted + used}`"
    )
    return Check(title, False, f"{asked}, of {limit:.0f}", todo)
