"""Deleting instances: all are killed first, then each is waited for and its traces removed.

The kernel takes down the network of many dead nodes together, which is much faster than
one by one.
"""

import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from springtide.ports import CloudError, Instance
from springtide.providers.containers import addresses, links
from springtide.providers.containers.errors import translated
from springtide.providers.containers.halt import KILL_LIMIT_S, await_end, claim, kill
from springtide.providers.containers.instances import (
    Damaged,
    homes,
    mark_deleting,
    nameless,
    read_intent,
)
from springtide.providers.containers.locks import directory_lock

GONE = ".gone-"


@dataclass(frozen=True, slots=True)
class Doomed:
    """An instance that is being deleted; `process` is a descriptor if it had one alive."""

    instance: Instance
    home: Path
    process: int | None


def erase(directory: Path, instances: Iterable[Instance]) -> dict[str, CloudError]:
    """Delete instances until they are gone; answers those that are not, by id."""
    refused: dict[str, CloudError] = {}
    with ExitStack() as stack:
        doomed = []
        for instance in sorted(instances, key=lambda instance: instance.node):
            try:
                with translated(instance.id):
                    doomed += _condemn(stack, directory, instance)
            except CloudError as error:
                refused[instance.id] = error
        end = time.monotonic() + KILL_LIMIT_S
        for one in doomed:
            try:
                with translated(one.instance.id):
                    _bury(directory, one, end)
            except CloudError as error:
                refused[one.instance.id] = error
    return refused


def erase_one(directory: Path, home: Path, instance: Instance) -> None:
    """For whoever holds the lock of the directory already."""
    with ExitStack() as stack:
        one = _doom(stack, home, instance)
        _bury(directory, one, time.monotonic() + KILL_LIMIT_S)


def _condemn(stack: ExitStack, directory: Path, instance: Instance) -> list[Doomed]:
    """Lock and kill it; nothing if it is gone, or its node has another instance by now."""
    home = homes(directory) / instance.node
    try:
        stack.enter_context(directory_lock(home))
    except FileNotFoundError:
        return []
    found = _found(home, instance.cluster)
    if found is None or found.id != instance.id:
        return []
    return [_doom(stack, home, found)]


def _found(home: Path, cluster: str) -> Instance | None:
    try:
        intent = read_intent(home)
    except Damaged:
        return nameless(home, cluster)
    return intent.instance if intent else None


def _doom(stack: ExitStack, home: Path, instance: Instance) -> Doomed:
    mark_deleting(home)
    return Doomed(instance, home, kill(stack, claim(home)))


def _bury(directory: Path, one: Doomed, end: float) -> None:
    instance = one.instance
    await_end(instance, one.process, end)
    links.unplug(links.port_name(instance.cluster, instance.node))
    addresses.give_up(directory, instance.address, instance.node)
    gone = one.home.with_name(f"{GONE}{instance.node}.{time.time_ns()}")
    one.home.rename(gone)
    rmtree(gone, ignore_errors=True)  # another thread may be sweeping it


def sweep_gone(directory: Path) -> None:
    """Remove what is left of instances that were gone when their removal was cut short."""
    for path in homes(directory).glob(f"{GONE}*"):
        rmtree(path, ignore_errors=True)
