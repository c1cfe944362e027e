"""What a machine needs to be a node of Torque: its pbs_mom, and the server's name."""

import socket
from collections.abc import Iterable
from pathlib import Path

from springtide.batch.pbs_common import copied, host_of
from springtide.ports import Entry, Settings

HOME = Path("/var/spool/torque")


def pbs_mom(
    bin: Path | None, server: str | None, version: str, shared: Iterable[Path] = ()
) -> Entry:
    """It is beside the other commands, or where the node's PATH leads. Of several servers the names
    have commas between them."""
    program = "pbs_mom"
    if bin is not None and (bin / program).exists():
        program = str(bin / program)
    server = server or _default_server()
    servers = tuple(one.strip() for one in server.split(","))
    lines = tuple(f"$pbsserver {one}" for one in servers)
    return Entry(
        (program, "-F", "-d", str(HOME)),
        files={HOME / "server_name": f"{server}\n"},
        settings={HOME / "mom_priv/config": Settings(lines, copied(shared))},
        version=version,
        versions=(program, "--version"),
        servers=tuple(map(host_of, servers)),
    )


def _default_server() -> str:
    """That which Torque's commands on this machine ask by themselves."""
    try:
        return (HOME / "server_name").read_text().strip()
    except OSError:
        return socket.gethostname()
