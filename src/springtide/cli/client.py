"""Asks the daemon over its unix socket. Every command that needs the daemon goes through here."""

import http.client
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from springtide.cli.endings import Complaint, Exit
from springtide.cli.whereabouts import starting
from springtide.layout import Layout

Json = dict[str, Any]

ANSWER_S = 60.0
"""How long the daemon may take to answer: it may have to ask the batch system first."""
CHUNK = 1 << 16
DISK_FULL = "database or disk is full"
"""SQLite's words, which do not say where."""
_CREDENTIALS = struct.Struct("3i")


class Away(Complaint):
    """Nobody answers on the socket."""

    def __init__(self, text: str) -> None:
        super().__init__(text, Exit.AWAY)


class Refused(Complaint):
    """The daemon answered, and said no."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text, Exit.WRONG if status in (400, 404) else Exit.FAILED)
        self.status = status


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket that is a file."""

    def __init__(self, path: Path, timeout_s: float | None) -> None:
        super().__init__("tide", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Client:
    """The daemon that serves one state directory."""

    def __init__(self, state: Path) -> None:
        self.layout = Layout(state)
        self.stored_spec = self.layout.stored_spec

    def get(self, path: str, **query: object) -> Json:
        return self._ask("GET", _target(path, query), None, ANSWER_S)

    def post(self, path: str, body: Json, timeout_s: float | None = ANSWER_S) -> Json:
        return self._ask("POST", path, json.dumps(body).encode(), timeout_s)

    def fetch(self, path: str, timeout_s: float, **query: object) -> bytes:
        """An answer as it comes."""
        return self._content("GET", _target(path, query), None, timeout_s)

    def lines(self, path: str, **query: object) -> Iterator[Json]:
        """A stream of JSON objects, one a line; empty lines only show that it lives."""
        with closing(UnixConnection(self.layout.socket, ANSWER_S)) as connection:
            with self._reaching():
                connection.request("GET", _target(path, query))
                response = connection.getresponse()
            if response.status >= http.client.BAD_REQUEST:
                raise self._refusal(response)
            for line in self._split(response):
                if line:
                    yield json.loads(line)

    def daemon_pid(self) -> int:
        """The process behind the socket, as the kernel says."""
        with closing(UnixConnection(self.layout.socket, ANSWER_S)) as connection:
            with self._reaching():
                connection.connect()
            raw = connection.sock.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
            )
        pid: int = _CREDENTIALS.unpack(raw)[0]
        return pid

    def _ask(self, method: str, target: str, body: bytes | None, timeout_s: float | None) -> Json:
        content = self._content(method, target, body, timeout_s)
        with self._reaching():
            answer: Json = json.loads(content)
        return answer

    def _content(
        self, method: str, target: str, body: bytes | None, timeout_s: float | None
    ) -> bytes:
        with closing(UnixConnection(self.layout.socket, timeout_s)) as connection:
            with self._reaching():
                connection.request(method, target, body)
                response = connection.getresponse()
            if response.status >= http.client.BAD_REQUEST:
                raise self._refusal(response)
            with self._reaching():
                return response.read()

    def _split(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        """Whole lines as they come. The response's own readline takes a broken stream for ended."""
        rest = b""
        while part := self._part(response):
            *lines, rest = (rest + part).split(b"\n")
            yield from lines

    def _part(self, response: http.client.HTTPResponse) -> bytes:
        with self._reaching():
            return response.read1(CHUNK)

    def _refusal(self, response: http.client.HTTPResponse) -> Refused:
        """The daemon's own words; without them the reason is in its log."""
        with self._reaching():
            body = response.read()
        try:
            text = str(json.loads(body)["error"])
        except (ValueError, KeyError, TypeError):
            log = self.layout.log / "daemon.log"
            text = f"the daemon failed ({response.status} {response.reason}); see {log}"
        if DISK_FULL in text and "make room" not in text:
            text = f"{text}; make room in {self.layout.state}"
        return Refused(response.status, text)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Failures of the connection become sentences."""
        path = self.layout.socket
        try:
            yield
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise Away(self._silence) from error
        except TimeoutError as error:
            log = self.layout.log / "daemon.log"
            raise Away(f"the daemon on {path} does not answer; see {log}") from error
        except (http.client.HTTPException, ConnectionError, ValueError) as error:
            raise Away(f"the daemon on {path} broke off; see `tide status`") from error
        except OSError as error:
            raise Away(f"cannot reach the daemon on {path}: {error.strerror or error}") from error

    @property
    def _silence(self) -> str:
        """Why nobody answers, and what to do; a directory without a cluster may be a slip."""
        state = self.layout.state
        if not self.layout.is_ours:
            return f"there is no cluster in {state}; name another, or `tide deploy FILE` makes one"
        return f"no daemon answers on {self.layout.socket}; {starting(self.layout)}"


def _target(path: str, query: dict[str, object]) -> str:
    given = {key: value for key, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path
