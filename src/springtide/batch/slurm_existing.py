"""A Slurm that is there without us: its slurm.conf with all that it includes, and what its
slurmctld runs with. Pure but for `read`; called by `slurm_attached` and by the checks.

Slurm minds no case in keys, so keys are lower case here.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from springtide.batch.slurm_text import parse_time, parse_version, release
from springtide.batch.unread import UnreadableError
from springtide.nodeset import NodeNameError, expand

MOST_NESTED = 10
"""Files that include files that include files."""
MUNGE_KEY = Path("/etc/munge/munge.key")
MUNGE_SOCKET = "/run/munge/munge.socket.2"
SPOOL = "/var/spool/slurmd"
"""What they are where slurm.conf does not say."""

_PAIR = re.compile(r'([\w.]+)\s*[-+*/]?=\s*(?:"([^"]*)"|(\S+))')
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*", re.IGNORECASE)
_COMMENT = re.compile(r"(?<!\\)#.*")
_FIRST_PORT = re.compile(r"[0-9]{1,5}")
_ID = re.compile(r"\(\d+\)$")
_CONTROL_HOSTS = frozenset({"slurmctldhost", "controlmachine"})
_ENTITIES = frozenset(
    {"nodename", "partitionname", "nodeset", "downnodes", "frontendname", "poweraction"}
)


class UnreadableConf(Exception):
    """A slurm.conf cannot be read; the text says which file, and why."""


# The file


@dataclass(frozen=True, slots=True)
class Line:
    """A line of slurm.conf that says something, without its comment."""

    file: Path
    number: int
    text: str
    pairs: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> str:
        """What it defines: a node, a partition, or the first of its settings."""
        return self.pairs[0][0] if self.pairs else ""

    @property
    def name(self) -> str:
        """Of the node or partition that it defines."""
        return self.pairs[0][1] if self.pairs else ""

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        return () if self.kind in _ENTITIES else self.pairs

    @property
    def included(self) -> str | None:
        """The file that it includes, as it is written there."""
        match = _INCLUDE.fullmatch(self.text)
        return match[1] if match else None


@dataclass(frozen=True, slots=True)
class Conf:
    """A slurm.conf with the files that it includes in their places; ours only by its line."""

    path: Path
    lines: tuple[Line, ...]
    ours: Line | None = None
    """The line that includes our file."""
    apart: tuple[Line, ...] = ()
    """Lines that include other files by their paths: a configless slurmctld hands out only those
    that are beside slurm.conf, and included by their names alone."""

    @property
    def files(self) -> list[Path]:
        """All that it consists of, but for ours."""
        return list(dict.fromkeys([self.path, *(line.file for line in self.lines)]))

    @property
    def settings(self) -> dict[str, str]:
        """Of those that stand there twice the last one counts."""
        return dict(pair for line in self.lines for pair in line.settings)

    @property
    def nodes(self) -> list[str]:
        found = [_names(line.name) for line in self._of("nodename") if not _is_default(line)]
        return [name for names in found for name in names]

    @property
    def partitions(self) -> list[str]:
        return [line.name for line in self._of("partitionname") if not _is_default(line)]

    @property
    def actions(self) -> list[str]:
        """The names of its power actions."""
        return [line.name for line in self._of("poweraction")]

    @property
    def default_partition(self) -> str | None:
        """Where jobs go that name none."""
        lines = self._of("partitionname")
        found = [each for each in lines if dict(each.pairs).get("default", "").upper() == "YES"]
        return found[-1].name if found else None

    @property
    def defaults(self) -> list[Line]:
        """What holds for all nodes or partitions that are defined after it."""
        return [line for line in self.lines if line.kind in _ENTITIES and _is_default(line)]

    def _of(self, kind: str) -> list[Line]:
        return [line for line in self.lines if line.kind == kind]

    def render(self, ours: str) -> str:
        """All in one text, with ours where it is included, or else at the end."""
        texts = [ours if line == self.ours else line.text for line in self.lines]
        return "\n".join([*texts, *([] if self.ours else [ours])]) + "\n"


def _is_default(line: Line) -> bool:
    return line.name.upper() == "DEFAULT"


def _names(text: str) -> list[str]:
    """Slurm may know host lists that we do not."""
    try:
        return expand(text)
    except NodeNameError:
        return []


def read(path: Path, ours: Path, text: Callable[[Path], str] = Path.read_text) -> Conf:
    """The file and all that it includes, in place of the lines that include it; ours may be
    included by whatever name."""
    found = list(_flat(path, ours, text, MOST_NESTED))
    mine = [line for line in found if line.included and _target(line) == ours.resolve()]
    lines = tuple(line for line in found if not line.included or line in mine)
    apart = tuple(line for line in found if "/" in (line.included or "") and line not in mine)
    return Conf(path, lines, mine[0] if mine else None, apart)


def _flat(path: Path, ours: Path, text: Callable[[Path], str], depth: int) -> Iterator[Line]:
    if depth == 0:
        raise UnreadableConf(f"{path} is included by files that include each other")
    try:
        lines = parse_lines(text(path), path)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UnreadableConf(f"{path} cannot be read: {why}") from error
    for line in lines:
        yield line
        if line.included and _target(line) != ours.resolve():
            yield from _flat(path.parent / line.included, ours, text, depth - 1)


def _target(line: Line) -> Path:
    """What it includes, wherever links lead."""
    return (line.file.parent / (line.included or "")).resolve()


def parse_lines(text: str, file: Path = Path("slurm.conf")) -> list[Line]:
    """The lines that say something. A backslash at the end goes on in the next."""
    lines, begun, number = [], "", 0
    for at, raw in enumerate(text.splitlines(), 1):
        number = number if begun else at
        part = _COMMENT.sub("", raw).rstrip()
        if part.endswith("\\"):
            begun += part[:-1]
            continue
        whole, begun = (begun + part).strip(), ""
        if whole:
            lines.append(Line(file, number, whole, _pairs(whole)))
    return lines


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    found = _PAIR.findall(text)
    return tuple((key.lower(), quoted or bare) for key, quoted, bare in found)


# What slurmctld runs with


@dataclass(frozen=True, slots=True)
class Running:
    """What `scontrol show config` says."""

    settings: Mapping[str, str]

    def get(self, key: str) -> str:
        return self.settings.get(key, "")

    @property
    def version(self) -> str:
        return parse_version(self.get("slurm_version"))

    @property
    def release(self) -> tuple[int, int]:
        return release(self.version)

    @property
    def booted_at(self) -> float:
        return parse_time(self.get("boot_time")) or 0.0

    @property
    def has_read_the_file(self) -> bool:
        """Whether the files are as they were when slurmctld last read them."""
        return self.get("hash_val") == "Match"

    @property
    def user(self) -> str:
        """SlurmUser, without its number."""
        return _ID.sub("", self.get("slurmuser"))

    @property
    def host(self) -> str:
        """The first SlurmctldHost, without its address."""
        return self.get("slurmctldhost").partition("(")[0]


def parse_running(text: str) -> Running:
    """From `scontrol show config`; what is not set is empty."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    known = {key.strip().lower().removesuffix("[0]"): value.strip() for key, _, value in pairs}
    if "slurm_version" not in known:
        raise UnreadableError("scontrol did not print the configuration")
    return Running({key: "" if value == "(null)" else value for key, value in known.items()})


