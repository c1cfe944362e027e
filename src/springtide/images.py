"""Families of images, decided: which image a node gets, what to build, what may go; pure.

A family is an image of the cluster file that says how it is built. Each build or snapshot has
the next number in it, `compute@3`, and is one image for each architecture. The gallery, builds
and the API call this.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from springtide.model import MadeImage, Making, Node, NodeState
from springtide.spec import Cluster, Image
from springtide.spec.images import BY_PATH

MARK = "@"
"""Between family and number; no image of a file has it in its name."""
LONGEST = 28
"""Of a family's name within the name of a builder."""


def newest(made: Iterable[MadeImage], family: str, archs: Collection[str]) -> str | None:
    """The name of the newest that is ready for all of these architectures."""
    ready: dict[int, set[str]] = {}
    for one in made:
        if one.family == family and one.state is Making.READY:
            ready.setdefault(one.number, set()).add(one.arch)
    fitting = [number for number, found in ready.items() if found.issuperset(archs)]
    return f"{family}{MARK}{max(fitting)}" if fitting else None


def wanted(spec: Cluster, made: Iterable[MadeImage], group: str) -> str:
    """The image that new nodes of a group get; of a family that has none yet, the family."""
    return resolve(spec, made, spec.image_of(group), group)


def resolve(spec: Cluster, made: Iterable[MadeImage], name: str, group: str) -> str:
    """What a name means for nodes of a group: of a family, the newest that their provider has."""
    image = spec.images.get(name)
    if image is None or image.build is None:
        return name
    there = (one for one in made if is_there(spec, one, group))
    return newest(there, name, archs_of(spec, group)) or name


def is_there(spec: Cluster, one: MadeImage, group: str) -> bool:
    """Whether the provider of a group has an image; another region is another provider."""
    provider = spec.provider_of(group)
    if one.provider != provider.kind:
        return False
    return one.group not in spec.groups or spec.provider_of(one.group) == provider


def unbuilt(spec: Cluster, made: Sequence[MadeImage]) -> dict[str, str]:
    """Groups whose nodes could not start, for want of an image of a family, and why."""
    names = {key: spec.image_of(key) for key in spec.groups}
    families = {key: name for key, name in names.items() if spec.images[name].build}
    return {
        group: f"none was built yet for {' and '.join(sorted(archs_of(spec, group)))}, "
        f"so nodes of {group} could not start"
        for group, family in families.items()
        if wanted(spec, made, group) == family
    }


def archs_of(spec: Cluster, group: str) -> frozenset[str]:
    return frozenset(spec.flavors[name].arch for name in spec.groups[group].flavors)


def known(made: Iterable[MadeImage]) -> dict[str, Image]:
    """What is ready, as images of a cluster file would be."""
    paths: dict[str, Path] = {}
    ids: dict[str, dict[str, str]] = {}
    for one in made:
        if one.state is not Making.READY:
            continue
        if one.provider in BY_PATH:
            paths[one.name] = Path(one.id)
        else:
            ids.setdefault(one.name, {})[one.arch] = one.id
    return {
        **{name: Image.model_construct(path=path) for name, path in paths.items()},
        **{name: Image.model_construct(id=found) for name, found in ids.items()},
    }


# --- building ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Site:
    """Where an image of one architecture is built: a group, and the flavors to try."""

    group: str
    arch: str
    flavors: tuple[str, ...]


def users_of(spec: Cluster, family: str) -> list[str]:
    """The groups that use it, also as the base of what they use."""
    return [key for key in spec.groups if family in lineage(spec, spec.image_of(key))]


def lineage(spec: Cluster, name: str) -> list[str]:
    """An image, what it is built from, and so on; without end for no file that was checked."""
    found = [name]
    while (image := spec.images.get(found[-1])) and image.build and image.build.base not in found:
        found.append(image.build.base)
    return found


def sites(spec: Cluster, family: str) -> list[Site]:
    """One for each architecture that groups with the family have; none if nobody has it."""
    build = spec.images[family].build
    groups = users_of(spec, family)
    if build and build.group:
        groups = [build.group, *(key for key in groups if key != build.group)]
    found: dict[str, Site] = {}
    for group in groups:
        for arch in sorted(archs_of(spec, group)):
            flavors = [
                name for name in spec.groups[group].flavors if spec.flavors[name].arch == arch
            ]
            found.setdefault(arch, Site(group, arch, tuple(flavors)))
    return list(found.values())


