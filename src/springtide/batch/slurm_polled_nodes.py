"""The nodes of a Slurm that is read: which are off, which it waits for, which it hears from.

What we did with a node is kept in that Slurm alone. One that is off is drained and down with our
reason, which has the time; its comment says that it is ours, and of one that has joined where it
is, because slurmctld forgets addresses when it starts or rereads its files, and, until it serves,
since when it was off, because a person who drains it writes over our reason. A node of a slurmd
that started since is heard from. Pure; called by `slurm_polled`.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from springtide.batch.slurm_reason import PREFIX
from springtide.batch.slurm_text import lines_of, parse_nodes, parse_time
from springtide.batch.unread import UnreadableError
from springtide.ports import OURS, BatchNode, Health, QueueJob, QueueNode

OFF = f"{PREFIX}off"
"""The reason of nodes that are off, or have not been heard from since."""
JOINED = f"{PREFIX}at "
"""The comment of nodes that have joined, before their address."""
KEPT = f"{PREFIX}off"
"""The comment of nodes of ours that have not: whoever resumes one finds it ours still."""
UNTOLD = "unknown"
"""A job on a node that squeue does not tell of: it starts or ends in this moment."""

_NAME = re.compile(r"NodeName=(\S+)")
_STARTED = re.compile(r" SlurmdStartTime=(\S+)")
_PARTITIONS = re.compile(r" Partitions=(\S+)")
_CORES = re.compile(r" CPUAlloc=(\d+)")
_SET = re.compile(r" Reason=.*? \[[^\]\s]+@(\d{4}-\d\d-\d\dT[\d:]+)\]")
_JOINED = re.compile(rf" Comment={JOINED}([0-9A-Fa-f.:]+)(?: since ([\dT:-]+))?(?=[ ;]|$)")
_MARKED = re.compile(rf" Comment={PREFIX}")
_COMMENT = re.compile(
    r" Comment=(.*?)"
    r"(?= (?:Extra|InstanceId|InstanceType|Reason|ReservationName|ResumeAfterTime)=|$)"
)
_BEHIND = "; "
"""Between our comment and that of whoever wrote one before."""
_REBOOTED = "Node unexpectedly rebooted"
"""What slurmctld puts a node down with that speaks, and by its own account has just booted."""
_UNHEARD = frozenset({"DOWN", "ERROR", "FUTURE", "UNKNOWN"})


@dataclass(frozen=True, slots=True)
class Known:
    """A node as slurmctld shows it, and what our marks on it say."""

    node: BatchNode
    joined: str
    """The address that it joined from; empty if it is off, or not ours."""
    started_at: float | None
    """When its slurmd did, as far as slurmctld has heard from one since its own start."""
    reason_at: float | None
    cores_used: int
    ours: bool
    marked: bool = False
    """Whether its comment is ours."""
    partitions: tuple[str, ...] = ()
    off_at: float | None = None
    """When it was put down before it joined; None if it served since, or that is not known."""
    remark: str = ""
    """What somebody else wrote as its comment."""

    @property
    def is_foreign(self) -> bool:
        """Whether it has a name of ours and serves, but never was ours."""
        serves = self._responds and self.started_at is not None
        return serves and not self.marked and not self.node.reason.startswith(PREFIX)

    @property
    def is_off(self) -> bool:
        """Whether we have put it down, and it has not served since: 24.11 keeps the reason then."""
        closed = self.node.state == "DOWN" or self.node.drained
        return self.ours and self.node.reason.startswith(OFF) and closed and not self._has_died

    @property
    def _has_died(self) -> bool:
        """Whether it joined after we put it down, and is heard from no more."""
        silent = "NOT_RESPONDING" in self.node.flags
        known = self.started_at is not None and self.reason_at is not None
        served = known and (self.started_at or 0.0) >= (self.reason_at or 0.0)
        return bool(self.joined) and silent and served

    @property
    def is_loose(self) -> bool:
        """Whether it is neither off nor joined, and without jobs: nobody has heard of it, or
        somebody resumed it. slurmctld may take it for alive then, for minutes, though nothing runs
        there; and who boots before such a node is off would be waited for in vain."""
        if self.is_off or self.joined:
            return False
        return self.health is Health.ABSENT or not self.node.busy

    @property
    def is_heard(self) -> bool:
        """Whether a slurmd started since we put it down; both times are whole seconds."""
        return self._started_since(self.reason_at)

    @property
    def is_left_down(self) -> bool:
        """Whether slurmctld hears from it, and leaves it down until it is told otherwise: it booted
        when slurmctld did not expect that, or while somebody drained it."""
        if not self.joined or self.node.state != "DOWN":
            return False
        if self.node.reason.startswith(_REBOOTED):
            return "NOT_RESPONDING" not in self.node.flags
        if not self.is_persons:
            return False
        return self._started_since(self.off_at or self.reason_at)

    def _started_since(self, at: float | None) -> bool:
        silent = "NOT_RESPONDING" in self.node.flags
        known = self.started_at is not None and at is not None
        return known and not silent and (self.started_at or 0.0) >= (at or 0.0)

    @property
    def is_persons(self) -> bool:
        """Whether somebody else drained it or put it down."""
        wished = self.node.drained or self.node.state == "DOWN"
        return wished and bool(self.node.reason) and self.node.owner not in (None, OURS, "slurm")

    @property
    def moved(self) -> bool:
        """Whether slurmctld has forgotten where it is."""
        return bool(self.joined) and self.node.address != self.joined

    @property
    def health(self) -> Health:
        if self.is_off:
            joining = Health.UP if self.is_heard else Health.JOINING
            return joining if self.joined else Health.ABSENT
        if self._responds or self.is_left_down:
            return Health.UP
        return Health.DOWN if self.joined or not self.ours else Health.ABSENT

    @property
    def _responds(self) -> bool:
        return self.node.state not in _UNHEARD and "NOT_RESPONDING" not in self.node.flags

    def shown(self, jobs: Collection[str]) -> QueueNode:
        """That it is off or joins is no drain; that it has been heard from is our affair then,
        and so is that somebody undrained it."""
        node, health = self.node, self.health
        resting = self.is_off and health is not Health.UP
        ours = self.is_left_down and not node.drained
        listed = tuple(jobs) or ((UNTOLD,) if node.busy else ())
        return QueueNode(
            node.name,
            health=health,
            words=frozenset({node.state, *node.flags}),
            drained=ours or (node.drained and not resting),
            reason=OFF if ours else "" if resting else node.reason,
            jobs=listed,
            cores_used=self.cores_used,
        )


def parse_known(text: str, user: str, ours: Collection[str]) -> dict[str, Known]:
    """From `scontrol -o show nodes`. A Slurm has nodes, or else the answer is no good."""
    nodes = parse_nodes(text, user)
    if not nodes:
        raise UnreadableError("scontrol printed no nodes")
    lines = {found[1]: line for line in lines_of(text) if (found := _NAME.match(line))}
    return {name: _known(node, lines[name], name in ours) for name, node in nodes.items()}


def _known(node: BatchNode, line: str, ours: bool) -> Known:
    joined = _JOINED.findall(line) if ours else []
    return Known(
        node,
        joined=joined[-1][0] if joined else "",
        started_at=_time(_STARTED, line),
        reason_at=_time(_SET, line),
        cores_used=int(found[1]) if (found := _CORES.search(line)) else 0,
        ours=ours,
        marked=ours and bool(_MARKED.search(line)),
        partitions=tuple(found[1].split(",")) if (found := _PARTITIONS.search(line)) else (),
        off_at=parse_time(joined[-1][1]) if joined else None,
        remark=_remark(line),
    )


def _remark(line: str) -> str:
    found = _COMMENT.search(line)
    text = found[1].strip() if found else ""
    return text.partition(_BEHIND)[2] if text.startswith(PREFIX) else text


def commented(one: Known, words: str) -> str:
    """A comment of ours, and behind it that of somebody else; theirs alone if ours is empty."""
    return _BEHIND.join(filter(None, (words, one.remark)))


def _time(pattern: re.Pattern[str], line: str) -> float | None:
    found = pattern.search(line)
    return parse_time(found[1]) if found else None


def joined(address: str, at: float | None = None) -> str:
    """The comment of a node that has joined from there, and, until it serves, was off since."""
    since = f" since {datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}" if at else ""
    return f"{JOINED}{address}{since}"


def shown(known: Mapping[str, Known], jobs: Iterable[QueueJob]) -> dict[str, QueueNode]:
    """All of them, with the jobs that they have."""
    on: dict[str, list[str]] = {}
    for job in jobs:
        for name in job.nodes:
            on.setdefault(name, []).append(job.id)
    return {name: one.shown(on.get(name, ())) for name, one in known.items()}
