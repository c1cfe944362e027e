"""What things are called on Azure: machines, images, and resource ids. Pure."""

import re
from hashlib import sha256
from typing import Any

from springtide.ports import Launch

LONGEST = 64
"""Of the name of a Linux machine."""
DIGEST = 8
_URN = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+):([\w.-]+)")


def machine_name(launch: Launch) -> str:
    """Of this node and generation alone: making it twice makes one.

    Names on Azure know no case, and a cluster `a-b` may have a node `c` where a cluster `a` has a
    `b-c`; what is left to chance is 1 in 2**32.
    """
    return _name(launch.cluster, launch.node, str(launch.generation))


def image_name(cluster: str, name: str) -> str:
    return _name(cluster, name)


def _name(*parts: str) -> str:
    digest = sha256("/".join(parts).encode()).hexdigest()[:DIGEST]
    plain = re.sub(r"[^A-Za-z0-9-]", "-", "-".join(parts))[: LONGEST - DIGEST - 1].strip("-")
    return f"{plain}-{digest}"


def computer_name(node: str) -> str:
    """A host name that the first boot has; ours comes with the user data."""
    return re.sub(r"[^A-Za-z0-9-]", "-", node)[:LONGEST].strip("-") or "node"


def resource_id(text: str) -> str:
    """As Azure writes it: the cluster file may leave out the slash at the beginning."""
    return f"/{text.lstrip('/')}"


def image_reference(id: str) -> dict[str, str]:
    """A URN publisher:offer:sku:version, or the resource id of an image or gallery image."""
    if match := _URN.fullmatch(id):
        return dict(zip(("publisher", "offer", "sku", "version"), match.groups(), strict=True))
    return {"id": resource_id(id)}


def image_of(reference: Any) -> str | None:
    """The other way, as the cluster file has it."""
    if not reference:
        return None
    if id := reference.get("id"):
        return str(id).lstrip("/")
    return ":".join(str(reference.get(key)) for key in ("publisher", "offer", "sku", "version"))


def same(one: str, other: str) -> bool:
    """Ids of Azure know no case."""
    return one.lstrip("/").lower() == other.lstrip("/").lower()


def last(id: str) -> str:
    """The name at the end of a resource id."""
    return id.rstrip("/").rsplit("/", 1)[-1]
