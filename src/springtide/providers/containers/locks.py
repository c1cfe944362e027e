"""Locks that a killed process leaves free and that leave no file behind.

The site takes the machine's lock while it chooses a subnet; creating, rebooting and deleting
take the lock of the node's directory, which excludes other threads and other processes alike.
"""

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from springtide.ports import Transient

MACHINE_LOCK = "\0springtide-containers"
WAIT_S = 30.0
PAUSE_S = 0.005


@contextmanager
def machine_lock() -> Iterator[None]:
    """One holder on this machine: an abstract socket, which the kernel frees with its owner."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        end = time.monotonic() + WAIT_S
        while not _bind(lock):
            if time.monotonic() > end:
                raise Transient(
                    f"somebody has held this machine's lock for {WAIT_S:.0f} s: a cluster "
                    "that makes or removes its site, or a user who should not, for anybody can; "
                    f"`ss -xap | grep {MACHINE_LOCK[1:]}` shows the process: let it end, or end "
                    "it, and try again"
                )
            time.sleep(PAUSE_S)
        yield


@contextmanager
def directory_lock(directory: Path, wait_s: float = WAIT_S) -> Iterator[None]:
    """FileNotFoundError if the directory is not there, or goes while we wait for it."""
    end = time.monotonic() + wait_s
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while not _flock(descriptor):
            if time.monotonic() > end:
                raise Transient(
                    f"{directory.name}: it is being created, rebooted or deleted elsewhere "
                    f"for more than {wait_s:.0f} s: try again when that is done"
                )
            time.sleep(PAUSE_S)
        if not os.path.samestat(os.fstat(descriptor), directory.stat()):
            raise FileNotFoundError(f"{directory} was replaced")
        yield
    finally:
        os.close(descriptor)


def _bind(lock: socket.socket) -> bool:
    try:
        lock.bind(MACHINE_LOCK)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def _flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
