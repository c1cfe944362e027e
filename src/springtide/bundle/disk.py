"""What the disk has of a cluster, for a bundle: configuration, logs, failed boots, facts.

Which files those are is told here by name, and none is taken that is no plain text. Files with
secrets (keys, credentials, environments) are none of them.
"""

import os
import platform
import pwd
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from springtide import __version__
from springtide.batch.slurm_service import PATH
from springtide.bundle.files import Reader, opened, stamp
from springtide.bundle.parts import Part
from springtide.bundle.trees import dumped
from springtide.layout import Layout
from springtide.spec import Cluster, source

CLUSTER = "cluster.json"
BOOT_TAIL = 64 << 10
MOST_BOOTS = 50
"""The newest so many logs of boots."""
MOST_NAMES = 3000
"""Files of the state directory that are listed."""
DEPTH = 3
COMMAND_S = 10.0
LOG = re.compile(
    r"(?:daemon|slurmctld|slurmdbd|slurmrestd|mariadbd|munged|dnsmasq|ganesha)\.(?:log|out)"
    r"(?:[.-][0-9]{1,14})?"
)
"""Logs of ours, and what rotating made of them without packing them."""
DAILY = re.compile(r"[0-9]{8}")
LARGEST_CONF = 1 << 20
CONFIGURATION = ("*.conf", "hosts", "nodes")
VERSIONS = {
    "slurm": ("slurmctld", "-V"),
    "torque": ("qstat", "--version"),
    "openpbs": ("qstat", "--version"),
    "gridengine": ("qstat", "-help"),
}
SERVER_LOGS = {
    "torque": ("/var/spool/torque/server_logs", "/var/lib/torque/server_logs"),
    "openpbs": ("/var/spool/pbs/server_logs",),
}
"""Directories with a file for each day."""
GRID_ENGINE = Path("/var/spool/gridengine/qmaster/messages")


def take_all(reader: Reader, layout: Layout, spec: Cluster | None, file: Path) -> None:
    """All of it, with the cluster's file; what fails costs itself alone."""
    collect = reader.parts.collect
    collect("versions.txt", lambda: [Part("versions.txt", versions(spec).encode())])
    state = layout.state
    collect("state.txt", lambda: [Part("state.txt", os.fsencode(listing(state)))])
    collect(CLUSTER, lambda: [_cluster(file)])
    with reader.parts.trying("conf/"):
        _take_configuration(reader, layout, spec)
    with reader.parts.trying("logs/"):
        _take_logs(reader, layout, spec)
    with reader.parts.trying("boots/"):
        _take_boots(reader, layout)


def _cluster(file: Path) -> Part:
    """As it is read: what stands in comments, or where no key is, is for nobody else."""
    try:
        with opened(file) as stream:
            text = stream.read(LARGEST_CONF).decode(errors="replace")
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no {file}") from None
    return Part(CLUSTER, dumped(source.read(text, file.name).data))


def _take_configuration(reader: Reader, layout: Layout, spec: Cluster | None) -> None:
    for pattern in CONFIGURATION:
        for path in sorted(layout.conf.glob(pattern)):
            reader.take(path, f"conf/{path.name}")
    reader.take(layout.accounting / "slurmdbd.conf", "conf/slurmdbd.conf")
    reader.take(layout.nfs / "ganesha.conf", "conf/ganesha.conf")
    if existing := attached(spec):
        reader.take(existing.resolve(), "conf/existing/slurm.conf")


def attached(spec: Cluster | None) -> Path | None:
    """The slurm.conf of a Slurm that is there without us."""
    return getattr(spec.batch, "attach", None) if spec else None


def _take_logs(reader: Reader, layout: Layout, spec: Cluster | None) -> None:
    if layout.log.is_dir():
        for path in sorted(one for one in layout.log.iterdir() if LOG.fullmatch(one.name)):
            reader.take(path, f"logs/{path.name}", log=True)
    for path in newest(layout.instances.glob("instances/*/boot.log")):
        reader.take(path, f"logs/nodes/{path.parent.name}.log", most=BOOT_TAIL)
    if spec is not None:
        with reader.parts.trying(f"logs/{spec.batch.kind}/"):
            for path in dict.fromkeys(batch_logs(spec)):
                reader.take(path, f"logs/{spec.batch.kind}/{path.name}", log=True)


