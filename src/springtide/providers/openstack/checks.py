"""Whether a project could do what the cluster file wants, and what to do if not."""

import stat
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network

from springtide.ports import Check, CloudError, CloudFlavor, Need
from springtide.providers.cloud import Catalog
from springtide.providers.openstack.api import (
    COMPUTE,
    IMAGE,
    NETWORK,
    REBUILDS_VOLUMES,
    Api,
    Json,
)
from springtide.providers.openstack.quota import Use, check_quotas, used_by
from springtide.providers.openstack.shapes import parse_flavor, parse_image
from springtide.spec.clouds import OpenStack

USABLE, KERNEL = 0.97, 256
"""What a kernel shows of a machine's memory: so much of it, less so many MiB."""


class Checks:
    """Of one cluster file; each asks by itself, and what it cannot find out it says."""

    def __init__(self, wanted: OpenStack, catalog: Catalog, api: Api) -> None:
        self._wanted = wanted
        self._catalog = catalog
        self._api = api

    def all(self, needs: Sequence[Need], servers: Callable[[], Sequence[Json]]) -> list[Check]:
        found = [*self._file(), *_tried("cloud", self._sign_in)]
        if any(check.ok is False and check.name == "cloud" for check in found):
            return found
        flavors: dict[str, CloudFlavor] = {}
        found += _tried("cloud flavors", lambda: self._flavors(needs, flavors))
        found += _tried("cloud images", lambda: self._images(needs))
        found += _tried("cloud network", self._network)
        found += _tried("cloud login", self._login)
        found += _tried("cloud zones", lambda: self._zones(needs))
        found += _tried("cloud quota", lambda: self._quotas(needs, flavors, servers()))
        return found + self._rights()

    def _file(self) -> list[Check]:
        """The credential is for us alone."""
        path = self._wanted.credentials
        if path is None:
            return []
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError as error:
            text = f"{path} cannot be read: {error.strerror}"
            return [Check("cloud credential", False, text, "put the clouds.yaml there again")]
        if mode & 0o077:
            text = f"{path} has mode {mode:04o}: others can read the credential"
            return [Check("cloud credential", False, text, f"chmod 600 {path}")]
        return [Check("cloud credential", True, f"{path} is readable by its owner alone")]

    def _sign_in(self) -> list[Check]:
        project, version = self._api.project(), ".".join(map(str, self._api.version))
        lost = ""
        if self._wanted.volume and self._api.version < REBUILDS_VOLUMES:
            lost = "; volumes are not rebuilt in place before 2.93: such nodes are made anew"
        return [
            Check("cloud", True, f"signed in to project {project}, Nova speaks {version}{lost}")
        ]

    def _flavors(self, needs: Sequence[Need], known: dict[str, CloudFlavor]) -> list[Check]:
        for one in self._api.pages(COMPUTE, "/flavors/detail", "flavors"):
            known[one["name"]] = known[one["id"]] = parse_flavor(one)
        names = dict.fromkeys(name for need in needs for name in need.flavors)
        return [self._flavor(name, known.get(self._catalog.type_of(name))) for name in names]

    def _flavor(self, name: str, found: CloudFlavor | None) -> Check:
        wanted, called = self._catalog.flavors[name], f"cloud flavor {name}"
        if found is None:
            text = f"the project sees no flavor {self._catalog.type_of(name)}"
            return Check(called, False, text, f"set flavors.{name}.type to one that it sees")
        if wanted.cpus > found.cpus:
            text = f"it has {found.cpus} CPUs, the file says {wanted.cpus}"
            return Check(called, False, text, f"set flavors.{name}.cpus: {found.cpus}")
        usable = max(int(found.memory * USABLE) - KERNEL, found.memory // 2)
        if wanted.memory > usable:
            text = f"a node shows about {usable} MiB of its {found.memory}, not {wanted.memory}"
            return Check(called, False, text, f"set flavors.{name}.memory: {usable}M or less")
        return Check(called, True, f"{found.cpus} CPUs, {found.memory} MiB")

    def _images(self, needs: Sequence[Need]) -> list[Check]:
        pairs = dict.fromkeys(
            (need.image, self._catalog.flavors[name].arch)
            for need in needs
            for name in need.flavors
        )
        return [self._image(image, arch) for image, arch in pairs]

    def _image(self, name: str, arch: str) -> Check:
        called, ref = f"cloud image {name}", self._catalog.images[name].id_for(arch)
        if ref is None:
            return Check(called, False, f"it has no id for {arch}", f"add it to images.{name}.id")
        found = self._api.named(IMAGE, "/images", "images", ref)
        if found is None:
            text = f"the project sees no image {ref}, or several of that name"
            return Check(called, False, text, f"set images.{name}.id to the id of one it sees")
        image = parse_image(found)
        if not image.ready:
            return Check(
                called, False, f"{ref} is {found.get('status')}", "wait until it is active"
            )
        if image.arch != arch:
            text = f"{ref} is for {image.arch}, the flavors are {arch}"
            return Check(called, False, text, f"name one for each in images.{name}.id")
        return Check(called, True, f"{ref} is active")

    def _network(self) -> list[Check]:
        name = self._wanted.network
        found = self._api.named(NETWORK, "/networks", "networks", name)
        if found is None:
            text = f"the project sees no network {name}, or several of that name"
            return [Check("cloud network", False, text, "set provider.network to the id of one")]
        subnets = list(self._api.pages(NETWORK, "/subnets", "subnets", network_id=found["id"]))
        if not subnets:
            todo = "add a subnet to it: nodes get their addresses from it"
            return [Check("cloud network", False, f"network {name} has no subnet", todo)]
        ranges = [IPv4Network(one["cidr"]) for one in subnets if one["ip_version"] == 4]
        return [Check("cloud network", True, f"network {name} exists"), *self._addresses(ranges)]

    def _addresses(self, ranges: Sequence[IPv4Network]) -> list[Check]:
        astray = [
            node
            for node, address in self._wanted.addresses.items()
            if not any(IPv4Address(str(address)) in one for one in ranges)
        ]
        text = f"{', '.join(astray)}: not in a subnet of {self._wanted.network}"
        return (
            [Check("cloud addresses", False, text, "correct provider.addresses")] if astray else []
        )

    def _login(self) -> list[Check]:
        """The key pair and the security groups."""
        checks = []
        keys = self._api.get(COMPUTE, "/os-keypairs")["keypairs"] if self._wanted.key else []
        if self._wanted.key and self._wanted.key not in {one["keypair"]["name"] for one in keys}:
            text = f"this user has no key pair {self._wanted.key}"
            checks.append(Check("cloud key", False, text, "make it, or leave provider.key out"))
        for name in self._wanted.security_groups:
            path, key = "/security-groups", "security_groups"
            if self._api.named(NETWORK, path, key, name) is None:
                text = f"the project sees no security group {name}, or several of that name"
                todo = "correct provider.security_groups"
                checks.append(Check("cloud security groups", False, text, todo))
        return checks

    def _zones(self, needs: Sequence[Need]) -> list[Check]:
        wanted = {zone for need in needs for zone in need.zones}
        if not wanted:
            return []
        told = self._api.get(COMPUTE, "/os-availability-zone")["availabilityZoneInfo"]
        known = {one["zoneName"] for one in told if one["zoneState"]["available"]}
        if missing := sorted(wanted - known):
            text = f"no such zones, or not available: {', '.join(missing)}"
            return [Check("cloud zones", False, text, f"use some of {', '.join(sorted(known))}")]
        return [Check("cloud zones", True, f"{', '.join(sorted(wanted))} are available")]

    def _quotas(
        self, needs: Sequence[Need], known: dict[str, CloudFlavor], ours: Sequence[Json]
    ) -> list[Check]:
        limits = self._api.get(COMPUTE, "/limits")["limits"]["absolute"]
        wanted = Use()
        for need in needs:
            sizes = [known.get(self._catalog.type_of(name)) for name in need.flavors]
            wanted += Use.of(need.count, [one for one in sizes if one])
        grouped = bool(self._wanted.server_group)
        return check_quotas(limits, wanted, used_by(ours), grouped)

    def _rights(self) -> list[Check]:
        """Nova has no dry run; only what members may not do by default is told."""
        if not self._wanted.hosts:
            return []
        text = "provider.hosts needs the right compute:servers:create:requested_destination"
        return [Check("cloud rights", None, text, "ask the cloud's administrator for it")]


def _tried(name: str, ask: Callable[[], list[Check]]) -> list[Check]:
    try:
        return ask()
    except CloudError as error:
        return [Check(name, False, str(error), "see why the cloud says so")]
