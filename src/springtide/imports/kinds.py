"""Which kind of file something is, by its name and by what is in it."""

import json
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Any

from springtide.imports.parts import HOSTS, LIMITS
from springtide.spec import source
from springtide.spec.problems import SpecError

KNOWN: Mapping[str, str] = {
    LIMITS: "limits.yaml of Cluster in the Cloud, `SHAPE: {DOMAIN: NUMBER}` or `TYPE: NUMBER`",
    HOSTS: "hosts.json of a pool, `{ADDRESS: NAME}`",
}
"""What can be imported."""
_YAML = (".yaml", ".yml")


def decide_kind(name: str, text: str) -> str | None:
    """None if it is nothing that we know; a file with mistakes is what its name says."""
    if name.endswith(".json"):
        return HOSTS
    if _is_pool(text):
        return HOSTS
    try:
        data = source.read(text, name).data
    except SpecError:
        return LIMITS if name.endswith(_YAML) else None
    return LIMITS if _is_limits(data) else None


def _is_pool(text: str) -> bool:
    try:
        data = json.loads(text)
        return isinstance(data, dict) and bool([IPv4Address(key) for key in data])
    except (ValueError, RecursionError):
        return False


def _is_limits(data: Mapping[str, Any]) -> bool:
    """A cluster file is a mapping as well."""
    told = [value for value in data.values() if value is not None]
    return "cluster" not in data and not any(isinstance(value, list) for value in told)


def render_known() -> str:
    return "; ".join(f"{kind}: {what}" for kind, what in KNOWN.items())
