"""A small Google Compute Engine on loopback: real HTTP, the documented shapes, state, faults.

It is written for tests from Google's own description of the API, and checks every request and
every answer against it. A request that it does not know is remembered, and fails the test.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.providers.servers.google_calls import CALLS, Call
from tests.providers.servers.google_schema import masked, schema
from tests.providers.servers.google_state import Refused, State

PREFIX = "/compute/v1/"


class Http(ThreadingHTTPServer):
    """Many may knock at once, before anybody opens."""

    request_queue_size = 64


class Server:
    """One Google, at `endpoint`."""

    def __init__(self) -> None:
        self.state = State()
        self.schema = schema(frozenset(CALLS))
        self.problems: list[str] = []
        """Requests and answers that are not as Google describes them."""
        self.calls: list[str] = []
        """The methods called, in their order."""
        self.refusals: list[tuple[str, Refused]] = []
        """The next call of a method (or `*`, any) is refused so; first come, first served."""
        self.lost: list[str] = []
        """The next call of a method is done, but not answered."""
        self.slow: list[str] = []
        """The next call of a method is answered only when `awake`."""
        self.awake = threading.Event()
        self.bodies: list[tuple[str, Any]] = []
        self._http = Http(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self.awake.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def count(self, method: str) -> int:
        return self.calls.count(method)

    def refuse(self, method: str, status: int, reason: str, times: int = 1) -> None:
        refusal = Refused(status, reason, f"refused for the test ({reason})")
        self.refusals += [(method, refusal)] * times

    def answer(self, verb: str, url: str, raw: bytes) -> tuple[int, Any] | None:
        """Status and body; None if the answer is lost."""
        try:
            return self._answer(verb, url, raw)
        except Refused as error:
            return error.status, _error(error)
        except Exception as error:  # a fault of the server is a failure of the test
            self.problems.append(f"{verb} {url}: {error!r}")
            return 500, _error(Refused(500, "internalError", repr(error)))

    def _answer(self, verb: str, url: str, raw: bytes) -> tuple[int, Any] | None:
        parts = urlsplit(url)
        query = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
        found = self.schema.find(verb, parts.path.removeprefix(PREFIX))
        if found is None or not parts.path.startswith(PREFIX):
            self.problems.append(f"unknown: {verb} {url}")
            raise Refused(404, "notFound", "The requested URL was not found on this server.")
        method, named = found
        body = json.loads(raw) if raw else None
        with self.state.lock:
            self.calls.append(method.id)
            self.bodies.append((method.id, body))
            self._refuse(method.id)
            if problems := self.schema.wrong_request(method, query, body):
                self.problems += problems
                raise Refused(400, "invalid", "; ".join(problems))
            answer = CALLS[method.id](self.state, Call(named, query, body))
            if method.id in self.lost:
                self.lost.remove(method.id)
                return None
            answer = masked(answer, query["fields"]) if "fields" in query else answer
            self.problems += self.schema.wrong_answer(method, answer)
            slow = method.id in self.slow
            if slow:
                self.slow.remove(method.id)
        if slow:
            self.awake.wait(60)
        return 200, answer

    def _refuse(self, method: str) -> None:
        for each in self.refusals:
            if each[0] in ("*", method):
                self.refusals.remove(each)
                raise each[1]


def _error(error: Refused) -> dict[str, Any]:
    first = {"message": error.message, "domain": "global", "reason": error.reason}
    return {"error": {"code": error.status, "message": error.message, "errors": [first]}}


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            answer = server.answer(self.command, self.path, self.rfile.read(length))
            if answer is None:
                self.close_connection = True
                return
            status, body = answer
            text = json.dumps(body).encode()
            head = (
                f"HTTP/1.1 {status} -\r\nContent-Type: application/json; charset=UTF-8\r\n"
                f"Content-Length: {len(text)}\r\n\r\n"
            )
            self.wfile.write(head.encode() + text)  # at once: two writes would wait for an ACK

        do_GET = do_POST = do_DELETE = _do

        def log_message(self, format: str, *args: object) -> None:
            """Tests look at what was called, not at a log."""

    return Handler


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        server.close()
    assert not server.problems, server.problems
