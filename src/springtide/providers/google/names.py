"""How nodes are called at Google, and which node an instance is; pure.

An instance is called `<cluster>-<node>-<generation>`, which tells all three. Names that Google does
not allow (capitals, `_`, `.`, more than 63 characters) are shortened and end in a hash instead;
instances with such names carry a roster of their launch in their description.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

from springtide.ports import Launch
from springtide.providers.cloud import roster
from springtide.providers.cloud.roster import Member
from springtide.providers.cloud.tags import NODES

LONGEST = 63
DESCRIPTION = 2000
"""Characters of a description; Google allows 2048."""
_ALLOWED = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_PLAIN_NODE = re.compile(r"[-a-z0-9]+")
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_HASH = 10
_ROSTER = "nodes"


def allowed(name: str) -> bool:
    """Whether something at Google can have this name at all."""
    return _ALLOWED.fullmatch(name) is not None


def instance_name(cluster: str, node: str, generation: int) -> str:
    return fit(f"{cluster}-{node}-{generation}")


def is_plain(cluster: str, node: str, generation: int) -> bool:
    """Whether the name of its instance tells the node as it is."""
    name = f"{cluster}-{node}-{generation}"
    return allowed(name) and _PLAIN_NODE.fullmatch(node) is not None


def fit(name: str) -> str:
    """The name itself if it may be one; else what is left of it, with a hash of the whole."""
    if allowed(name):
        return name
    kept = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    head = kept[: LONGEST - _HASH - 1].strip("-") or "x"
    start = head if head[0].isalpha() else f"x{head[1:]}"
    return f"{start}-{_hash(name)}"


def label(value: str) -> str:
    """A value as a label can have it; labels are for filters and bills, not for reading back."""
    if _LABEL.fullmatch(value):
        return value
    kept = re.sub(r"[^a-z0-9_-]", "-", value.lower())[: LONGEST - _HASH - 1]
    return f"{kept}-{_hash(value)}"


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_HASH]


# --- what a description says ----------------------------------------------------------


def describe(launch: Launch, image_id: str, members: Sequence[Member]) -> str:
    """What all instances of a launch say of themselves; members only if names do not tell."""
    facts: dict[str, Any] = {
        "springtide": launch.cluster,
        "image": launch.image,
        "image_id": image_id,
        "flavor": launch.flavor,
    }
    if members:
        facts[_ROSTER] = " ".join(roster.write(members).values())
    return json.dumps(facts, separators=(",", ":"))


def describe_image(cluster: str, name: str) -> str:
    return json.dumps({"springtide": cluster, "name": name}, separators=(",", ":"))


def read_description(text: object) -> Mapping[str, Any]:
    """Nothing if it is not one of ours."""
    try:
        facts = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) and "springtide" in facts else {}


def member_of(cluster: str, name: str, facts: Mapping[str, Any]) -> Member | None:
    """Which node and generation an instance is; None if it is none of ours."""
    if facts.get("springtide") != cluster:
        return None
    if isinstance(text := facts.get(_ROSTER), str):
        return _by_name(cluster, text).get(name)
    node, _, generation = name.removeprefix(f"{cluster}-").rpartition("-")
    if not generation.isdecimal() or instance_name(cluster, node, int(generation)) != name:
        return None
    return node, int(generation)


@lru_cache(maxsize=256)
def _by_name(cluster: str, text: str) -> dict[str, Member]:
    """Instances of one launch share their roster, and lists of them are long."""
    return {instance_name(cluster, *member): member for member in roster.read({NODES: text})}


def decide_parts(launches: Sequence[Launch]) -> list[list[Launch]]:
    """Launches that can share a call: those whose names tell, and others with a roster."""
    plain = [one for one in launches if is_plain(one.cluster, one.node, one.generation)]
    odd = {(one.node, one.generation): one for one in launches if one not in plain}
    ordered = [odd[member] for member in roster.ordered([*odd])]
    return [part for part in (plain, *_fitting(ordered)) if part]


def _fitting(launches: Sequence[Launch]) -> list[list[Launch]]:
    """Parts whose roster fits a description, and whose script fits the metadata."""
    members = [(one.node, one.generation) for one in launches]
    if len(launches) <= 1 or (len(launches) <= 200 and _size(launches[0], members) <= DESCRIPTION):
        return [[*launches]]
    half = len(launches) // 2
    return _fitting(launches[:half]) + _fitting(launches[half:])


def _size(launch: Launch, members: Sequence[Member]) -> int:
    """With room for the longest id of an image."""
    return len(describe(launch, "x" * 200, members))
