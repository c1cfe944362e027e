"""Deleting instances: all are killed first, then each is waited for and its traces removed.

The kernel takes down the network of many dead nodes together, which is much faster than
one by one.
"""

import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from springtide.ports import CloudError, Instance, Transient
from springtide.providers.containers import addresses, links
from springtide.providers.containers.errors import translated
from springtide.providers.containers.instances import (
    Damaged,
    Process,
    await_process,
    homes,
    mark_deleting,
    nameless,
    open_process,
    read_intent,
)
from springtide.providers.containers.locks import directory_lock

KILL_LIMIT_S = 10.0
LINK_LIMIT_S = 2.0
PAUSE_S = 0.002
GONE = ".gone-"


@dataclass(frozen=True, slots=True)
class Doomed:
    """An instance that is being deleted; `process` is a descriptor if it had one alive."""

    intent: Instance
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
                with translated(one.intent.id):
                    _bury(directory, one, end)
            except CloudError as error:
                refused[one.intent.id] = error
    return refused


def erase_one(directory: Path, home: Path, intent: Instance) -> None:
    """For whoever holds the lock of the directory already."""
    with ExitStack() as stack:
        one = _kill(stack, home, intent)
        _bury(directory, one, time.monotonic() + KILL_LIMIT_S)


def _condemn(stack: ExitStack, directory: Path, instance: Instance) -> list[Doomed]:
    """Lock and kill it; nothing if it is gone, or its node has another instance by now."""
    home = homes(directory) / instance.node
    try:
        stack.enter_context(directory_lock(home))
    except FileNotFoundError:
        return []
    try:
        intent = read_intent(home)
    except Damaged:
        intent = nameless(home, instance.cluster)
    if intent is None or intent.id != instance.id:
        return []
    return [_kill(stack, home, intent)]


def _kill(stack: ExitStack, home: Path, intent: Instance) -> Doomed:
    mark_deleting(home)
    process = _claim(home)
    descriptor = open_process(process) if process else None
    if descriptor is not None:
        stack.callback(os.close, descriptor)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    return Doomed(intent, home, descriptor)


def _claim(home: Path) -> Process | None:
    """Whoever makes `process` has the node: one that is only about to start then cannot."""
    try:
        (home / "process").touch(exist_ok=False)
    except FileExistsError:
        return await_process(home)
    return None


def _bury(directory: Path, one: Doomed, end: float) -> None:
    if one.process is not None and not _ended(one.process, end):
        raise Transient(
            f"{one.intent.id} does not end, though killed {KILL_LIMIT_S:.0f} s ago: "
            "a process in it hangs in the kernel, often on a file server that does not answer"
        )
    _unplug(links.port_name(one.intent.cluster, one.intent.node))
    addresses.give_up(directory, one.intent.address, one.intent.node)
    gone = one.home.with_name(f"{GONE}{one.intent.node}.{time.time_ns()}")
    one.home.rename(gone)
    rmtree(gone, ignore_errors=True)  # another thread may be sweeping it


def sweep_gone(directory: Path) -> None:
    """Remove what is left of instances that were gone when their removal was cut short."""
    for path in homes(directory).glob(f"{GONE}*"):
        rmtree(path, ignore_errors=True)


def _ended(process: int, end: float) -> bool:
    """The first process of a pid namespace ends after all others in it."""
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    return bool(waiting.poll(max(0.0, end - time.monotonic()) * 1000))


def _unplug(port: str) -> None:
    """The kernel does it soon after the last process; we do if it does not."""
    end = time.monotonic() + LINK_LIMIT_S
    while links.exists(port):
        if time.monotonic() > end:
            links.remove(port)
        time.sleep(PAUSE_S)
