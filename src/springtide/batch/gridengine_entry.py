"""What a machine needs to become an execution host of Grid Engine."""

import os
import platform
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from springtide.batch.gridengine_conf import parse_settings
from springtide.ports import Entry

ROOT = Path("/var/lib/gridengine")
"""Where Debian has it."""
CELL = "default"
BINARIES = "/usr/sbin"
FILES = ("act_qmaster", "bootstrap")
"""What an execd reads of its cell."""
PORTS = {"SGE_QMASTER_PORT": "sge_qmaster", "SGE_EXECD_PORT": "sge_execd"}
"""Variables, and the services whose ports they are."""
ANSWER_S = 5
"""For qmaster to say that it knows a host."""
_SETTING = re.compile(r"^(?:setenv\s+)?(SGE_[A-Z_]+)[=\s]([^;\s]+)", re.MULTILINE)
_ARCHITECTURES = {"x86_64": "lx-amd64", "aarch64": "lx-arm64", "i686": "lx-x86"}


def entry(root: Path | None, cell: str | None, shared: Iterable[Path], version: str) -> Entry:
    """`shared` are filesystems that nodes mount: a cell that lies there has its files already."""
    place = root or Path(os.environ.get("SGE_ROOT", ROOT))
    named = cell or os.environ.get("SGE_CELL", CELL)
    common = place / named / "common"
    ports = _ports(_read(common / "settings.sh"))
    texts = {common / name: text for name in FILES if (text := _read(common / name))}
    programs = _programs(texts.get(common / "bootstrap", ""), place)
    qmaster = texts.get(common / "act_qmaster", "").strip() or socket.gethostname()
    mounted = any(place.is_relative_to(path) for path in shared)
    execd = f"{programs}/sge_execd"
    return Entry(
        command=(execd,),
        environment={"SGE_ROOT": str(place), "SGE_CELL": named, "SGE_ND": "1", **ports},
        files={} if mounted else texts,
        version=version,
        versions=(execd, "-help"),
        ready=_ready(programs, qmaster, ports),
        servers=(qmaster,),
    )


def _ready(programs: str, qmaster: str, ports: Mapping[str, str]) -> tuple[str, ...]:
    """Whether qmaster knows this machine by its name: an execd that is refused for that does not
    try again for a minute and a half."""
    qping = programs.replace("/sbin", "/bin") + "/qping"
    port = ports.get("SGE_QMASTER_PORT")
    asked = ("-info", qmaster, port, "qmaster", "1") if port else ()
    return ("timeout", str(ANSWER_S), qping, *asked) if asked else ()


def _ports(settings: str) -> dict[str, str]:
    """By the cell's own settings, the daemon's environment, or this machine's list of services."""
    told = dict(_SETTING.findall(settings))
    found = {
        name: told.get(name) or os.environ.get(name) or _service(PORTS[name]) for name in PORTS
    }
    return {name: port for name, port in found.items() if port and port.isdigit()}


def _service(name: str) -> str:
    try:
        return str(socket.getservbyname(name, "tcp"))
    except OSError:
        return ""


def _programs(bootstrap: str, root: Path) -> str:
    """Debian has them in /usr/sbin, others below SGE_ROOT by architecture."""
    settings = parse_settings(bootstrap)
    path = settings[0].get("binary_path", BINARIES) if settings else BINARIES
    if not path.startswith(f"{root}/"):
        return path
    return f"{path}/{_ARCHITECTURES.get(platform.machine(), 'lx-amd64')}"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
