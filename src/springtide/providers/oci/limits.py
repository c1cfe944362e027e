"""How many nodes the limits of a tenancy leave room for: no calls are made here.

OCI limits cores, memory or GPUs of a family of shapes in each availability domain. What is in use
counts, whoever uses it: a control host of the same family too.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from springtide.providers.oci.shapes import Shape

Left = dict[tuple[str, str], float]
"""What is left of a limit in an availability domain."""


def decide_units(shape: Shape, listed: Any) -> dict[str, float]:
    """What one node of the shape takes of each limit that holds for it."""
    ocpus = shape.ocpus if shape.ocpus is not None else listed.ocpus or 0
    memory = shape.memory if shape.memory is not None else listed.memory_in_gbs or 0
    return {
        name: _unit(name, ocpus, memory, listed.gpus or 0) or 1.0
        for name in listed.quota_names or ()
    }


def _unit(limit: str, ocpus: float, memory: float, gpus: int) -> float:
    """Limits say by their name what they count."""
    if "memory" in limit:
        return memory
    if "core" in limit:
        return ocpus
    return float(gpus) if "gpu" in limit else 1.0


def decide_room(units: Mapping[str, float], left: Left, domains: Sequence[str]) -> dict[str, int]:
    """So many nodes fit, by availability domain; those whose limits are unknown are left out."""
    room = {}
    for domain in domains:
        fits = [
            math.floor(left[limit, domain] / unit)
            for limit, unit in units.items()
            if (limit, domain) in left
        ]
        if fits:
            room[domain] = max(0, min(fits))
    return room


def take(count: int, units: Mapping[str, float], left: Left, room: Mapping[str, int]) -> int:
    """Take so many nodes out of what is left, as far as it goes: how many have no room."""
    for domain, fits in room.items():
        here = min(count, fits)
        for limit, unit in units.items():
            if (limit, domain) in left:
                left[limit, domain] -= here * unit
        count -= here
    return count