def next_number(made: Iterable[MadeImage], family: str, listed: Iterable[str] = ()) -> int:
    """Past all of the family, and what providers list of it: an earlier cluster may have left it,
    and a provider answers with the image that it has of a name."""
    label = re.compile(re.escape(family) + r"-([0-9]{1,9})-[a-z]\S*")
    left = [int(found[1]) for name in listed if (found := label.fullmatch(name))]
    return max([*left, *(one.number for one in made if one.family == family)], default=0) + 1


def builder_name(family: str, number: int, arch: str) -> str:
    """A host name that says what it is for; no node of a file should be called so."""
    slug = re.sub(r"[^a-z0-9]+", "-", family.lower())[:LONGEST].strip("-")
    if slug != family:  # others may look like it
        slug += f"-{sha256(family.encode()).hexdigest()[:6]}"
    return f"tide-build-{slug}-{number}-{arch.replace('_', '-')}"


# --- cleaning ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What goes, and why the rest stays."""

    going: tuple[MadeImage, ...]
    kept: Mapping[str, str]
    """By the name of the image."""


def decide_clean(
    spec: Cluster,
    made: Sequence[MadeImage],
    nodes: Iterable[Node],
    family: str | None = None,
    keep: int | None = None,
    below: Mapping[str, Collection[str]] = {},
) -> Cleaning:
    """All but the newest few, what nodes run or new ones would get, what other families begin
    with, what is being built, and what any that stays stands on.

    `family` may be an image's own name: it then goes though new nodes would get it. `below` has
    the labels of all images that one stands on, by its own.
    """
    runs, wants = _runs(nodes, made), _wants(spec, made)
    asked = [one for one in made if family in (None, one.family, one.name)]
    why = {}
    for one in asked:
        named = family == one.name
        young = not named and _young(spec, made, one, keep)
        why[one.label] = _kept(one, young, runs, {} if named else wants)
    stood_on = _stood_on(made, {label for label in why if not why[label]}, below)
    why = {label: told or stood_on.get(label, "") for label, told in why.items()}
    return Cleaning(
        tuple(one for one in asked if not why[one.label]),
        {one.name: why[one.label] for one in asked if why[one.label]},
    )


def _runs(nodes: Iterable[Node], made: Iterable[MadeImage]) -> dict[str, list[str]]:
    """Nodes by the image that they run, and builders, of which some are yet to be made."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if node.image and node.state is not NodeState.OFF:
            found.setdefault(node.image, []).append(node.name)
    for one in made:
        if one.builder and one.state is Making.BUILDING:
            found.setdefault(one.made_from, []).append(one.builder)
    return found


def _wants(spec: Cluster, made: Sequence[MadeImage]) -> dict[str, str]:
    """What somebody would get, by its name, and who."""
    bases = {
        resolve(spec, made, image.build.base, site.group): f"{key} is built from it"
        for key, image in spec.images.items()
        if image.build
        for site in sites(spec, key)
    }
    return bases | {wanted(spec, made, key): f"new nodes of {key} get it" for key in spec.groups}


def _kept(
    one: MadeImage, young: bool, runs: Mapping[str, Sequence[str]], wants: Mapping[str, str]
) -> str:
    if one.state is Making.BUILDING:
        return "it is being built"
    if one.state is Making.FAILED:
        return ""
    if found := runs.get(one.name):
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        return f"{found[0]}{more} run{'' if more else 's'} it"
    if one.name in wants:
        return wants[one.name]
    return "it is one of the newest" if young else ""


def _stood_on(
    made: Iterable[MadeImage], going: Collection[str], below: Mapping[str, Collection[str]]
) -> dict[str, str]:
    """What lies below an image that does not go, by its label, and which that is."""
    names = {one.label: one.name for one in made}
    return {
        label: f"{names.get(above, above)} stands on it"
        for above, labels in below.items()
        if above not in going
        for label in labels
    }


def _young(spec: Cluster, made: Iterable[MadeImage], one: MadeImage, keep: int | None) -> bool:
    image = spec.images.get(one.family)
    count = keep if keep is not None else image.build.keep if image and image.build else 1
    ready = {each.number for each in made if each.family == one.family and _is_ready(each)}
    return one.number in sorted(ready)[-count:] if count else False


def _is_ready(one: MadeImage) -> bool:
    return one.state is Making.READY
