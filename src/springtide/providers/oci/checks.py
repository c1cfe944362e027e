"""Whether OCI could do what the cluster file wants: looked up, nothing changed."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from springtide.ports import Check, CloudError, Instance, Need
from springtide.providers.cloud import Catalog
from springtide.providers.cloud.memory import seen_by_linux
from springtide.providers.oci.account import Account, decide_exposed
from springtide.providers.oci.errors import calling
from springtide.providers.oci.launches import MARKETS, PREEMPTIBLE, decide_domain
from springtide.providers.oci.limits import Left, decide_room, decide_units, take
from springtide.providers.oci.shapes import decide_flavor, decide_misfit, parse_shape
from springtide.spec.clouds import Oci


class Sight(Protocol):
    """What checks need of the driver."""

    account: Account
    catalog: Catalog
    wanted: Oci

    def domains(self) -> Sequence[str]: ...
    def shapes(self, **more: Any) -> dict[str, Any]: ...
    def list(self, cluster: str) -> Sequence[Instance]: ...


class Checks:
    """One look at everything."""

    def __init__(self, driver: Sight) -> None:
        self._driver = driver
        self._catalog = driver.catalog

    def of(self, cluster: str, needs: Sequence[Need]) -> list[Check]:
        found = [_private(path) for path in self._driver.account.files]
        try:
            domains = self._driver.domains()
            shapes = self._driver.shapes()
        except CloudError as error:
            todo = "correct the key, user, tenancy and compartment, or the policy"
            return [*found, Check("credentials", False, str(error), todo)]
        found.append(Check("credentials", True, "OCI lets us in"))
        found += self._subnets()
        found += [one for need in needs for one in self._zones(need, domains)]
        found += [one for need in needs for one in self._flavors(need, shapes)]
        found += [one for need in needs for one in self._images(need)]
        found += self._limits(cluster, needs, shapes, domains)
        found.append(Check("rights", None, "OCI has no rehearsal of launches", _POLICY))
        return found

    def _subnets(self) -> Iterable[Check]:
        wanted = self._driver.wanted
        for subnet in dict.fromkeys([wanted.subnet, *wanted.subnets.values()]):
            yield _told(f"subnet {subnet}", partial(self._subnet, subnet))

    def _subnet(self, id: str) -> Check:
        with calling("looking at the subnet"):
            found = self._driver.account.network.get_subnet(id).data
        ok = found.lifecycle_state == "AVAILABLE"
        text = f"{found.display_name}, {found.cidr_block}, is {found.lifecycle_state}"
        return Check(f"subnet {id}", ok, text, "" if ok else "name one that is AVAILABLE")

    def _zones(self, need: Need, domains: Sequence[str]) -> Iterable[Check]:
        for zone in need.zones:
            yield _told(f"zone {zone}", partial(_zone, zone, domains))
        for market in need.markets:
            if market not in MARKETS:
                text = f"group {need.group}: OCI has no such market"
                yield Check(f"market {market}", False, text, f"write {PREEMPTIBLE} or on-demand")

    def _flavors(self, need: Need, shapes: Mapping[str, Any]) -> Iterable[Check]:
        for name in need.flavors:
            yield _told(f"flavor {name}", partial(self._flavor, name, shapes))

    def _flavor(self, name: str, shapes: Mapping[str, Any]) -> Check:
        title, type = f"flavor {name}", self._catalog.type_of(name)
        real, wanted = decide_flavor(type, shapes), self._catalog.flavors[name]
        if real is None:
            known = ", ".join(sorted(shapes))
            return Check(title, False, f"{type}: no such shape here", f"name one of: {known}")
        if misfit := decide_misfit(type, shapes[parse_shape(type).name]):
            return Check(title, False, f"{type}: {misfit}", f"correct flavors.{name}.type")
        if wanted.arch != real.arch:
            return Check(title, False, f"{type} is {real.arch}", f"set flavors.{name}.arch to it")
        if wanted.cpus > real.cpus:
            todo = f"set flavors.{name}.cpus to {real.cpus} or less"
            return Check(title, False, f"{type} has {real.cpus} cpus, not {wanted.cpus}", todo)
        if wanted.memory > (most := seen_by_linux(real.memory, real.arch)):
            text = f"of {real.memory} MiB of {type}, Linux shows fewer than {wanted.memory}"
            return Check(title, False, text, f"set flavors.{name}.memory to {most}M or less")
        return Check(title, True, f"{type} has {real.cpus} cpus and {real.memory} MiB")

    def _images(self, need: Need) -> Iterable[Check]:
        fits: dict[str, list[str]] = {}
        for name in need.flavors:
            arch = self._catalog.flavors[name].arch
            image = self._catalog.images.get(need.image)
            id = image.id_for(arch) if image else None
            if id is None:
                text = f"group {need.group}: no image for {arch}, which flavor {name} is"
                yield Check(f"image {need.image}", False, text, f"set images.{need.image}.id")
            else:
                fits.setdefault(id, []).append(name)
        for id, names in fits.items():
            look = partial(self._image, need.image, id, names)
            yield _told(f"image {need.image}", look)

    def _image(self, title: str, id: str, flavors: Sequence[str]) -> Check:
        with calling("looking at the image"):
            found = self._driver.account.compute.get_image(id).data
        if found.lifecycle_state != "AVAILABLE":
            text = f"{found.display_name} is {found.lifecycle_state}"
            return Check(f"image {title}", False, text, f"correct images.{title}.id")
        fitting = self._driver.shapes(image_id=id)
        for name in flavors:
            shape = parse_shape(self._catalog.type_of(name)).name
            if shape not in fitting:
                text = f"{found.display_name} does not run on {shape}, the shape of flavor {name}"
                return Check(f"image {title}", False, text, f"correct images.{title}.id")
        return Check(f"image {title}", True, f"{found.display_name} is there")

    def _limits(
        self, cluster: str, needs: Sequence[Need], shapes: Mapping[str, Any], domains: Sequence[str]
    ) -> list[Check]:
        try:
            there = Counter(one.flavor for one in self._driver.list(cluster))
        except CloudError as error:
            return [Check("limits", False, str(error), _POLICY)]
        left: Left = {}
        return [
            _told(
                f"limits of group {need.group}",
                partial(self._limit, need, shapes, domains, left, there),
            )
            for need in needs
        ]

    def _limit(
        self,
        need: Need,
        shapes: Mapping[str, Any],
        domains: Sequence[str],
        left: Left,
        there: Counter[str | None],
    ) -> Check:
        """What is there already needs no room. Flavors are tried in order, as launches do."""
        title, missing, rooms = f"limits of group {need.group}", need.count, list[str]()
        zones = [decide_domain(zone, domains) for zone in need.zones or (None,)]
        for name in need.flavors:
            shape = parse_shape(self._catalog.type_of(name))
            here = min(missing, there[name])
            there[name] -= here
            missing -= here
            if (listed := shapes.get(shape.name)) is None:
                continue
            units = decide_units(shape, listed)
            self._look(units, zones, left)
            if room := decide_room(units, left, zones):
                rooms.append(f"{sum(room.values())} of {name} ({', '.join(units)})")
                missing = take(missing, units, left, room)
        if not rooms:
            return Check(title, None, "OCI does not tell its limits for these shapes")
        text = f"{need.count} wanted, {need.count - missing} possible; room for {'; '.join(rooms)}"
        todo = "raise the limit in the console under Limits, Quotas and Usage, or want fewer"
        return Check(title, not missing, text, todo if missing else "")

    def _look(self, units: Iterable[str], zones: Iterable[str], left: Left) -> None:
        """What is left, once for each limit and domain; OCI does not tell of all."""
        wanted = self._driver.wanted
        for limit, zone in ((limit, zone) for limit in units for zone in zones):
            if (limit, zone) in left:
                continue
            try:
                with calling(f"looking at limit {limit}"):
                    answer = self._driver.account.limits.get_resource_availability(
                        "compute", limit, wanted.compartment, availability_domain=zone
                    ).data
            except CloudError:
                continue
            if answer.available is not None:
                left[limit, zone] = float(answer.available)


_POLICY = "see the policy in docs/providers/oci.md"


def _private(path: Path) -> Check:
    """Credentials are for us alone."""
    try:
        exposed = decide_exposed([(path, path.stat().st_mode)])
    except OSError as error:
        return Check(f"file {path}", False, f"cannot be looked at: {error.strerror}")
    if exposed:
        return Check(f"file {path}", False, "others can read it", f"chmod 600 {path}")
    return Check(f"file {path}", True, "only its owner can read it")


def _zone(zone: str, domains: Sequence[str]) -> Check:
    return Check(f"zone {zone}", True, decide_domain(zone, domains))


def _told(title: str, look: Callable[[], Check]) -> Check:
    """What cannot be looked up is said."""
    try:
        return look()
    except CloudError as error:
        return Check(title, False, str(error), "correct it in the cluster file, or the policy")
