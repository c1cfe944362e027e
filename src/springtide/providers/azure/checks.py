"""Whether Azure could do what the cluster file wants; `tide check` asks."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial

from springtide.ports import Check, CloudError, CloudFlavor, Instance, Need
from springtide.providers.azure import shapes
from springtide.providers.azure.account import readable_by_others
from springtide.providers.azure.resources import Resources
from springtide.providers.azure.shapes import Json
from springtide.providers.cloud import Catalog
from springtide.providers.cloud.memory import seen_by_linux
from springtide.spec.clouds import Azure

SPOT_CORES = "lowPriorityCores"
RIGHTS = (
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Compute/virtualMachines/start/action",
    "Microsoft.Compute/virtualMachines/restart/action",
    "Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action",
    "Microsoft.Compute/disks/read",
    "Microsoft.Compute/disks/write",
    "Microsoft.Compute/disks/delete",
    "Microsoft.Compute/disks/beginGetAccess/action",
    "Microsoft.Compute/snapshots/read",
    "Microsoft.Compute/snapshots/write",
    "Microsoft.Compute/snapshots/delete",
    "Microsoft.Compute/images/read",
    "Microsoft.Compute/images/write",
    "Microsoft.Compute/images/delete",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkInterfaces/delete",
    "Microsoft.Network/networkInterfaces/join/action",
)
"""In the resource group. docs/providers/azure.md has the roles."""


class Checks:
    """Those of one block."""

    def __init__(self, resources: Resources, wanted: Azure, catalog: Catalog) -> None:
        self._resources = resources
        self._wanted = wanted
        self._catalog = catalog

    def all(self, needs: Sequence[Need], list: Callable[[], Sequence[Instance]]) -> Sequence[Check]:
        """If our machines cannot be listed, nothing else can be asked either."""
        try:
            there = list()
        except CloudError as error:
            return [*self._file(), Check("credentials", False, str(error))]
        worked = f"the machines of {self._wanted.resource_group} are listed"
        return [
            *self._file(),
            Check("credentials", True, worked),
            *self._asked("rights", self._rights),
            *self._asked("subnet", self._subnet),
            *self._images(needs),
            *self._asked("flavors", lambda: self._sized(needs, there)),
        ]

    def _asked(self, name: str, ask: Callable[[], Iterator[Check]]) -> list[Check]:
        try:
            return list(ask())
        except CloudError as error:
            return [Check(name, False, str(error))]

    def _file(self) -> Iterator[Check]:
        path = self._wanted.credentials
        if path is None:
            return
        try:
            open_to_others = readable_by_others(path)
        except OSError as error:
            yield Check("credentials file", False, str(error), f"write {path}")
            return
        if open_to_others:
            text = f"{path} can be read by others than its owner"
            yield Check("credentials file", False, text, f"chmod 600 {path}")
        else:
            yield Check("credentials file", True, f"{path} is its owner's alone")

    def _rights(self) -> Iterator[Check]:
        missing = decide_missing_rights(self._resources.rights())
        if missing:
            text = f"rights are missing in {self._wanted.resource_group}: {', '.join(missing)}"
            yield Check("rights", False, text, "give us the roles of docs/providers/azure.md")
        else:
            yield Check("rights", True, "all rights that nodes need are there")

    def _subnet(self) -> Iterator[Check]:
        prefix = (self._resources.subnet().get("properties") or {}).get("addressPrefix", "")
        yield Check("subnet", True, f"the subnet is there: {prefix}")

    def _images(self, needs: Sequence[Need]) -> Iterator[Check]:
        """Each image once for each architecture that it is wanted for."""
        wanted = [
            (need.image, self._catalog.flavors[flavor].arch)
            for need in needs
            for flavor in need.flavors
        ]
        for name, arch in dict.fromkeys(wanted):
            yield from self._asked(f"image {name}", partial(self._image, name, arch))

    def _image(self, name: str, wanted: str) -> Iterator[Check]:
        image = self._catalog.images.get(name)
        if image is None or (id := image.id_for(wanted)) is None:
            text = f"there is no id of it for {wanted}"
            yield Check(f"image {name}", False, text, f"add one to images.{name}.id")
            return
        arch = self._resources.image_arch(id)
        fits = arch in (None, wanted)
        todo = "" if fits else f"name an image for {wanted} in images.{name}.id"
        told = f"is for {arch}" if arch else "is there; Azure does not tell its architecture"
        yield Check(f"image {name}", fits, f"{id} {told}", todo)

    def _sized(self, needs: Sequence[Need], there: Sequence[Instance]) -> Iterator[Check]:
        sizes = {sku["name"]: sku for sku in self._resources.sizes()}
        for name in dict.fromkeys(flavor for need in needs for flavor in need.flavors):
            zones = {zone for need in needs if name in need.flavors for zone in need.zones}
            yield self._flavor(name, sizes.get(self._catalog.type_of(name)), zones)
        yield from self._quotas(needs, sizes, there)

    def _flavor(self, name: str, sku: Json | None, zones: set[str]) -> Check:
        called, type = f"flavor {name}", self._catalog.type_of(name)
        size = shapes.flavor(sku) if sku else None
        if sku is None or size is None:
            text = f"{self._wanted.location} has no machines of size {type}"
            return Check(called, False, text, f"change flavors.{name}.type: az vm list-skus -l …")
        if problem := decide_restriction(sku, self._wanted.location, zones):
            return Check(
                called, False, f"{type}: {problem}", "ask Azure to open it, or take another"
            )
        file = self._catalog.flavors[name]
        return check_size(name, size, file.cpus, file.memory, file.arch)

    def _quotas(
        self, needs: Sequence[Need], sizes: Mapping[str, Json], there: Sequence[Instance]
    ) -> Iterator[Check]:
        """What is used already counts, whoever uses it; our own machines are not wanted twice."""
        wanted = self._cores(needs, sizes)
        have = self._cores_there(there, sizes)
        for usage in self._resources.usages():
            name = str(usage["name"]["value"])
            more = wanted[name.lower()] - have[name.lower()]
            if name.lower() not in wanted:
                continue
            yield check_quota(usage, max(0, more))

    def _cores(self, needs: Sequence[Need], sizes: Mapping[str, Json]) -> Counter[str]:
        """Of each quota, if each group runs on the largest of its sizes there."""
        total: Counter[str] = Counter()
        for need in needs:
            most: Counter[str] = Counter()
            for flavor in need.flavors:
                for quota, cpus in _uses(sizes.get(self._catalog.type_of(flavor)), need.markets):
                    most[quota] = max(most[quota], cpus * need.count)
            total += most
        return total

    def _cores_there(self, there: Sequence[Instance], sizes: Mapping[str, Json]) -> Counter[str]:
        total: Counter[str] = Counter()
        for one in there:
            flavor = one.flavor or ""
            type = self._catalog.type_of(flavor) if flavor in self._catalog.flavors else flavor
            for quota, cpus in _uses(sizes.get(type), ()):
                total[quota] += cpus
        return total


def _uses(sku: Json | None, markets: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Which quotas a machine of this size counts against, and with how much."""
    size = shapes.flavor(sku) if sku else None
    if sku is None or size is None:
        return
    if set(markets) == {"spot"}:
        yield SPOT_CORES.lower(), size.cpus
        return
    yield "cores", size.cpus
    yield str(sku.get("family", "")).lower(), size.cpus


