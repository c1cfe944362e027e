"""HTTP over TLS for clients of whom nobody knows what they are: few at a time, and none for long.

`entrance` uses it. Whoever opens connections and says nothing, or says it slowly, or speaks no
TLS, takes one of a limited number of places for a limited time, and nothing else.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

PLACES = 512
"""Connections at a time; more wait in the kernel until they may come in."""
PLACES_OF_ONE = 128
"""Of one address: a gateway may stand for many nodes, but not for all."""
HANDSHAKE_S = 10.0
REQUEST_S = 10.0
"""A question has come in whole within this."""
LIFE_S = 60.0
"""A question is asked and answered within this, or not at all."""
PAUSE_S = 1.0
"""After the system had no connection for us."""


class _Protocol(H11Protocol):
    """uvicorn's HTTP/1.1 that says when a question is there, and when its connection is over."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config, state, {})
        self.asked = asyncio.Event()
        self.over = asyncio.Event()

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self.asked.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.asked.set()
        self.over.set()


def _ending(app: Starlette) -> ASGIApp:
    """The application, that may be ended without uvicorn taking it for a fault."""

    async def until_ended(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(asyncio.CancelledError):
            await app(scope, receive, send)

    return until_ended


class Server:
    """Serves an application on one listening socket."""

    def __init__(self, app: Starlette, context: ssl.SSLContext) -> None:
        self._config = uvicorn.Config(
            _ending(app),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
        self._context = context
        self._state = ServerState()
        self._places = asyncio.Semaphore(PLACES)
        self._of_one = Counter[str]()
        self._guests: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """For the length of the block; closes the socket and all connections at its end."""
        accepting = asyncio.create_task(self._accept(listener))
        try:
            yield
        finally:
            for task in (accepting, *self._guests):
                task.cancel()
            await asyncio.gather(accepting, *self._guests, return_exceptions=True)
            await self._end_answers()
            listener.close()

    async def _end_answers(self) -> None:
        """The application's own tasks outlive their connections, and would outlive the record."""
        answers = list(self._state.tasks)
        for task in answers:
            task.cancel()
        await asyncio.gather(*answers, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._places.acquire()
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError:  # gone already, or the system has no room
                self._places.release()
                await asyncio.sleep(PAUSE_S)
                continue
            except asyncio.CancelledError:
                self._places.release()
                raise
            task = asyncio.create_task(self._receive(connection, str(address[0])))
            self._guests.add(task)
            task.add_done_callback(self._guests.discard)

    async def _receive(self, connection: socket.socket, peer: str) -> None:
        self._of_one[peer] += 1
        try:
            if self._of_one[peer] <= PLACES_OF_ONE:
                async with asyncio.timeout(LIFE_S):
                    await self._converse(connection)
        except (OSError, TimeoutError, ssl.SSLError):
            pass  # it may ask again
        finally:
            connection.close()
            self._places.release()
            self._leave(peer)

    def _leave(self, peer: str) -> None:
        self._of_one[peer] -= 1
        if not self._of_one[peer]:
            del self._of_one[peer]

    async def _converse(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_accepted_socket(
            lambda: _Protocol(self._config, self._state),
            connection,
            ssl=self._context,
            ssl_handshake_timeout=HANDSHAKE_S,
        )
        try:
            async with asyncio.timeout(REQUEST_S):
                await protocol.asked.wait()
            await protocol.over.wait()
        finally:
            # Python 3.11 has nothing to abort once a transport was closed twice.
            with suppress(RuntimeError, AttributeError):
                transport.abort()
