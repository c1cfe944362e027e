"""The daemon, as a node knows it: by its address, and by the digest of its certificate."""

import hashlib
import http.client
import json
import ssl
import time
from typing import Any, List, Sequence, Tuple

from springtide.node import console, fit, given
from springtide.node.console import say
from springtide.node.given import Json
from springtide.node.system import replace_file

PROTOCOL = 1
KEY = "/var/lib/springtide/key"
LONGEST = 64 << 20
"""Bytes of an answer."""
MOST_BYTES = 200 << 10
"""Of a question: the daemon takes a little more."""
MOST_PHASES = 60
"""That it takes at once."""
MOST_CHARACTERS = 300
"""Of a reason that it keeps."""
BATCH_S = 5.0
"""Phases that end within this of each other are told together."""


class Away(Exception):
    """The daemon cannot be asked now."""


class Refused(Exception):
    """The daemon has said no, and will again."""


def connect(address: str, pin: str, limit_s: float) -> http.client.HTTPSConnection:
    """To the holder of the certificate that we know; nothing is sent to another."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host, _, port = address.rpartition(":")
    line = http.client.HTTPSConnection(
        host.strip("[]"), int(port), timeout=limit_s, context=context
    )
    line.connect()
    line.auto_open = 0
    shown = hashlib.sha256(line.sock.getpeercert(True) or b"").hexdigest()
    if shown != pin or line.sock.version() not in ("TLSv1.2", "TLSv1.3"):
        line.close()
        raise Away(f"{address} shows another certificate than the one of our control host")
    return line


def parse_answer(status: int, body: bytes) -> Json:
    try:
        told = json.loads(body.decode())
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise Away(f"the control host answered {status} with {body[:80]!r}")
    if status == 200:
        return told
    why = str(told.get("error"))[:500]
    if told.get("final") is True:
        raise Refused(why)
    raise Away(f"the control host answered {status}: {why}")


def render_body(about: Json) -> bytes:
    """As much of the end of its log as there is room for."""
    while True:
        body = json.dumps(about, ensure_ascii=False).encode("utf-8", "replace")
        log = about.get("log")
        if len(body) <= MOST_BYTES or not log:
            return body
        about = dict(about, log=log[len(log) // 8 + 1 :])


class Daemon:
    """One node's line to it."""

    def __init__(self, who: Json, address: str, pin: str, key: str = "") -> None:
        self.who, self.address, self.pin, self.key = who, address, pin, key
        self.phases: List[Json] = []
        self.told_at = time.monotonic()
        self.unheard = ""

    def ask(self, path: str, limit_s: float, **more: Any) -> Tuple[Json, float]:
        """The answer, and the time here when it was made, as well as that can be known."""
        told = list(self.phases)
        try:
            line = connect(self.address, self.pin, limit_s)
            try:
                sent_at = time.time()
                body = self._body(sent_at, told, more)
                line.request("POST", path, body, {"Content-Type": "application/json"})
                answer = line.getresponse()
                content = answer.read(LONGEST)
                middle_at = (sent_at + time.time()) / 2
            finally:
                line.close()
        except (OSError, http.client.HTTPException) as error:
            raise Away(f"{self.address} does not answer: {error}") from None
        answered = parse_answer(answer.status, content)
        del self.phases[: len(told)]
        return answered, middle_at

    def _body(self, clock: float, told: Sequence[Json], more: Json) -> bytes:
        """The clock as it is when this is sent: to connect may have taken long."""
        if "machine" in more:
            more = dict(more, machine=dict(more["machine"], clock=clock))
        return render_body(dict(self.who, phases=told, clock=clock, **more))

    def join(self, token: str) -> Json:
        welcome = self._welcomed("/join", token=token)
        self.key = given.secret(welcome.pop("key", None))
        kept = dict(self.who, key=self.key, control=self.address, pin=self.pin)
        replace_file(KEY, json.dumps(kept), 0o600)
        return welcome

    def use_key(self) -> Json:
        """By a report of nothing new."""
        return self.ask("/report", 10.0, key=self.key)[0]

    def refresh(self, only: Sequence[str] = ()) -> Json:
        """All of it, or what some features need."""
        wanted = {"only": list(only)} if only else {}
        return self._welcomed("/refresh", key=self.key, **wanted)

    def _welcomed(self, path: str, **more: Any) -> Json:
        """`ahead` is how far this machine's clock is before the daemon's."""
        welcome, middle_at = self.ask(path, 30.0, machine=fit.machine(), **more)
        if welcome.get("protocol") != PROTOCOL or welcome.get("node") != self.who["node"]:
            raise Refused("the control host speaks of another node, or in a way unknown here")
        return dict(welcome, ahead=middle_at - given.number(welcome.get("clock")))

    def note(self, name: str, took_s: float, failed: str = "") -> None:
        at = time.time()
        say(console.render_phase(name, at, took_s, failed))
        detail = "failed: " + failed[:MOST_CHARACTERS] if failed else ""
        self.phases.append({"name": name, "at": at, "took_s": round(took_s, 3), "detail": detail})
        del self.phases[:-MOST_PHASES]

    def report(self, failed: str = "", final: bool = False, at_once: bool = True) -> bool:
        """A boot goes on whether or not anybody hears of it; but not if it is refused."""
        if not self.key or not (at_once or time.monotonic() > self.told_at + BATCH_S):
            return True
        self.told_at = time.monotonic()
        why = failed[:MOST_CHARACTERS]
        end = {"failed": why, "final": final, "log": console.log()} if failed else {}
        try:
            self.ask("/report", 10.0, key=self.key, **end)
        except Away as error:
            if self.unheard != str(error):
                self.unheard = str(error)
                say(f"could not report: {error}")
            return False
        return True