# What nodes need of it


@dataclass(frozen=True, slots=True)
class Places:
    """Where a node finds things, as on the control host."""

    conf: Path
    files: tuple[Path, ...]
    """slurm.conf and what it includes."""
    socket: Path
    """munge's."""
    hosts: tuple[str, ...]
    """The names of slurmctld's machine."""
    directories: tuple[str, ...]
    """What slurmd expects to be there; with %n and %h for the node's name."""
    port: int | None = None
    """slurmctld's, where slurm.conf says it."""


def places(conf: Conf) -> Places:
    settings = conf.settings
    named = [line.settings[0][1] for line in conf.lines if line.kind in _CONTROL_HOSTS]
    spool = settings.get("slurmdspooldir", SPOOL)
    files = (settings.get(key, "") for key in ("slurmdlogfile", "slurmdpidfile"))
    return Places(
        conf=conf.path,
        files=tuple(conf.files),
        socket=Path(_socket(settings.get("authinfo", "")) or MUNGE_SOCKET),
        hosts=tuple(dict.fromkeys(name.partition("(")[0] for name in named)),
        directories=(spool, *(str(Path(file).parent) for file in files if file)),
        port=_port(settings.get("slurmctldport", "")),
    )


def _port(ports: str) -> int | None:
    """One, or the first of a range: slurmctld listens at all of them."""
    found = _FIRST_PORT.match(ports)
    return int(found[0]) if found else None


def _socket(info: str) -> str:
    """From AuthInfo: socket=/path among other things, or nothing but a path."""
    options = dict(part.partition("=")[::2] for part in info.split(","))
    return options.get("socket", "") or (info if info.startswith("/") else "")
