"""Between a client and a real libvirtd: a socket that counts calls, loses replies, and refuses.

It knows libvirt's packets by their heads (length, program, version, procedure, type, serial,
status, each four bytes) and passes everything on as it is, but for what a test asks of it.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

HEAD = struct.Struct(">7I")
CALL, REPLY = 0, 1
REMOTE = 0x20008086
"""The program of all that concerns machines."""
CREATE_XML = 10
ERROR = 1
LEVEL = 2


@dataclass
class Between:
    """What is to happen to the next launch, and how many calls there were."""

    path: Path
    calls: int = 0
    silent: bool = False
    """Whether nothing comes back from libvirtd, though the connection stands."""
    _lose: bool = False
    _refusal: tuple[int, int, str] | None = None
    _threads: list[threading.Thread] = field(default_factory=list)
    _sockets: list[socket.socket] = field(default_factory=list)

    def lose_reply(self) -> None:
        """The next machine is started, and nobody hears of it."""
        self._lose = True

    def refuse(self, code: int, domain: int, message: str) -> None:
        """The next machine is not started, for this reason."""
        self._refusal = code, domain, message

    def serve(self, listening: socket.socket, real: Path) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(real))
                self._sockets += [client, server]
                self._begin(self._asks, client, server)
                self._begin(self._answers, server, client)

    def _begin(self, do: object, *ends: socket.socket) -> None:
        thread = threading.Thread(target=do, args=ends, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _asks(self, client: socket.socket, server: socket.socket) -> None:
        with _ending(client, server):
            for packet in packets(client):
                _, program, version, procedure, kind, serial, _ = HEAD.unpack(packet[: HEAD.size])
                self.calls += (program, kind) == (REMOTE, CALL)
                if self._refusal and (program, procedure) == (REMOTE, CREATE_XML):
                    refusal, self._refusal = self._refusal, None
                    client.sendall(render_refusal(version, procedure, serial, *refusal))
                else:
                    server.sendall(packet)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with _ending(client, server):
            for packet in packets(server):
                _, program, _, procedure, kind, _, _ = HEAD.unpack(packet[: HEAD.size])
                if self._lose and (program, procedure, kind) == (REMOTE, CREATE_XML, REPLY):
                    self._lose = False
                    return
                if not self.silent:
                    client.sendall(packet)

    def close(self) -> None:
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for end in self._sockets:
            end.close()


@contextmanager
def between(real: Path, path: Path) -> Iterator[Between]:
    """At `path`, in front of the libvirtd whose socket is `real`."""
    one = Between(path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        serving = threading.Thread(target=one.serve, args=(listening, real), daemon=True)
        serving.start()
        try:
            yield one
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            serving.join(10)
            one.close()
            path.unlink()


@contextmanager
def _ending(*ends: socket.socket) -> Iterator[None]:
    """When one side has ended, so has the other."""
    try:
        with suppress(OSError):
            yield
    finally:
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def packets(end: socket.socket) -> Iterator[bytes]:
    """Until the connection ends, be it in the middle of one: disks are sent in large ones."""
    while head := _exactly(end, 4):
        (length,) = struct.unpack(">I", head)
        if not (rest := _exactly(end, length - 4)):
            return
        yield head + rest


def _exactly(end: socket.socket, length: int) -> bytes:
    content = b""
    while len(content) < length:
        part = end.recv(length - len(content))
        if not part:
            return b""
        content += part
    return content


def render_refusal(
    version: int, procedure: int, serial: int, code: int, domain: int, message: str
) -> bytes:
    """As libvirtd says that something failed (`remote_error`): most of it is empty."""
    text = message.encode()
    padded = text + b"\0" * (-len(text) % 4)
    body = struct.pack(">iiII", code, domain, 1, len(text)) + padded
    body += struct.pack(">iIIIIiiI", LEVEL, 0, 0, 0, 0, -1, -1, 0)
    length = HEAD.size + len(body)
    return HEAD.pack(length, REMOTE, version, procedure, REPLY, serial, ERROR) + body
