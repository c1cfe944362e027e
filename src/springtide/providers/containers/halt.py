"""Ending the processes of nodes. Deleting kills many before it waits; a reboot ends one.

Called with the lock of the node's directory held. Killing the first process of a node ends
all of them, and with the last its mounts and its network are gone.
"""

import os
import select
import signal
import time
from contextlib import ExitStack
from pathlib import Path

from springtide.ports import Instance, Transient
from springtide.providers.containers.instances import Process, await_process, open_process

KILL_LIMIT_S = 10.0


def claim(home: Path) -> Process | None:
    """Whoever makes `process` has the node: one that is only about to start then cannot."""
    try:
        (home / "process").touch(exist_ok=False)
    except FileExistsError:
        return await_process(home)
    return None


def kill(stack: ExitStack, process: Process | None) -> int | None:
    """A descriptor to wait on if there was one alive; the stack closes it."""
    descriptor = open_process(process) if process else None
    if descriptor is not None:
        stack.callback(os.close, descriptor)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    return descriptor


def await_end(instance: Instance, descriptor: int | None, end: float) -> None:
    """The first process of a pid namespace ends after all others in it."""
    if descriptor is None:
        return
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    if not waiting.poll(max(0.0, end - time.monotonic()) * 1000):
        raise Transient(
            f"{instance.id} does not end, though killed {KILL_LIMIT_S:.0f} s ago: "
            "a process in it hangs in the kernel, often on a file server that does not answer"
        )


def halt(instance: Instance, process: Process | None) -> None:
    """Kill it and wait until it is gone."""
    with ExitStack() as stack:
        await_end(instance, kill(stack, process), time.monotonic() + KILL_LIMIT_S)
