"""Sizes of a provider as rows, as JSON, and as lines for `flavors:` of a cluster file; pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

from springtide.ports import CloudFlavor
from springtide.providers.cloud.memory import seen_by_linux

COLUMNS = ("name", "cpus", "memory", "arch", "threads", "gpus", "price")
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_TYPE = re.compile("[A-Za-z0-9_][A-Za-z0-9_.:/|-]{0,255}")


def select(found: Mapping[str, CloudFlavor], names: Sequence[str]) -> list[CloudFlavor]:
    """Those named, in the order of their names; `*` stands for anything."""
    wanted = names or ["*"]
    chosen = [f for f in found.values() if any(fnmatchcase(f.name, name) for name in wanted)]
    return sorted(chosen, key=lambda one: (_family(one.name), one.cpus, one.memory, one.name))


def unknown(found: Mapping[str, CloudFlavor], names: Iterable[str]) -> list[str]:
    return [name for name in names if not any(fnmatchcase(one, name) for one in found)]


def render_rows(flavors: Iterable[CloudFlavor]) -> list[list[str]]:
    return [
        [
            *(one.name, str(one.cpus), f"{one.memory}M", one.arch, str(one.threads)),
            str(one.gpus or ""),
            "" if one.price is None else _decimal(one.price),
        ]
        for one in flavors
    ]


def render_json(kind: str, flavors: Iterable[CloudFlavor]) -> dict[str, Any]:
    return {
        "provider": kind,
        "flavors": [
            {**asdict(one), "usable_memory": seen_by_linux(one.memory, one.arch)} for one in flavors
        ],
    }


def render_yaml(flavors: Iterable[CloudFlavor]) -> list[str]:
    """The block to paste; sizes whose names no file can have are told, and left out."""
    return ["flavors:", *(line for one in flavors for line in _entry(one))]


def _entry(flavor: CloudFlavor) -> list[str]:
    if not _TYPE.fullmatch(flavor.name):
        return [f"  # {flavor.name!r} is no name that a cluster file can have"]
    name = _named(flavor.name)
    settings = {
        **({} if name == flavor.name else {"type": f'"{flavor.name}"'}),
        "cpus": str(flavor.cpus),
        "memory": f"{seen_by_linux(flavor.memory, flavor.arch)}M",
        **({"threads": str(flavor.threads)} if _has_threads(flavor) else {}),
        **({"arch": flavor.arch} if flavor.arch != "x86_64" else {}),
        **({"gres": f'["gpu:{flavor.gpus}"]'} if flavor.gpus else {}),
        **({} if flavor.price is None else {"price": _decimal(flavor.price)}),
    }
    told = ", ".join(f"{key}: {value}" for key, value in settings.items())
    return [f'  "{name}": {{{told}}}' if _looks_like_number(name) else f"  {name}: {{{told}}}"]


def _has_threads(flavor: CloudFlavor) -> bool:
    """One thread may only mean that the provider does not tell; then Slurm is told nothing."""
    return flavor.threads > 1 and flavor.cpus % flavor.threads == 0


def _named(type: str) -> str:
    """What a file can call a type."""
    name = re.sub("[^A-Za-z0-9_.-]", "-", type).lstrip("_.-")[:63]
    return name if _NAME.fullmatch(name) else f"size-{name}"[:63]


def _looks_like_number(name: str) -> bool:
    """To YAML; quotes do no harm."""
    return name[0].isdigit()


def _decimal(price: float) -> str:
    return f"{price:.6f}".rstrip("0").rstrip(".")


def _family(name: str) -> str:
    return re.split(r"[.\d]", name, maxsplit=1)[0]
