"""The wait of a launch: Azure takes every request, and says afterwards whether there was room."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from springtide.ports import CloudError
from springtide.providers.azure.errors import failed
from springtide.providers.azure.shapes import Status


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a launch waits for machines to have a host, and between looks."""

    pause_s: float = 2.0
    limit_s: float = 30.0


def refused(
    made: Iterable[str], look: Callable[[], Mapping[str, Status]], patience: Patience
) -> dict[str, CloudError]:
    """Why those were not made that got no host, by name. One look tells of all.

    Those that still wait for one in the end may get it; what fails later is listed as broken.
    """
    waiting, failures = set(made), dict[str, CloudError]()
    end = time.monotonic() + patience.limit_s
    while waiting:
        statuses = _looked(look)
        found = {name: statuses.get(name.lower(), Status()) for name in waiting}
        failures |= {
            name: failed(status.failure, status.said, f"make {name}")
            for name, status in found.items()
            if status.failure and not status.allocated
        }
        waiting = {name for name, one in found.items() if not (one.allocated or one.failure)}
        if not waiting or time.monotonic() >= end:
            break
        time.sleep(patience.pause_s)
    return failures


def _looked(look: Callable[[], Mapping[str, Status]]) -> Mapping[str, Status]:
    """Machines were made: a look that fails is made again, and costs nobody its answer."""
    try:
        return look()
    except CloudError:
        return {}
