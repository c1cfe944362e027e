"""Why a node did not come up, in one line for its admin. Pure; `steps.bootlogs` asks it.

What is known of a failed boot: the record, whether the instance lives, what the batch system has
heard of the node, and the end of what it said. SIGNS has what may be the matter, surest first.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from ipaddress import ip_address
from itertools import zip_longest
from math import floor
from signal import Signals
from time import gmtime, strftime

from springtide.model import Node, NodeState
from springtide.ports import BatchNode, Instance, InstanceState

LONGEST = 200
"""Characters, which is what fits into Slurm's reasons."""
QUOTED = 2
"""Errors that are quoted: the last is often only what followed from the one before."""
SAME_S = 5.0
"""A node's own account of its boot and the batch system's may differ by this."""
SIGNALLED = 128
"""A shell adds the number of the signal to this."""


class Trouble(StrEnum):
    """What is the matter, in words that are the same for all nodes."""

    NEVER_MADE = "no instance was made for it"
    VANISHED = "its instance is gone"
    GAVE_UP = "its boot failed"
    SHUT = "its instance runs"
    SLURMD_ENDED = "its slurmd ended"
    DIED = "its instance died while it booted"
    STOPPED = "its instance was stopped while it booted"
    PENDING = "its instance does not run yet"
    REFUSED = "slurmctld refuses its registration"
    ELSEWHERE = "slurmctld has another address of it"
    EARLY = "it seems to have booted before it was asked for"
    UNRESOLVED = "its slurmd cannot resolve a name"
    UNREACHED = "its slurmd does not reach slurmctld"
    UNHEARD = "its slurmd runs, but slurmctld has not heard from it"
    WAITING = "its boot script still waits"
    SILENT = "its instance runs, but no slurmd of it has spoken"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a node did not come up."""

    kind: Trouble
    words: str
    """The kind, and after a colon what is particular to this node."""


def classify(
    node: Node,
    instance: Instance | None,
    batch_node: BatchNode | None,
    console: str,
    shut_out: bool = False,
) -> Failure:
    """From the node's instance (None if it is not listed), what the batch system says of the node
    (None if nothing), and the end of what the instance said while it booted.

    If nobody could log in to it (`shut_out`), that is not for what its slurmd did.
    """
    lines = _lines(console)
    known = tuple(_known(lines))
    boot = _Boot(node, instance, batch_node, known, bool(lines), shut_out)
    for kind, sign in SIGNS.items():
        if (particular := sign(boot)) is not None:
            return Failure(kind, _line(f"{kind}: {particular}" if particular else kind))
    raise AssertionError("the last sign is always seen")


NO_SSH = "no login by ssh within"
_LATE = (
    "it did not register within",
    "its instance did not run in time",
    "its instance got no address in time",
    NO_SSH,
)
UNCONFIGURED = "Ansible could not configure it"
_DEAD = (Trouble.DIED.value, Trouble.GAVE_UP.value)


def is_failed_boot(reason: str) -> bool:
    """Whether an operation gave a node up because it did not come up, of which that is no cause."""
    return reason.startswith((*_LATE, *_DEAD))


def counts_as_failed(reason: str) -> bool:
    """Whether a node that fell out for it would most likely do so again at once."""
    return is_failed_boot(reason) or reason.startswith(UNCONFIGURED)


def is_unconfigured(reason: str) -> bool:
    """Whether a node fell out that may well serve, but lacks what Ansible was to give it."""
    return reason.startswith((UNCONFIGURED, NO_SSH))


def is_shut_out(reason: str) -> bool:
    """Whether a node fell out because nobody could log in to it."""
    return reason.startswith(NO_SSH)


def explain(reason: str, words: str) -> str:
    """The reason for which a node was given up, with the cause if one was found."""
    head = reason if is_shut_out(reason) else reason.partition(":")[0]
    if not words:
        return reason
    return _line(f"{head}; {words}") if head.startswith(_LATE) else words


def is_telling(reason: str, explained: str) -> bool:
    """Whether more is known than that it fell out; not if only where to read of each node."""
    if explained == reason or reason.startswith(Trouble.GAVE_UP):
        return False  # what a node itself said is not found better
    return "see `tide log " not in explained


# What it said


_TIME = r"\d\d/\d\d/\d{4} [\d:.]+"
_DAEMON = re.compile(
    r"(?:^|(?<=[^:] ))slurmd(?:-[\w.-]+?|\[\d+\])?: "
    rf"|^{_TIME}\| *\w+\|[\w.-]+\|[A-Z]\|"  # a log of Grid Engine
    r"|^(?:critical )?error: (?=commlib |getting configuration|cannot read attribute"
    r"|can't (?:find connection|resolve host|get configuration))"  # what an execd prints
    rf"|^{_TIME};[0-9a-f]{{4}}; *pbs_mom(?:\.\d+)?;\w+;[^;]*;|^pbs_mom: "
)
"""How lines begin of that which makes a machine a node."""
_KNOWN = re.compile(
    rf"{_DAEMON.pattern}|(?:^|(?<=[^:] ))(?:slurmstepd|munged)(?:-[\w.-]+?|\[\d+\])?: "
    r"|^waiting for |^health check failed: |^cannot join: "
    r"|^the boot script ended with status |^the node gave up: |: Ansible cannot log in$"
    r"|^/run/tide/boot: (?:line )?\d+: "
)
"""Lines of batch systems, munge and our own boot script: what else is said is for admins only."""
_TOOL = re.compile(
    r"^(?:cat|chmod|chown|cp|date|getent|grep|install|ln|mkdir|mv|rm|sed|setpriv|sleep): "
)
"""How lines begin of what our boot script runs; they are its own just before it ends."""
_ERROR = re.compile(
    r"\b(?:error|fatal|panic|failed|cannot|denied|not found|no such|unable)\b|LOG_ERROR"
    r"|^[^|]*\|[^|]*\|[^|]*\|(?-i:[EC])\|",  # Grid Engine's level, behind the host
    re.IGNORECASE,
)
_OF_ANY_BOOT = re.compile(
    r"mpi/pmix|MPI: Cannot create context"  # a plugin that is packaged without its library
    r"|\bmunged: (?:Info|Notice): |^waiting for |^the boot script ended with status "
)
_OVER = re.compile(r"\bfatal: |initialization failed|[Ss]hutdown completing")
_ENDED = re.compile(r"^the boot script ended with status (\d+)$")
_WAITING = re.compile(r"^waiting (for .+)$")
_GAVE_UP = re.compile(r"^the node gave up: (.+)$")
"""What `steps.bootlogs` begins a log with that a node sent itself."""
_NO_SSHD = re.compile(r"^(the image has no /usr/sbin/sshd|sshd did not start): Ansible cannot")
_UNKNOWN_NAME = re.compile(r'Unable to resolve ("[^"]+")')
_STARTED = re.compile(r"slurmd started on (\w{3}, \d\d \w{3} \d{4} [\d:]+ [+-]\d{4})")
_UPTIME = re.compile(r"\bUptime=(\d+)\b")
_REJECTED = "Zero Bytes were transmitted"
"""What slurmd hears of a slurmctld that does not believe it."""
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PHASE = "springtide: phase "
"""How lines begin that tell how far a boot is: they are of any boot, and no trouble."""
_STAMP = re.compile(r"^\[[^\]]*\] ?")


@dataclass(frozen=True, slots=True)
class _Boot:
    """All that is known of it."""

    node: Node
    instance: Instance | None
    seen: BatchNode | None
    lines: tuple[str, ...]
    """Those that may be quoted: reasons are shown to everybody."""
    spoke: bool
    """Whether it said anything at all."""
    shut_out: bool
    """Whether nobody could log in to it, which is what is to be explained."""

    @property
    def state(self) -> InstanceState | None:
        return self.instance.state if self.instance else None

    @property
    def daemon(self) -> list[str]:
        """What slurmd said, or its like of other batch systems; without its name."""
        return [_DAEMON.split(line, 1)[1] for line in self.lines if _DAEMON.search(line)]

    @property
    def ended(self) -> str | None:
        """How the boot script ended, if it did."""
        status = self.last(_ENDED)
        return _how(int(status)) if status else None

    def last(self, pattern: re.Pattern[str]) -> str | None:
        """The last words that match."""
        found = (match for line in reversed(self.lines) if (match := pattern.search(line)))
        return next((match[1] for match in found), None)

    @property
    def errors(self) -> str:
        """Its last errors."""
        found = [line for line in self._telling if _ERROR.search(line)]
        return "; ".join(dict.fromkeys(_unsigned(line) for line in found[-QUOTED:]))

    @property
    def last_words(self) -> str:
        """What it said last, or where that is to be read."""
        return self.quoted or (f"see `tide log {self.node.name}`" if self.spoke else "")

    @property
    def quoted(self) -> str:
        """Its last errors, or else its last line."""
        return self.errors or next((_unsigned(line) for line in reversed(self._telling)), "")

    @property
    def _telling(self) -> list[str]:
        return [line for line in self.lines if not _OF_ANY_BOOT.search(line)]


def _lines(console: str) -> list[str]:
    plain = (_STAMP.sub("", _ESCAPE.sub("", line)).strip() for line in console.splitlines())
    return [line for line in plain if line and not line.startswith(PHASE)]


def _known(lines: Sequence[str]) -> Iterator[str]:
    """Those that may be quoted."""
    for line, after in zip_longest(lines, lines[1:], fillvalue=""):
        if _KNOWN.search(line) or (_TOOL.search(line) and _ENDED.search(after)):
            yield line


def _unsigned(line: str) -> str:
    """Without whose line it is, where that is told anyway."""
    return _DAEMON.sub("", line, count=1)


def _how(status: int) -> str:
    try:
        return f"killed by {Signals(status - SIGNALLED).name}"
    except ValueError:
        return f"the boot script ended with status {status}"


def _line(text: str) -> str:
    printable = "".join(c if c.isprintable() else " " for c in text)
    words = " ".join(printable.split())
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"


# Signs: what is particular to the node if it has that trouble, else None


def _never_made(boot: _Boot) -> str | None:
    if boot.instance or boot.node.instance:
        return None
    return boot.node.reason or f"`tide events {boot.node.name}` tells what was done for it"


def _vanished(boot: _Boot) -> str | None:
    if boot.instance is None:
        return f"the provider does not list {boot.node.instance} any more"
    return "it is being deleted" if boot.state is InstanceState.DELETING else None


def _gave_up(boot: _Boot) -> str | None:
    return boot.last(_GAVE_UP)


def _shut(boot: _Boot) -> str | None:
    if not boot.shut_out or boot.state is not InstanceState.RUNNING:
        return None
    waits = "" if boot.daemon else boot.last(_WAITING)
    return boot.last(_NO_SSHD) or (f"its boot script still waits {waits}" if waits else "")


def _slurmd_ended(boot: _Boot) -> str | None:
    """With it went its instance, as with containers; or it said so."""
    said = boot.daemon
    if not said or not (boot.ended or _OVER.search(said[-1])):
        return None
    killed = boot.ended if boot.ended and "killed" in boot.ended else ""
    return "; ".join(filter(None, (killed, boot.errors))) or boot.ended or ""


def _died(boot: _Boot) -> str | None:
    if boot.state is not InstanceState.BROKEN:
        return None
    if boot.ended is not None:
        return boot.quoted or boot.ended
    said = f"it had said: {boot.quoted}" if boot.quoted else boot.last_words
    return f"killed, or its machine; {said}" if said else ""


def _stopped(boot: _Boot) -> str | None:
    return boot.last_words if boot.state is InstanceState.STOPPED else None


def _pending(boot: _Boot) -> str | None:
    return boot.last_words if boot.state is InstanceState.PENDING else None


def _refused(boot: _Boot) -> str | None:
    refused = boot.seen is not None and "INVALID_REG" in boot.seen.flags
    return boot.seen.reason if boot.seen and refused else None


def _elsewhere(boot: _Boot) -> str | None:
    """Before its address was told, the batch system has that of a former life."""
    seen, ours = boot.seen, boot.instance.address if boot.instance else None
    if seen is None or ours is None or not _is_address(seen.address) or seen.address == ours:
        return None
    if seen.registered:
        return f"it registered from {seen.address}, its instance is at {ours}"
    told = boot.node.state is NodeState.JOINING
    return f"that is {seen.address}, its instance is at {ours}" if told else None


def _is_address(text: str | None) -> bool:
    try:
        return text is not None and bool(ip_address(text))
    except ValueError:
        return False


def _early(boot: _Boot) -> str | None:
    """The batch system keeps the boot time of a former life: only what slurmd says too is new."""
    booted_at, own = boot.seen.boot_at if boot.seen else None, _own_account(boot)
    began_at = floor(boot.instance.booted_at or boot.instance.created_at) if boot.instance else 0
    if not boot.daemon or booted_at is None or booted_at >= began_at:
        return None
    heard = abs(own - booted_at) <= SAME_S if own is not None else not _unreached(boot)
    times = f"slurmd says {_time(booted_at)} UTC, its instance began {_time(began_at)}"
    return f"{times}; run slurmd with -b" if heard else None


def _own_account(boot: _Boot) -> float | None:
    """When it booted, as slurmd says."""
    started, uptime = boot.last(_STARTED), boot.last(_UPTIME)
    if started is None or uptime is None:
        return None
    try:
        return parsedate_to_datetime(started).timestamp() - int(uptime)
    except (ValueError, OverflowError):
        return None


def _time(at: float) -> str:
    return strftime("%Y-%m-%d %H:%M:%S", gmtime(at))


def _unresolved(boot: _Boot) -> str | None:
    name = boot.last(_UNKNOWN_NAME)
    return f"{name}; put it into /etc/hosts of its image" if name else None


def _unreached(boot: _Boot) -> str | None:
    failed = [line for line in boot.daemon if "Unable to register" in line]
    if failed and _REJECTED in failed[-1]:
        return f"{failed[-1]}; its munge key or its clock is not that of the cluster"
    return failed[-1] if failed else None


def _unheard(boot: _Boot) -> str | None:
    return boot.errors if boot.daemon else None


def _waiting(boot: _Boot) -> str | None:
    what = boot.last(_WAITING)
    return "; ".join(filter(None, (what, boot.errors))) if what else None


def _silent(boot: _Boot) -> str | None:
    return boot.last_words


SIGNS: Mapping[Trouble, Callable[[_Boot], str | None]] = {
    Trouble.NEVER_MADE: _never_made,
    Trouble.VANISHED: _vanished,
    Trouble.GAVE_UP: _gave_up,
    Trouble.SHUT: _shut,
    Trouble.SLURMD_ENDED: _slurmd_ended,
    Trouble.DIED: _died,
    Trouble.STOPPED: _stopped,
    Trouble.PENDING: _pending,
    Trouble.REFUSED: _refused,
    Trouble.ELSEWHERE: _elsewhere,
    Trouble.EARLY: _early,
    Trouble.UNRESOLVED: _unresolved,
    Trouble.UNREACHED: _unreached,
    Trouble.UNHEARD: _unheard,
    Trouble.WAITING: _waiting,
    Trouble.SILENT: _silent,
}
