"""Where nodes join: the socket on the join port, from when the site is known.

`server` runs it beside the API. A port that cannot be had is told and tried again: all else of the
daemon goes on without it.
"""

import asyncio
import errno
import os
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass

from springtide.api.joining import create_joining
from springtide.api.tls import Server
from springtide.configure import identity
from springtide.configure.membership import Membership
from springtide.joining import Joining
from springtide.ports import Site, StoreError

LOOK_S = 0.5
"""Between two looks at whether nodes join where they should."""
AGAIN_S = 3.0
"""Between two tries of a port that could not be had."""
BACKLOG = 1024
ALL = ""


@dataclass(frozen=True, slots=True)
class Place:
    """An address and a port; the address is empty for all of this machine."""

    address: str
    port: int
    elsewhere: bool = False
    """Whether to listen at all addresses if this one is not of this machine."""

    def __str__(self) -> str:
        return f"{self.address or 'all addresses'}, port {self.port}"


def decide_place(membership: Membership | None, site: Site | None) -> Place | None:
    """Where nodes look for us; None if none does."""
    if membership is None or site is None or not membership.groups:
        return None
    join = membership.spec.join
    if join.listen:
        return Place(join.listen, join.port)
    known = {membership.address(group, site) for group in membership.groups}
    return Place(known.pop(), join.port, True) if len(known) == 1 else Place(ALL, join.port)


class Entrance:
    """Listens where nodes look, and follows when that changes."""

    def __init__(self, joining: Joining) -> None:
        self._joining = joining

    def _wanted(self) -> Place | None:
        return decide_place(self._joining.membership, self._joining.parts.site)

    async def run(self) -> None:
        """For as long as the daemon serves."""
        while True:
            place = self._wanted()
            if place is None:
                await self._say("")
                await asyncio.sleep(LOOK_S)
                continue
            try:
                context, listener = identity.tls(self._joining.layout.join), listen(place)
            except OSError as error:
                await self._say(f"{place}: {_what(error)}; {_advice(error)}")
                await asyncio.sleep(AGAIN_S)
                continue
            async with Server(create_joining(self._joining), context).serving(listener):
                await self._say("")
                while self._wanted() == place:  # noqa: ASYNC110 - a site has no listeners
                    await asyncio.sleep(LOOK_S)

    async def _say(self, problem: str) -> None:
        """Once: what is the matter now."""
        if problem == self._joining.closed:
            return
        self._joining.closed = problem
        what = "nodes cannot join" if problem else "nodes can join"
        with suppress(StoreError):
            await self._joining.parts.record.note(what, detail=problem)


def _what(error: OSError) -> str:
    """Without what Python adds: the place is told anyway. Of TLS, numbers mean something else."""
    tls = isinstance(error, ssl.SSLError)
    return os.strerror(error.errno) if error.errno and not tls else str(error)


def _advice(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program has that port: stop it, or set join.port"
    if error.errno == errno.EADDRNOTAVAIL:
        return "set join.listen to an address of this machine"
    return "look at the files in state/join, or start the daemon again"


def listen(place: Place) -> socket.socket:
    """A socket there; where the address is another machine's, at all of ours."""
    try:
        return _listen(place.address, place.port)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL or not place.elsewhere:
            raise
    return _listen(ALL, place.port)


def _listen(address: str, port: int) -> socket.socket:
    listener = socket.create_server((address, port), backlog=BACKLOG)
    listener.setblocking(False)
    return listener
