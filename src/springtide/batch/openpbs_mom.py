"""What a machine needs to be a node of OpenPBS: its pbs_mom, and where the server is."""

import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from springtide.batch.pbs_common import copied, host_of
from springtide.ports import Entry, Settings

CONF = Path("/etc/pbs.conf")


def pbs_mom(name: str, server: str | None, version: str, shared: Iterable[Path] = ()) -> Entry:
    """An image with OpenPBS's execution part; where that is, is taken from this machine."""
    here = _settings(Path(os.environ.get("PBS_CONF_FILE", CONF)))
    server = server or here.get("PBS_SERVER") or socket.gethostname()
    place, home = here.get("PBS_EXEC", "/opt/pbs"), here.get("PBS_HOME", "/var/spool/pbs")
    settings = {
        "PBS_SERVER": server,
        "PBS_START_SERVER": "0",
        "PBS_START_SCHED": "0",
        "PBS_START_COMM": "0",
        "PBS_START_MOM": "1",
        "PBS_EXEC": place,
        "PBS_HOME": home,
        "PBS_MOM_NODE_NAME": name,
    }
    conf = "".join(f"{key}={value}\n" for key, value in settings.items())
    host = host_of(server)
    program = f"{place}/sbin/pbs_mom"
    return Entry(
        (program, "-N"),
        files={CONF: conf},
        settings={
            Path(home, "mom_priv/config"): Settings((f"$clienthost {host}",), copied(shared))
        },
        version=version,
        versions=(program, "--version"),
        servers=(host,),
        registered=_leaf(here) or host,
    )


def _leaf(here: Mapping[str, str]) -> str:
    """The name by whose address a pbs_server of this machine registers with pbs_comm, if its admin
    has chosen one: nodes that reach it by another address never register."""
    runs = here.get("PBS_START_SERVER") == "1"
    return here.get("PBS_LEAF_NAME", "").split(",")[0].strip() if runs else ""


def _settings(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}
