"""What OpenPBS's commands print, read: nodes, queues, server, errors. Pure; called by `openpbs`.

A document is whole or unreadable. Words, attributes and resources that are not known are passed
over; jobs are read in `openpbs_jobs`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from springtide.batch.unread import UnreadableError
from springtide.ports import OURS, Health, QueueNode

NO_NODES = ("Server has no node list", "No nodes found")
"""What pbsnodes says instead of an empty list; it fails then, as with a dead server."""
MARK = "vntype"
"""A resource that every OpenPBS has and that takes any words: nodes of ours have one of ours."""
COMMENT = 79
"""So many bytes of a node's comment does pbsnodes pass on."""
DIGITS = 18
"""Nothing that counts is longer."""
BUILT_IN = frozenset({"ncpus", "mem", "mpiprocs", "ompthreads", "arch"})
"""Resources of a chunk that every node has, or that need nothing of it."""

_DRAINED = frozenset({"offline", "offline_by_mom", "maintenance"})
_SHUT = frozenset({"busy", "resv-exclusive"})
"""Its load is above its pbs_mom's $max_load, or a reservation has it for its own jobs alone."""
_UNHEARD = frozenset({"down", "state-unknown", "unresolvable", "stale", "initializing"})
_ENVIRONMENT = re.compile(
    r'^([ \t]*)"Variable_List":\s*\{\n.*?^\1\}(,?)$', re.MULTILINE | re.DOTALL
)
_ARGUMENTS = re.compile(r'^([ \t]*)"Submit_arguments":.*?(,?)$', re.MULTILINE)
_STATE = re.compile(r'^[ \t]*"job_state":', re.MULTILINE)
_COUNT = re.compile(r"[0-9]{1,18}")
_SIZE = re.compile(r"([0-9]{1,18})([kmgtp]?)([bw]?)", re.IGNORECASE)
_POWER = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_NOISE = re.compile(r"^(?:qmgr: Error \(\d+\) returned from server|\s*)$")
_PARTING = str.maketrans(",=", ";:", "\"'\\")
_OBJECT = re.compile(r"^qmgr obj=(\S+) svr=\S+: (.*?)\s*$")


@dataclass(frozen=True, slots=True)
class PbsNode:
    """A node, with what only this adapter asks for."""

    shown: QueueNode
    ours: bool
    """We created it. Comments alone do not tell: people write over them."""


@dataclass(frozen=True, slots=True)
class PbsQueue:
    """One of its queues."""

    name: str
    executes: bool = True
    """Or it passes jobs on to others."""
    started: bool = True
    enabled: bool = True
    destinations: tuple[str, ...] = ()
    """Queues of this server that it passes jobs on to; another one's are not ours to serve."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Resources that each chunk of its jobs asks for, so that they run on its own nodes only."""


@dataclass(frozen=True, slots=True)
class Server:
    """Its server."""

    name: str
    version: str
    scheduling: bool


def parse_document(text: str) -> dict[str, Any]:
    """One document of `-F json`.

    Older versions do not quote all that may stand in a job's environment. That is of no interest
    here, and one user must not make the whole queue unreadable.
    """
    try:
        found = _loaded(text)
    except ValueError:
        found = _without_environment(text)
    if not isinstance(found, dict) or "pbs_server" not in found:
        raise UnreadableError(f"no document of OpenPBS: {shorten(text)!r}")
    return found


def _loaded(text: str) -> Any:
    """A number without end that somebody put into his job is a text, and spoils no other."""
    try:
        return json.loads(text, strict=False, object_pairs_hook=_each_once, parse_int=_number)
    except RecursionError as error:
        raise UnreadableError("broken JSON: too deep") from error


def _number(digits: str) -> int | str:
    return int(digits) if len(digits) <= DIGITS else digits


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A name that comes twice was smuggled in, and would hide what came before."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UnreadableError("a name comes twice")
    return found


def _without_environment(text: str) -> Any:
    bare = _ENVIRONMENT.sub(r'\1"Variable_List":{}\2', text)
    bare = _ARGUMENTS.sub(r'\1"Submit_arguments":""\2', bare)
    try:
        found = _loaded(bare)
    except ValueError as error:
        raise UnreadableError(f"broken JSON: {error}") from error
    jobs = found.get("Jobs", {}) if isinstance(found, dict) else {}
    if len(_STATE.findall(text)) != len(jobs):
        raise UnreadableError("broken JSON: jobs are missing from it")
    return found


