"""Ports for servers of tests."""

import os
import socket
from contextlib import ExitStack
from random import SystemRandom

RANGE = range(27_000, 32_000)
"""Below those that Linux gives to who asks for any, or connects: before a server has started, its
port would be somebody else's. Ports that tests name themselves are below 20000."""


def free_ports(count: int) -> tuple[int, ...]:
    """So many at which nobody listens, whatever the address. By chance, for runs side by side."""
    ports: list[int] = []
    own = _own()
    with ExitStack() as held:
        for port in SystemRandom().sample(own, len(own)):
            if len(ports) == count:
                break
            try:
                held.enter_context(socket.create_server(("", port)))
            except OSError:
                continue
            ports.append(port)
    assert len(ports) == count, "no port is free"
    return tuple(ports)


def _own() -> range:
    """Each process of a run has others: what one has chosen is free until its server listens."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return RANGE[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
