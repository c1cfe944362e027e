"""Shapes of OCI: what the cluster file calls them, and what a node of one has.

A flexible shape has no size of its own, so its name in the file ends with one:
`VM.Standard.E4.Flex.4.64` is VM.Standard.E4.Flex with 4 OCPUs and 64 GB.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from springtide.ports import CloudFlavor, Rejected

FLEX = ".Flex"
MIB = 1024
"""Of what OCI calls a GB."""
_SIZED = re.compile(r"(?P<name>.+\.Flex)\.(?P<ocpus>[0-9]{1,4})\.(?P<memory>[0-9]{1,5})")
_ARM = re.compile(r"\.Standard\.A[0-9]+\.|\.GPU\.G[BH][0-9]")
"""Ampere's processors, and Nvidia's."""
_ONE_TO_ONE = re.compile(r"\.Standard\.A1\.")
"""An OCPU of the first Ampere is one core; of all others it is two threads, or two cores."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape with its size: OCPUs and GB are None if the shape itself has them."""

    name: str
    ocpus: int | None = None
    memory: int | None = None

    @property
    def config(self) -> dict[str, int] | None:
        """What a launch says of the size."""
        if self.ocpus is None or self.memory is None:
            return None
        return {"ocpus": self.ocpus, "memoryInGBs": self.memory}


def parse_shape(type: str) -> Shape:
    """What the file's type of a flavor means."""
    if sized := _SIZED.fullmatch(type):
        return Shape(sized["name"], int(sized["ocpus"]), int(sized["memory"]))
    if FLEX in type:
        raise Rejected(
            f"{type}: a flexible shape needs its OCPUs and its GB, such as VM.Standard.E4.Flex.4.64"
        )
    return Shape(type)


def render_shape(name: str, ocpus: float | None, memory: float | None) -> str:
    """What the file's type would be for what OCI says of an instance."""
    if not name.endswith(FLEX) or ocpus is None or memory is None:
        return name
    return f"{name}.{ocpus:g}.{memory:g}"


def arch_of(name: str) -> str:
    return "aarch64" if _ARM.search(name) else "x86_64"


def decide_flavor(type: str, known: Mapping[str, Any]) -> CloudFlavor | None:
    """What a node of this type has, from the shapes that OCI lists by name; None: no such one."""
    shape = parse_shape(type)
    if (listed := known.get(shape.name)) is None:
        return None
    ocpus = shape.ocpus if shape.ocpus is not None else listed.ocpus
    memory = shape.memory if shape.memory is not None else listed.memory_in_gbs
    arch = arch_of(shape.name)
    return CloudFlavor(
        name=type,
        cpus=max(1, round(ocpus * (1 if _ONE_TO_ONE.search(shape.name) else 2))),
        memory=round(memory * MIB),
        arch=arch,
        threads=1 if arch == "aarch64" else 2,
        gpus=listed.gpus or 0,
    )


def decide_misfit(type: str, listed: Any) -> str:
    """Why a flexible shape has no such size; empty if it has."""
    shape = parse_shape(type)
    if shape.ocpus is None or shape.memory is None:
        return ""
    return _outside("OCPUs", shape.ocpus, listed.ocpu_options, "min", "max") or _outside(
        "GB", shape.memory, listed.memory_options, "min_in_g_bs", "max_in_g_bs"
    )


def _outside(what: str, wanted: int, options: Any, low: str, high: str) -> str:
    least, most = getattr(options, low, None), getattr(options, high, None)
    if (least is None or wanted >= least) and (most is None or wanted <= most):
        return ""
    return f"it has {least:g} to {most:g} {what}, not {wanted}"
