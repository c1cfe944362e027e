"""Containers that nobody knows any more, since somebody removed their directory: found and ended.

They hold their node's place on the bridge, so that no other could start. Whoever makes a node, and
whoever removes a site, comes here. They are told by their environment, which `start` gave them.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from springtide.providers.containers import links

PROGRAM = b"/providers/containers/init.sh"


def end(cluster: str, node: str | None = None) -> None:
    """Those of a node, or of all nodes; to be called when no directory says who they are."""
    with ExitStack() as stack:
        for pid in _first_processes(cluster, node):
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                stack.callback(os.close, descriptor)
                if _is_of(pid, cluster, node):  # so the descriptor means it
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    if node is not None:
        links.unplug(links.port_name(cluster, node))


def _first_processes(cluster: str, node: str | None) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*"):
        if _is_of(int(path.name), cluster, node):
            yield int(path.name)


def _is_of(pid: int, cluster: str, node: str | None) -> bool:
    """Whether it is the first process of such a container: people may set a variable, too."""
    proc = Path(f"/proc/{pid}")
    try:
        program = (proc / "cmdline").read_bytes().split(b"\0")[1:2]
        told = (proc / "environ").read_bytes().split(b"\0")
        status = (proc / "status").read_text()
    except OSError:
        return False
    wanted = {f"TIDE_CLUSTER={cluster}".encode()}
    wanted |= {f"TIDE_NODE={node}".encode()} if node else set()
    ours = any(one.endswith(PROGRAM) for one in program)
    return ours and wanted <= set(told) and _is_first(status)


def _is_first(status: str) -> bool:
    """In a pid namespace of its own, right below ours; below that are the containers of others, as
    of a cluster in a container, which may have the same name."""
    ids = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid")), [])
    return len(ids) == 2 and ids[1] == "1"
