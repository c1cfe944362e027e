"""Stands before a real API: counts what is asked of it, and has answers fail or get lost.

The server behind is real and unchanged; a fault is only what a network or a busy front end does
to its answers.
"""

import contextlib
import http.client
import json
import re
import select
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE_S = 120.0
HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
TITLES = {429: "overLimit", 500: "computeFault", 503: "serviceUnavailable"}


@dataclass(frozen=True, slots=True)
class Call:
    """The path is without the API's version and without the query; status 0 is a lost reply."""

    method: str
    path: str
    status: int


@dataclass(slots=True)
class Fault:
    """Strikes requests that it matches, so many times. With a status they are never performed;
    without one they are, and the reply is lost: at once, or by silence until the client leaves."""

    method: str
    path: re.Pattern[str]
    times: int
    status: int = 0
    retry_after_s: int | None = None
    silent: bool = False
    until: threading.Event | None = None
    """Performed only then, whether the client is still there or not."""

    def strikes(self, method: str, path: str) -> bool:
        fits = self.method in ("*", method) and self.path.fullmatch(path) is not None
        return fits and self.times > 0


@dataclass(slots=True)
class Traffic:
    """What went through, and what is to go wrong; shared by the threads that serve."""

    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take_fault(self, method: str, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.strikes(method, path):
                    fault.times -= 1
                    return fault
        return None

    def note(self, call: Call) -> None:
        with self.lock:
            self.calls.append(call)


class Proxy:
    """Serves from its making until it is closed, in threads of this process."""

    def __init__(self, port: int, behind: int, prefix: str) -> None:
        self._traffic = Traffic()
        serving = {"traffic": self._traffic, "behind": behind, "prefix": prefix}
        self._server = ThreadingHTTPServer(("127.0.0.1", port), type("_", (_Relay,), serving))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    def fail(
        self,
        method: str,
        path: str,
        *,
        status: int,
        times: int = 1,
        retry_after_s: int | None = None,
    ) -> None:
        """Answer the next matching requests with an error; `path` is a regular expression for
        all of it, `method` may be `*`."""
        self._add(Fault(method, re.compile(path), times, status, retry_after_s))

    def lose_reply(self, method: str, path: str, *, times: int = 1, silent: bool = False) -> None:
        """Perform the next matching requests and lose the reply: the connection breaks, or,
        when silent, stays open until the client gives up."""
        self._add(Fault(method, re.compile(path), times, silent=silent))

    @contextlib.contextmanager
    def held(self, method: str, path: str) -> Iterator[None]:
        """The next matching request gets no further until the block ends, and is performed then."""
        released = threading.Event()
        self._add(Fault(method, re.compile(path), 1, until=released))
        try:
            yield
        finally:
            released.set()

    def forget(self) -> None:
        """Neither calls nor faults from here on."""
        with self._traffic.lock:
            self._traffic.calls.clear()
            self._traffic.faults.clear()

    def calls(self, method: str = "*", path: str = ".*") -> list[Call]:
        with self._traffic.lock:
            seen = list(self._traffic.calls)
        pattern = re.compile(path)
        return [c for c in seen if method in ("*", c.method) and pattern.fullmatch(c.path)]

    def count(self, method: str = "*", path: str = ".*") -> int:
        return len(self.calls(method, path))

    def counted(self) -> Counter[tuple[str, str]]:
        return Counter((call.method, call.path) for call in self.calls())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _add(self, fault: Fault) -> None:
        with self._traffic.lock:
            self._traffic.faults.append(fault)


class _Relay(BaseHTTPRequestHandler):
    """One request per connection, so that a lost reply costs the client just that one."""

    protocol_version = "HTTP/1.0"
    timeout = PATIENCE_S
    traffic: Traffic
    behind: int
    prefix: str

    def handle_one_request(self) -> None:
        """A client that hangs up before its answer is no error of ours."""
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].removeprefix(self.prefix) or "/"
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.traffic.take_fault(self.command, path)
        if fault is not None and fault.status:
            self.traffic.note(Call(self.command, path, fault.status))
            self._refuse(fault)
            return
        if fault is not None and fault.until:
            fault.until.wait(PATIENCE_S)
        status, headers, answer = self._ask(body)
        lost = fault is not None and fault.until is None
        self.traffic.note(Call(self.command, path, 0 if lost else status))
        if fault is None or fault.until:
            self._answer(status, headers, answer)
        elif fault.silent:
            select.select([self.connection], [], [], PATIENCE_S)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Tests say nothing when all is well."""

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """The Host goes along, so that links in answers lead here again."""
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_BY_HOP}
        connection = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=PATIENCE_S)
        try:
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        except OSError:
            return 503, [], b""
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in HOP_BY_HOP | {"server", "date"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, fault: Fault) -> None:
        title = TITLES.get(fault.status, "computeFault")
        reason = {"code": fault.status, "message": f"The test has this answered {fault.status}"}
        headers = [("Content-Type", "application/json")]
        if fault.retry_after_s is not None:
            headers.append(("Retry-After", str(fault.retry_after_s)))
        self._answer(fault.status, headers, json.dumps({title: reason}).encode())
