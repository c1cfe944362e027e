"""Whether Google could do what the cluster file wants: `tide check` and `tide deploy` ask.

Nothing is changed by it. The API has no dry run of a launch, so rights are asked for where
Google tells them, and what cannot be known is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from springtide.ports import Check, CloudError, CloudFlavor, Launch, Need
from springtide.providers.cloud.memory import seen_by_linux
from springtide.providers.google import parse, render
from springtide.providers.google.credentials import check_file
from springtide.providers.google.errors import is_missing
from springtide.spec import Flavor

if TYPE_CHECKING:
    from springtide.providers.google.driver import Compute

ROLE = "give the service account the role in docs/providers/google.md"
USE = "compute.subnetworks.use"
Quotas = Mapping[str, tuple[float, float]]
"""Limit and usage of each metric."""


def check(driver: Compute, cluster: str, needs: Sequence[Need]) -> list[Check]:
    key = check_file(driver.wanted.credentials)
    if key.ok is False:
        return [key]
    first = _tried("project", lambda: _project(driver))
    if any(each.ok is False for each in first):
        return [key, *first]
    parts: list[Callable[[], Iterator[Check]]] = [
        lambda: _network(driver),
        lambda: _zones(driver, needs),
        lambda: _images(driver, needs),
        lambda: _machines(driver, needs),
        lambda: _quotas(driver, cluster, needs),
    ]
    names = ("network", "zones", "images", "flavors", "quota")
    rest = [one for name, part in zip(names, parts, strict=True) for one in _tried(name, part)]
    return [key, *first, *rest, _rights()]


def _tried(name: str, part: Callable[[], Iterator[Check]]) -> list[Check]:
    """What it finds until it fails, and why it failed."""
    found: list[Check] = []
    try:
        found.extend(part())
    except CloudError as error:
        found.append(Check(name, False, str(error)))
    return found


def _project(driver: Compute) -> Iterator[Check]:
    driver.api.get("", f"project {driver.wanted.project}")
    yield Check("project", True, f"Google knows us in project {driver.wanted.project}")


def _network(driver: Compute) -> Iterator[Check]:
    path = render.subnetwork(driver.wanted)
    try:
        driver.api.get(path, f"subnetwork {path}")
    except CloudError as error:
        if not is_missing(error):
            raise
        todo = "see `gcloud compute networks subnets list`, and correct `subnetwork`"
        yield Check("network", False, f"there is no subnetwork {path}", todo)
        return
    yield Check("network", True, f"{path} is there")
    asked = {"permissions": [USE]}
    answer = driver.api.post(f"{path}/testIamPermissions", f"rights on {path}", asked)
    may = USE in (answer.get("permissions") or ())
    text = f"nodes {'may' if may else 'may not'} be put on {path} ({USE})"
    yield Check("rights on network", may, text, "" if may else ROLE)


def _zones(driver: Compute, needs: Sequence[Need]) -> Iterator[Check]:
    region = region_of(driver)
    for zone in zones_of(driver, needs):
        name = f"zone {zone}"
        try:
            seen = driver.api.get(f"zones/{zone}", name)
        except CloudError as error:
            if not is_missing(error):
                raise
            yield Check(name, False, f"there is no {name}", "see `gcloud compute zones list`")
            continue
        there = parse.last(seen.get("region"))
        if there != region:
            todo = f"name zones of {region}, or a subnetwork of {there}"
            yield Check(name, False, f"{zone} is in {there}, the subnetwork in {region}", todo)
        else:
            yield Check(name, seen.get("status") == "UP", f"{zone} is {seen.get('status')}")


def _images(driver: Compute, needs: Sequence[Need]) -> Iterator[Check]:
    for image, flavor in sorted({(need.image, one) for need in needs for one in need.flavors}):
        name = f"image {image}"
        try:
            id = driver.catalog.image_id(Launch("", image, 0, "", image, flavor))
            seen = driver.pictures.look(parse.image_path(driver.api.project, id))
        except CloudError as error:
            yield Check(name, False, str(error), f"correct images.{image}.id")
            continue
        arch, wanted = parse.arch(seen), driver.catalog.flavors[flavor].arch
        if seen.get("architecture") and arch != wanted:
            todo = f"give images.{image}.id one for {wanted}"
            yield Check(name, False, f"{id} is {arch}, flavor {flavor} is {wanted}", todo)
        else:
            yield Check(name, True, f"{id} is {seen['name']}, for {flavor}")


def _machines(driver: Compute, needs: Sequence[Need]) -> Iterator[Check]:
    wanted = {
        (flavor, zone)
        for need in needs
        for flavor in need.flavors
        for zone in need.zones or [driver.wanted.zone]
    }
    for flavor, zone in sorted(wanted):
        name, type = f"flavor {flavor}", driver.catalog.type_of(flavor)
        try:
            seen = driver.api.get(f"zones/{zone}/machineTypes/{type}", f"machine type {type}")
        except CloudError as error:
            if not is_missing(error):
                raise
            todo = f"see `gcloud compute machine-types list --zones {zone}`; correct its type"
            yield Check(name, False, f"{zone} has no machine type {type}", todo)
            continue
        yield decide_size(flavor, driver.catalog.flavors[flavor], parse.flavor(seen), zone)


def decide_size(name: str, flavor: Flavor, has: CloudFlavor, zone: str) -> Check:
    """Whether the machine is as big as Slurm is told; a smaller node is drained at once."""
    most = seen_by_linux(has.memory, has.arch)
    title, wrong, todo = f"flavor {name}", "", ""
    if flavor.cpus > has.cpus:
        wrong, todo = f"{flavor.cpus} cpus, it has {has.cpus}", f"set cpus: {has.cpus}"
    elif flavor.memory > most:
        wrong = f"{flavor.memory}M of memory, a kernel may show {most}M of its {has.memory}M"
        todo = f"set memory: {most}M or less"
    elif flavor.arch != has.arch:
        wrong, todo = f"{flavor.arch}, it is {has.arch}", f"set arch: {has.arch}"
    if wrong:
        return Check(title, False, f"the file says of {has.name} {wrong}", f"{todo} for {name}")
    return Check(title, True, f"{zone} has {has.name}: {has.cpus} cpus, {has.memory}M")


def _quotas(driver: Compute, cluster: str, needs: Sequence[Need]) -> Iterator[Check]:
    """What others use counts, the control host among them; what is ours already does not."""
    region = region_of(driver)
    seen = driver.api.get(f"regions/{region}", f"region {region}")
    quotas = {
        str(one.get("metric")): (float(one.get("limit", 0)), float(one.get("usage", 0)))
        for one in seen.get("quotas") or ()
    }
    ours: Counter[str] = Counter()
    for one in driver.list(cluster):
        if one.flavor is not None and one.flavor in driver.catalog.flavors:
            ours += decide_cost(driver, one.flavor, None, 1, quotas)
    wanted: Counter[str] = Counter()
    for need in needs:
        if need.flavors:
            market = need.markets[0] if need.markets else None
            wanted += decide_cost(driver, need.flavors[0], market, need.count, quotas)
    for metric, count in sorted(wanted.items()):
        if metric in quotas:
            yield decide_quota(region, metric, count, ours[metric], quotas[metric])


def decide_cost(
    driver: Compute, flavor: str, market: str | None, count: int, quotas: Quotas
) -> Counter[str]:
    """What so many nodes take of which quota. Families have one of their own, or share CPUS."""
    family = f"{driver.catalog.type_of(flavor).split('-')[0].upper()}_CPUS"
    metric = family if family in quotas else "CPUS"
    if market == "spot" and quotas.get("PREEMPTIBLE_CPUS", (0.0, 0.0))[0] > 0:
        metric = "PREEMPTIBLE_CPUS"
    return Counter({metric: driver.catalog.flavors[flavor].cpus * count, "INSTANCES": count})


def decide_quota(
    region: str, metric: str, wanted: int, ours: int, quota: tuple[float, float]
) -> Check:
    limit, usage = quota
    left = limit - usage + ours
    text = (
        f"{region}: {metric} {limit:.0f}, used {usage:.0f} ({ours} of them by this cluster); "
        f"the file wants {wanted} at most"
    )
    todo = f"ask Google for {wanted - left:.0f} more of {metric} in {region}, or lower `nodes`"
    return Check(f"quota {metric}", left >= wanted, text, "" if left >= wanted else todo)


def _rights() -> Check:
    text = "whether we may make and delete instances, Google tells only when one is made"
    return Check("rights", None, text, "compare the role with docs/providers/google.md")


def region_of(driver: Compute) -> str:
    """That of the subnetwork: all nodes are in it."""
    return render.subnetwork(driver.wanted).split("/")[3]


def zones_of(driver: Compute, needs: Sequence[Need]) -> list[str]:
    return sorted({zone for need in needs for zone in need.zones or [driver.wanted.zone]})
