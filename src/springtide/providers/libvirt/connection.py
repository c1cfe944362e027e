"""The way to a libvirt: one connection for all threads, opened again when it broke.

libvirt notices a peer that is silent only if somebody runs its event loop: a thread of this
process does, from the first connection on. Without it a call could wait for ever.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import libvirt

from springtide.providers.libvirt.errors import translated

PROBES = 4
"""A peer that answers none of so many is gone."""


@cache
def _start_listening() -> None:
    """Once in a process. What libvirt has to say is in its errors, not on our standard error."""
    libvirt.registerErrorHandler(lambda *_: None, None)
    libvirt.virEventRegisterDefaultImpl()
    threading.Thread(target=_listen, name="libvirt", daemon=True).start()


def _listen() -> None:
    while True:
        with suppress(libvirt.libvirtError):
            libvirt.virEventRunDefaultImpl()


class Connection:
    """To one URI."""

    def __init__(self, uri: str, timeout_s: float) -> None:
        self.uri = uri
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._open: Any = None

    def get(self) -> Any:
        """A virConnect that was alive just now."""
        with self._lock:
            if self._open is None or not _is_alive(self._open):
                self._drop()
                with told(self.uri):
                    self._open = self._opened()
            return self._open

    def _opened(self) -> Any:
        _start_listening()
        opened = libvirt.open(self.uri)
        with suppress(libvirt.libvirtError):  # what is in this process needs no keeping alive
            opened.setKeepAlive(max(1, round(self._timeout_s / (PROBES + 1))), PROBES)
        return opened

    def _drop(self) -> None:
        if self._open is not None:
            with suppress(libvirt.libvirtError):
                self._open.close()
            self._open = None

    def close(self) -> None:
        with self._lock:
            self._drop()


def _is_alive(connection: Any) -> bool:
    try:
        return bool(connection.isAlive())
    except libvirt.libvirtError:
        return False


@contextmanager
def told(about: str = "") -> Iterator[None]:
    """Its errors as ours, with what they are about."""
    try:
        yield
    except libvirt.libvirtError as error:
        raise translated(error, about) from error