def check_quota(usage: Json, more: int) -> Check:
    left = int(usage["limit"]) - int(usage["currentValue"])
    said = usage["name"].get("localizedValue") or usage["name"]["value"]
    text = (
        f"{said}: {usage['currentValue']} of {usage['limit']} are used, "
        f"{more} more would be at most"
    )
    todo = "" if more <= left else f"ask for {more - left} more in the portal, Quotas"
    return Check(f"quota {usage['name']['value']}", more <= left, text, todo)


def check_size(name: str, size: CloudFlavor, cpus: int, memory: int, arch: str) -> Check:
    """Slurm drains a node that has less than it was told."""
    shown = seen_by_linux(size.memory, size.arch)
    text = f"{size.name} has {size.cpus} CPUs, {size.memory} MiB, {size.arch}"
    todo = ""
    if arch != size.arch:
        todo = f"set flavors.{name}.arch to {size.arch}"
    elif cpus > size.cpus:
        todo = f"set flavors.{name}.cpus to {size.cpus} or less"
    elif memory > shown:
        todo = f"set flavors.{name}.memory to {shown}M or less: the kernel takes the rest"
    return Check(f"flavor {name}", not todo, text, todo)


def decide_restriction(sku: Json, location: str, zones: set[str]) -> str:
    """Why this account cannot have the size here; empty if it can."""
    has = {
        zone
        for info in sku.get("locationInfo") or ()
        if str(info.get("location", "")).lower() == location.lower()
        for zone in info.get("zones") or ()
    }
    if missing := sorted(zones - has):
        return f"there is none in zone {', '.join(missing)} of {location}"
    for limit in sku.get("restrictions") or ():
        reason = limit.get("reasonCode", "")
        if str(limit.get("type")).lower() == "location":
            return f"this subscription may not use it in {location} ({reason})"
        shut = set((limit.get("restrictionInfo") or {}).get("zones") or ()) & zones
        if shut:
            return f"this subscription may not use it in zone {', '.join(sorted(shut))} ({reason})"
    return ""


def decide_missing_rights(permissions: Sequence[Json]) -> list[str]:
    """Each permission allows its actions but for its notActions; one that allows is enough."""
    return [right for right in RIGHTS if not any(_allows(one, right) for one in permissions)]


def _allows(permission: Json, right: str) -> bool:
    return _matches(permission.get("actions"), right) and not _matches(
        permission.get("notActions"), right
    )


def _matches(patterns: Sequence[str] | None, right: str) -> bool:
    return any(fnmatchcase(right.lower(), pattern.lower()) for pattern in patterns or ())