def part(document: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """Objects by name; a part that is left out is empty."""
    found = document.get(name, {})
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise UnreadableError(f"{name} holds no objects")
    return found


# Nodes


def parse_nodes(text: str) -> dict[str, PbsNode]:
    """All nodes of `pbsnodes -a -F json`."""
    document = parse_document(text)
    if "nodes" not in document:
        raise UnreadableError("pbsnodes printed no nodes, and did not say that there are none")
    return {name: _node(name, found) for name, found in part(document, "nodes").items()}


def _node(name: str, found: Mapping[str, Any]) -> PbsNode:
    words = frozenset(word.strip() for word in str(found.get("state", "")).split(",")) - {""}
    if not words:
        raise UnreadableError(f"pbsnodes printed {name} without a state")
    drained = not words.isdisjoint(_DRAINED)
    comment = str(found.get("comment", ""))
    marks = str(resources(found, "resources_available").get(MARK, "")).split(",")
    shown = QueueNode(
        name,
        _health(words, str(found.get("pbs_version", ""))),
        words=words,
        drained=drained,
        reason=comment if drained and comment != OURS else "",
        jobs=_jobs_on(found.get("jobs", ())),
        cores_used=count_of(resources(found, "resources_assigned").get("ncpus", 0)),
        shut=not words.isdisjoint(_SHUT),
    )
    return PbsNode(shown, OURS in marks or comment == OURS or comment.startswith(f"{OURS}:"))


def _health(words: frozenset[str], version: str) -> Health:
    """Its version is known as soon as it has been heard from."""
    if words.isdisjoint(_UNHEARD):
        return Health.UP
    return Health.JOINING if version in ("", "unavailable") else Health.DOWN


def _jobs_on(found: Any) -> tuple[str, ...]:
    """["1.server"], or as text prints them: 1.server/0, 1.server/1."""
    listed = found.split(",") if isinstance(found, str) else found
    return tuple(dict.fromkeys(str(job).strip().partition("/")[0] for job in listed))


def resources(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    listed = found.get(name, {})
    if not isinstance(listed, dict):
        raise UnreadableError(f"{name} holds no resources")
    return listed


def count_of(value: Any) -> int:
    if not _COUNT.fullmatch(str(value)):
        raise UnreadableError(f"{shorten(str(value))!r} is no number")
    return int(value)


def parse_size(text: str) -> int:
    """24682416kb, 2gb, 100mw: in MiB, rounded up."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UnreadableError(f"{shorten(text)!r} is no amount of memory")
    number, scale, unit = match.groups()
    size = (int(number) << _POWER[scale.lower()]) * (8 if unit in ("w", "W") else 1)
    return -(-size >> 20)


# Queues and server


def parse_queues(text: str) -> dict[str, PbsQueue]:
    """All queues of `qstat -Q -f -F json`."""
    document = parse_document(text)
    found, server = part(document, "Queue"), str(document.get("pbs_server", ""))
    if not found:
        raise UnreadableError("qstat printed no queues")
    return {name: _queue(name, one, server) for name, one in found.items()}


def _queue(name: str, found: Mapping[str, Any], server: str) -> PbsQueue:
    marks = resources(found, "default_chunk")
    places = str(found.get("route_destinations", "")).split(",")
    leads = (word.strip().partition("@") for word in places)
    return PbsQueue(
        name,
        executes=str(found.get("queue_type", "")).lower().startswith("e"),
        started=found.get("started") == "True",
        enabled=found.get("enabled") == "True",
        destinations=tuple(to for to, _, host in leads if to and host in ("", server)),
        marks={key: str(value) for key, value in marks.items() if _is_mark(key, str(value))},
    )


def _is_mark(key: str, value: str) -> bool:
    """Amounts are used up, and mark nothing."""
    return key not in BUILT_IN and not _SIZE.fullmatch(value)


def parse_server(text: str) -> Server:
    """The server of `qstat -B -f -F json`."""
    document = parse_document(text)
    servers = part(document, "Server")
    if len(servers) != 1:
        raise UnreadableError("qstat printed no server")
    ((name, found),) = servers.items()
    version = str(found.get("pbs_version", document.get("pbs_version", "")))
    return Server(name, version, scheduling=found.get("scheduling") == "True")


# Errors, and free text on its way to OpenPBS


def error_text(output: str) -> str:
    """What went wrong, from what a command printed: its lines as one, each once."""
    lines = (line.strip() for line in output.splitlines() if not _NOISE.match(line))
    return shorten("; ".join(dict.fromkeys(lines)), 500)


def refusals(output: str) -> dict[str, str]:
    """What qmgr said of which object."""
    matches = (_OBJECT.match(line) for line in output.splitlines())
    return {match[1]: match[2] for match in matches if match}


def comment_of(text: str) -> str:
    """As a node's comment: one line, and not longer than pbsnodes passes on."""
    return _one_line(text).encode()[:COMMENT].decode(errors="ignore").rstrip()


def value_of(text: str) -> str:
    """As the value of `qalter -W comment=`, in which quotes, commas and equal signs part things."""
    return _one_line(text).translate(_PARTING)


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def shorten(text: str, limit: int = 100) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
