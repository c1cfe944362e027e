"""Whether images are of a kind that a group's provider can use; called by `checks`."""

from collections.abc import Iterator, Mapping
from typing import Any

from springtide.spec.findings import KEY, Data, Finding, readable, section, undefined, words

BY_ID = frozenset({"openstack", "aws", "oci", "azure", "google"})
"""Clouds have images of their own."""
BY_PATH = frozenset({"containers", "libvirt"})
LAYERED = frozenset({"containers"})
"""Their images stand on each other; elsewhere each is whole."""
UNMADE = frozenset({"terraform", "command", "none"})
"""They make no images of instances."""


def check_images(data: Data) -> Iterator[Finding]:
    images = readable(data, "images")
    for key, image in images.items():
        if sum(image.get(word) is not None for word in ("path", "id", "build")) != 1:
            message = (
                f"image {key!r} must have either a path (of this machine) or an id (a cloud's), "
                "or say how to build it"
            )
            yield Finding(("images", key), message, KEY)
        yield from _of_no_base(data, key, image)
        yield from _of_two_providers(data, key, image)
    for key, group in readable(data, "groups").items():
        name = image_name(data, group)
        yield from _of_no_maker(key, provider_of(data, group), name, images.get(name) or {})
        name = base_of(images, name)
        image = images.get(name) or ({"path": "/"} if name == "host" else {})
        yield from _of_the_wrong_kind(key, provider_of(data, group), name, image)
        yield from _of_no_arch(data, key, group, name, image)


def base_of(images: Mapping[str, Any], name: str) -> str:
    """The image that a family begins with, in the end; of others, itself."""
    for _ in images:
        build = section(images.get(name) or {}, "build")
        if not isinstance(base := build.get("base"), str):
            break
        name = base
    return name


def _of_no_base(data: Data, key: str, image: Data) -> Iterator[Finding]:
    build, images = section(image, "build"), readable(data, "images")
    loc = ("images", key, "build")
    for word, kind, known in (
        ("base", "image", list({"host": None, **section(data, "images")})),
        ("group", "group", list(section(data, "groups"))),
    ):
        if isinstance(name := build.get(word), str):
            yield from undefined((*loc, word), f"image {key!r}", kind, name, known)
    if build and section(images.get(base_of(images, key)) or {}, "build").get("base") is not None:
        yield Finding((*loc, "base"), f"image {key!r} is built from itself in the end; change it")
    if build and key == "host":
        message = "the image 'host' is this machine's own root; choose another name"
        yield Finding(("images", key), message, KEY)


def _of_no_maker(key: str, provider: Data, name: str, image: Data) -> Iterator[Finding]:
    """Where no images are made, none can be built."""
    kind = provider.get("kind", "containers")
    if image.get("build") is not None and (kind in UNMADE or _is_powered(provider)):
        message = f"{kind} makes no images, so the family {name!r} cannot be built there"
        yield Finding(("groups", key, "image"), f"{message}; name an image that exists")


def _of_two_providers(data: Data, family: str, image: Data) -> Iterator[Finding]:
    """An image is in one place: another region or account does not have it."""
    if not (build := section(image, "build")):
        return
    images, groups = readable(data, "images"), readable(data, "groups")
    named = {key: image_name(data, one) for key, one in groups.items()}
    users = [key for key, name in named.items() if family in _lineage(images, name)]
    if isinstance(at := build.get("group"), str) and at in groups:
        users = [at, *(key for key in users if key != at)]
    places = {key: {"kind": "containers", **provider_of(data, groups[key])} for key in users}
    for key in users[1:]:
        if places[key] != places[users[0]]:
            message = (
                f"the family {family!r} is made by the provider of {users[0]!r}, and that of "
                f"{key!r} is another one; give each a family of its own"
            )
            yield Finding(("groups", key, "image"), message)
            return


def _lineage(images: Mapping[str, Any], name: object) -> list[object]:
    """An image, what it is built from, and so on."""
    found = [name]
    for _ in images:
        found.append(section(images.get(str(found[-1])) or {}, "build").get("base"))
    return found


def provider_of(data: Data, group: Data) -> Data:
    provider = group.get("provider") or data.get("provider")
    return provider if isinstance(provider, dict) else {}


def image_name(data: Data, group: Data) -> str:
    """The group's own, or the cluster's: which machines that exist do not get."""
    whole = data.get("image") if makes_nodes(provider_of(data, group)) else None
    return str(group.get("image") or whole or "host")


def makes_nodes(provider: Data) -> bool:
    """Whether its nodes are made, and from an image."""
    return provider.get("kind") != "none" and not _is_powered(provider)


def takes_paths(provider: Data) -> bool:
    """Whether its images are files of this machine."""
    return provider.get("kind", "containers") in BY_PATH and not _is_powered(provider)


def _is_powered(provider: Data) -> bool:
    """Machines that exist, and are only switched on and off."""
    return provider.get("kind") == "libvirt" and provider.get("nodes") == "power"


def _of_the_wrong_kind(key: str, provider: Data, name: str, image: Data) -> Iterator[Finding]:
    kind = provider.get("kind", "containers")
    if kind in BY_ID and image.get("path") is not None:
        what = "the image of a group on {kind} needs an id, which {name!r} does not have"
        how = "add one to `images`, such as `images: {base: {id: …}}`, and name it here"
    elif takes_paths(provider) and image.get("id") is not None:
        what = "the image of a group on {kind} needs a path, which {name!r} does not have"
        how = "give it one in `images`"
    else:
        return
    message = f"{what.format(kind=kind, name=name)}; {how}"
    yield Finding(("groups", key, "image"), message)


def _of_no_arch(
    data: Data, key: str, group: Data, name: str, image: Mapping[str, Any]
) -> Iterator[Finding]:
    """An image for each architecture: all flavors of the group must find theirs."""
    if not isinstance(image.get("id"), Mapping):
        return
    flavors = section(data, "flavors")
    for i, flavor in words(group.get("flavors") or ["default"]):
        wanted = flavors.get(flavor)
        arch = wanted.get("arch") or "x86_64" if isinstance(wanted, dict) else "x86_64"
        if arch not in image["id"]:
            has = ", ".join(map(str, image["id"])) or "none"
            message = f"flavor {flavor!r} is {arch}, but image {name!r} has ids for {has} only"
            yield Finding(("groups", key, "flavors", i), f"{message}; add one to `images`")