def batch_logs(spec: Cluster) -> Iterator[Path]:
    """Logs of a batch system that is there without us, where they are on this machine."""
    if existing := attached(spec):
        yield from _named_in(existing)
    for place in SERVER_LOGS.get(spec.batch.kind, ()):
        found = (path for path in Path(place).glob("2*") if DAILY.fullmatch(path.name))
        yield from newest(found, 2)
    if spec.batch.kind == "gridengine":
        root, cell = getattr(spec.batch, "root", None), getattr(spec.batch, "cell", "default")
        places = [GRID_ENGINE, *([root / cell / "spool/qmaster/messages"] if root else [])]
        yield from [path for path in places if path.exists()][:1]


def _named_in(conf: Path) -> Iterator[Path]:
    with opened(conf) as stream:
        text = stream.read(LARGEST_CONF).decode(errors="replace")
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key.strip().lower() in ("slurmctldlogfile", "slurmdlogfile") and "%" not in value:
            yield Path(value.partition("#")[0].strip())


def _take_boots(reader: Reader, layout: Layout) -> None:
    for path in newest(layout.boots.glob("*")):
        if path.suffix in (".log", ".said"):
            reader.take(path, f"boots/{path.name}", most=BOOT_TAIL)


def newest(paths: Iterable[Path], most: int = MOST_BOOTS) -> list[Path]:
    """In the order of their names."""
    known = []
    for path in paths:
        try:
            known.append((path.lstat().st_mtime, path))
        except OSError:  # gone meanwhile
            continue
    return sorted(path for _, path in sorted(known, reverse=True)[:most])


# --- facts ---------------------------------------------------------------------------------


def versions(spec: Cluster | None) -> str:
    lines = [
        f"springtide {__version__}",
        f"python {sys.version.split()[0]} at {sys.executable}",
        f"system {_system()}",
        f"kernel {platform.release()} {platform.machine()}",
    ]
    if spec is not None:
        lines.append(f"batch system {spec.batch.kind}: {_batch_version(spec)}")
    return "\n".join(lines) + "\n"


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _batch_version(spec: Cluster) -> str:
    """As its commands on this machine say it; its server need not run."""
    words, place = VERSIONS.get(spec.batch.kind), getattr(spec.batch, "bin", None)
    if words is None:
        return "not known"
    path = f"{place}:{PATH}" if place else PATH
    program = shutil.which(words[0], path=path)
    if program is None:
        return f"there is no {words[0]}"
    try:
        done = subprocess.run(
            [program, *words[1:]],
            env={"PATH": path, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = (done.stdout or done.stderr).decode(errors="replace").strip().splitlines()
    return said[0][:200] if said else "it says nothing"


def listing(state: Path) -> str:
    """The files of the state directory, with their rights and sizes, and the room on its disk."""
    room = shutil.disk_usage(state)
    head = f"{state}: {room.free >> 20} MiB of {room.total >> 20} MiB are free\n"
    lines = []
    for line in _files(state, state, DEPTH):
        lines.append(line)
        if len(lines) >= MOST_NAMES:
            lines.append("…")
            break
    return head + "".join(f"{line}\n" for line in lines)


def _files(top: Path, place: Path, depth: int) -> Iterator[str]:
    try:
        found = sorted(os.scandir(place), key=lambda one: one.name)
    except OSError as error:
        yield f"{place.relative_to(top)}: {error.strerror}"
        return
    for one in found:
        try:
            about = one.stat(follow_symlinks=False)
        except OSError:  # gone meanwhile
            continue
        yield f"{_rights(about)} {Path(one.path).relative_to(top)}"
        if depth > 1 and stat.S_ISDIR(about.st_mode):
            yield from _files(top, Path(one.path), depth - 1)


def _rights(about: os.stat_result) -> str:
    try:
        owner = pwd.getpwuid(about.st_uid).pw_name
    except KeyError:
        owner = str(about.st_uid)
    return f"{stat.filemode(about.st_mode)} {owner:8} {about.st_size:12} {stamp(about.st_mtime)}"
