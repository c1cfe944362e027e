"""A control host for the agent to talk to: a real TLS server that answers what tests tell it to."""

import json
import socket
import ssl
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from springtide.node import PROTOCOL
from springtide.node.bundle import agent

Json = dict[str, Any]

MUNGE_KEY = bytes(range(256)) * 4
TOKEN = "1999999999.one-time-token"
KEY = "the-key-of-this-instance"
HEALTH = """\
#!/bin/sh
echo "health $*" >>/run/calls
[ ! -e /etc/unwell ] || { echo looking; echo "health check failed: the disk is full"; exit 1; }
"""


def welcome(**parts: Any) -> Json:
    """All features, in order."""
    here = {
        "certificates": {"files": {"site.crt": "-----BEGIN CERTIFICATE-----\n"}},
        "time": {"servers": ["ntp.site"]},
        "names": {
            "nameserver": "10.0.0.1",
            "search": ["blue", "site.example"],
            "hosts": {"head": "10.0.0.1"},
        },
        "munge": {"key": b64encode(MUNGE_KEY).decode(), "socket": "/run/cluster/munge.socket"},
        "mounts": [mount("/srv/shared")],
        "users": {"users": [person("ann", 20000)], "groups": [team("ann", 20000)], "sssd": ""},
        "ssh": {
            "certificates": {"ssh_host_ed25519_key-cert.pub": "ssh-ed25519-cert-v01 AAAA"},
            "known_hosts": "@cert-authority n* ssh-ed25519 AAAA",
            "authorized": ["ssh-ed25519 AAAA cluster"],
        },
        "ansible": {"url": "https://site/play.git", "playbook": "local.yml", "version": "main"},
        "health": {"path": "/var/lib/cluster/health", "text": HEALTH},
        "slurmd": {
            "server": "10.0.0.1:6817",
            "control": "head",
            "address": "10.0.0.7",
            "directories": ["/var/spool/slurmd"],
            "tells_boot": True,
            "memory": 64,
            "cpus": 1,
            "version": "22.05.8",
            "skew": 60.0,
        },
        **parts,
    }
    return {"features": list(here), **here}


def mount(path: str) -> Json:
    return {"source": "nas:/export", "path": path, "type": "nfs4", "options": ["hard", "nosuid"]}


def person(name: str, uid: int) -> Json:
    place = {"home": f"/srv/shared/{name}", "shell": "/bin/sh"}
    return {"name": name, "uid": uid, "gid": uid, "gecos": f"{name} of tests", **place}


def team(name: str, gid: int, *members: str) -> Json:
    return {"name": name, "gid": gid, "members": list(members)}


@dataclass(slots=True)
class Control:
    """A server that can be away, and answers what it is told to."""

    certificate: Path
    welcome: Json = field(default_factory=welcome)
    refusal: str = ""
    """Why nobody may join, if so."""
    token_refusal: str = ""
    """If it is another reason than for a key."""
    is_deaf_to: Callable[[Json], bool] = lambda report: False
    """Whether it has no ear for a report."""
    pin: str = ""
    ahead_s: float = 0.0
    asked: list[tuple[str, Json]] = field(default_factory=list)
    heard: list[Json] = field(default_factory=list)
    """Reports that were answered well, without what differs each time."""
    connections: int = 0
    server: ThreadingHTTPServer | None = None
    port: int = 0

    @property
    def environment(self) -> dict[str, str]:
        who = {"TIDE_CLUSTER": "blue", "TIDE_NODE": "n-7", "TIDE_GENERATION": "3"}
        where = {"TIDE_CONTROL": f"127.0.0.1:{self.port}", "TIDE_PIN": self.pin}
        return {**who, **where, "TIDE_TOKEN": TOKEN}

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def reports(self) -> list[Json]:
        return [body for path, body in self.asked if path == "/report"]

    def failures(self) -> list[str]:
        return [body["failed"] for body in self.reports() if body.get("failed")]

    def told_phases(self) -> list[str]:
        return [phase["name"] for _, body in self.asked for phase in body["phases"]]

    def answer(self, path: str, body: Json) -> tuple[int, Json]:
        if path == "/report":
            return self._hear(body)
        self.asked.append((path, body))
        secret = body.get("token") == TOKEN if path == "/join" else body.get("key") == KEY
        if self.refusal or not secret:
            other = self.token_refusal if path == "/join" else ""
            return 403, {"error": other or self.refusal or "not this one", "final": True}
        who = {"protocol": PROTOCOL, "cluster": "blue", "node": "n-7"}
        told = {**who, "clock": time.time() + self.ahead_s, **self.welcome}
        return 200, {**told, "key": KEY} if path == "/join" else told

    def _hear(self, report: Json) -> tuple[int, Json]:
        """A node whose answer comes too late reports the same again, which counts once."""
        if self.is_deaf_to(report):
            self.asked.append(("/report", report))
            return 500, {"error": "no ear", "final": False}
        told = {key: value for key, value in report.items() if key not in ("clock", "log")}
        if told not in self.heard:
            self.heard.append(told)
            self.asked.append(("/report", report))
        return 200, {}

    def open(self) -> None:
        """At the same port as before."""
        server = ThreadingHTTPServer(("127.0.0.1", self.port), _ears(self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self.port = server.server_address[1]
        self.server = server
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


@contextmanager
def open_control(directory: Path) -> Iterator[Control]:
    """Its port is held all the time: nobody else gets it while the server is away."""
    certificate = make_certificate(directory)
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        one = Control(certificate, pin=pin_of(certificate), port=held.getsockname()[1])
        one.open()
        try:
            yield one
        finally:
            one.close()


def _ears(control: Control) -> type[BaseHTTPRequestHandler]:
    class Ears(BaseHTTPRequestHandler):
        def setup(self) -> None:
            control.connections += 1
            super().setup()

        def do_GET(self) -> None:
            self._send(200, agent())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, told = control.answer(self.path, body)
            self._send(status, json.dumps(told).encode())

        def _send(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *words: Any) -> None:
            """Quietly."""

    return Ears


def make_certificate(directory: Path) -> Path:
    path = directory / "tls.pem"
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-keyout", str(path), "-out", str(directory / "tls.crt")]
    command = ["openssl", "req", "-x509", *new, "-subj", "/CN=blue", *files]
    subprocess.run(command, check=True, capture_output=True)
    path.write_text(path.read_text() + (directory / "tls.crt").read_text())
    return path


def pin_of(certificate: Path) -> str:
    text = certificate.with_name("tls.crt").read_text()
    return sha256(ssl.PEM_cert_to_DER_cert(text)).hexdigest()
