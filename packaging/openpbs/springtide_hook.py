"""A hook of OpenPBS that tells Springtide's daemons on this machine to look at the queue now.

Without it they look every few seconds by themselves; it only spares that wait. It runs inside
qsub, so it never takes longer than LIMIT_S, never fails, and always accepts. OpenPBS runs it with
its own Python (3.6 or later), as root. How to install it is told in docs/batch/openpbs.md.
"""

import json
import socket
import time
from contextlib import suppress
from pathlib import Path

import pbs

SOCKETS = "/var/lib/springtide/*/tide.sock"
"""Those of all clusters; a configuration file may name others: {"sockets": ["…"]}."""
LIMIT_S = 0.2
"""For all of them together."""
REQUEST = (
    b"POST /hook/poll HTTP/1.1\r\nHost: tide\r\nContent-Type: application/json\r\n"
    b"Content-Length: 2\r\nConnection: close\r\n\r\n{}"
)


def sockets():
    """Where daemons listen."""
    name = getattr(pbs, "hook_config_filename", None)
    patterns = json.loads(Path(name).read_text())["sockets"] if name else [SOCKETS]
    return [str(path) for pattern in patterns for path in Path("/").glob(pattern.lstrip("/"))]


def poke(path, until):
    """One daemon; whether it understood is not our concern, only that it has the request."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(max(0.01, until - time.monotonic()))
        connection.connect(path)
        connection.sendall(REQUEST)
        connection.settimeout(max(0.01, until - time.monotonic()))
        connection.recv(1)
    finally:
        connection.close()


def main():
    until = time.monotonic() + LIMIT_S
    for path in sockets():
        if time.monotonic() < until:
            with suppress(Exception):
                poke(path, until)


with suppress(Exception):
    main()
pbs.event().accept()
