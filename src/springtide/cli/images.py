"""`tide nodes --images`: what each node runs and what the file wants; pure.

How far a rebuild has come, and what it left undone.
"""

from collections.abc import Iterable, Sequence

from springtide.cli import output
from springtide.cli.client import Json
from springtide.model import NodeState
from springtide.nodeset import fold

COLUMNS = ("nodes", "state", "image", "wanted", "right?", "rebuilds", "uptime")


def render_images(found: Iterable[Json], each: bool, now: float) -> list[list[str]]:
    """A row for each node that is ours, or for all that look the same."""
    alike: dict[tuple[str, ...], list[Json]] = {}
    for node in found:
        if node["state"] is not None:
            alike.setdefault((*_looks(node), node["name"] if each else ""), []).append(node)
    return [_row(nodes, now) for nodes in alike.values()]


def _row(alike: Sequence[Json], now: float) -> list[str]:
    names = fold(node["name"] for node in alike)
    return [names, *_looks(alike[0]), _uptime(alike, now)]


def _looks(node: Json) -> tuple[str, ...]:
    state, image = node["state"], _image(node)
    return state, image, node["wanted_image"], _right(node, image), str(node["rebuilds"])


def _image(node: Json) -> str:
    """What its instance says it runs; the record, if it does not say."""
    if node["state"] == NodeState.OFF:
        return ""
    ours = [one for one in node["instances"] if one["generation"] == node["generation"]]
    images = [one["image"] for one in ours if one["image"]]
    return images[0] if images else node["image"] or ""


def _right(node: Json, image: str) -> str:
    if node["outdated"]:
        return f"no: {node['outdated']}"
    if node.get("unconfigured"):
        return f"no: {node['unconfigured']}, see `tide update`"
    return "yes" if image else ""


def _uptime(alike: Iterable[Json], now: float) -> str:
    """Since they booted, as the batch system says; from the shortest to the longest."""
    up = (node for node in alike if node["state"] != NodeState.OFF and node["batch"])
    booted = sorted({node["batch"]["boot_at"] for node in up} - {None}, reverse=True)
    spans = [output.render_duration(now - at) for at in booted]
    return "" if not spans else spans[0] if spans[0] == spans[-1] else f"{spans[0]}–{spans[-1]}"
