"""Whether images are of a kind that a group's provider can use; called by `checks`."""

from collections.abc import Iterator, Mapping
from typing import Any

from springtide.spec.findings import KEY, Data, Finding, readable, section, words

BY_ID = frozenset({"openstack", "aws", "oci", "azure", "google"})
"""Clouds have images of their own."""
BY_PATH = frozenset({"containers", "libvirt"})


def check_images(data: Data) -> Iterator[Finding]:
    images = readable(data, "images")
    for key, image in images.items():
        if (image.get("path") is None) == (image.get("id") is None):
            message = (
                f"image {key!r} must have either a path (of this machine) or an id (a cloud's)"
            )
            yield Finding(("images", key), message, KEY)
    for key, group in readable(data, "groups").items():
        name = group.get("image") or "host"
        image = images.get(name) or ({"path": "/"} if name == "host" else {})
        yield from _of_the_wrong_kind(key, _provider(data, group), str(name), image)
        yield from _of_no_arch(data, key, group, str(name), image)


def _provider(data: Data, group: Data) -> Data:
    provider = group.get("provider") or data.get("provider")
    return provider if isinstance(provider, dict) else {}


def _of_the_wrong_kind(key: str, provider: Data, name: str, image: Data) -> Iterator[Finding]:
    kind = provider.get("kind", "containers")
    powered = kind == "libvirt" and provider.get("nodes") == "power"
    if kind in BY_ID and image.get("path") is not None:
        what = "the image of a group on {kind} needs an id, which {name!r} does not have"
        how = "add one to `images`, such as `images: {base: {id: …}}`, and name it here"
    elif kind in BY_PATH and not powered and image.get("id") is not None:
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
