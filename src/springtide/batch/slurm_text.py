"""What Slurm's commands print, read: nodes, jobs, versions, errors. Pure; called by `slurm`.

Written for 22.05 and up. Fields and flags that are not known are passed over, and free text
(reasons, comments, names of operating systems) may hold anything but a line's end.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache

from springtide.batch import slurm_reason
from springtide.batch.unread import UnreadableError
from springtide.ports import BatchNode, Job, Power

NO_NODES = "No nodes in the system"
JOB_FORMAT = "%A|%T|%u|%P|%D|%N|%r"
"""For squeue: no widths, so that nothing is cut; the id is the job's own, also in an array."""
PAST_FORMAT = f"%e|{JOB_FORMAT}"
"""With the end first, as a reason may hold anything."""
NO_JOB = "Invalid job id specified"

_MARKS = "*~#!%$@^-+"  # how sinfo and older versions write flags, behind the state
_BUSY = frozenset({"ALLOCATED", "MIXED"})
_ABSENT = frozenset({"DOWN", "ERROR", "FUTURE", "UNKNOWN"})
_NOT_YET = frozenset(
    {
        "INVALID_REG",  # it reported, but as another machine than the configuration says
        "NOT_RESPONDING",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "REBOOT_ISSUED",
    }
)
_REBOOTS = frozenset({"REBOOT_ISSUED", "REBOOT_REQUESTED"})
_RESUMES = frozenset({"RESUME", "UNDRAIN"})
_LEFT = frozenset({"POWERED_DOWN", "POWERING_DOWN"})
_REASON = re.compile(
    r" Reason=(?:(.*?) \[([^\]\s]+)@\d{4}-\d\d-\d\dT[\d:]+\]"  # who set it, and when, ends it
    r"|(.*?)(?: (?:Comment|Extra|InstanceId|InstanceType|ReservationName)=|$))"
)
_PROGRAM = re.compile(r"^\w+: (?:error|fatal): ", re.IGNORECASE)
_ERROR = re.compile(r"\b(?:error|fatal): |\[ERROR\] ", re.IGNORECASE)
_STAMP = re.compile(r"^(?:\[[^\]]*\] |[\d-]+ +[\d:]+ \d+ (?:\[\w+\] )?)")
"""What Slurm and MariaDB begin a line of their logs with."""
_AFTERMATH = re.compile(r"\[ERROR\] (?:Aborting|Plugin '|Unknown/unsupported storage engine)")
"""What MariaDB says after it has said what is wrong."""
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\S+)?")


def lines_of(text: str) -> list[str]:
    """Free text may hold all else that Python takes for a line's end."""
    return text.split("\n")


# Nodes


def parse_nodes(
    text: str, user: str = "slurm", fresh: Collection[str] = frozenset()
) -> dict[str, BatchNode]:
    """The nodes of `scontrol -o show nodes`; names that Slurm does not know are left out.

    `user` is who slurmctld runs as; `fresh` are nodes that are powered down after each job.
    """
    nodes = {}
    for line in lines_of(text):
        if line.startswith("NodeName="):
            node = _parse_node(line.rstrip(), user, fresh)
            nodes[node.name] = node
        elif line and not line.startswith(NO_NODES) and not _is_not_found(line):
            raise UnreadableError(f"scontrol printed {shorten(line)!r} instead of a node")
    return nodes


def _is_not_found(line: str) -> bool:
    return line.startswith("Node ") and line.rstrip().endswith(" not found")


def _parse_node(line: str, user: str, fresh: Collection[str]) -> BatchNode:
    name = line[len("NodeName=") :].partition(" ")[0]
    state, flags = parse_state(_field(line, "State"))
    if not name or not state:
        raise UnreadableError(f"scontrol printed a node without a state: {shorten(line)!r}")
    power = power_of(state, flags)
    keeps = name in fresh and not flags.isdisjoint(_LEFT)
    reason, owner = _wish(line, state, flags, user, keeps=keeps)
    return BatchNode(
        name,
        state=state,
        flags=flags,
        power=power,
        registered=power is Power.UP and state not in _ABSENT and flags.isdisjoint(_NOT_YET),
        address=_known(_field(line, "NodeAddr")),
        reason=reason,
        boot_at=parse_time(_field(line, "BootTime")),
        busy=is_busy(state, flags),
        busy_at=parse_time(_field(line, "LastBusyTime")),
        drained="DRAIN" in flags,
        owner=owner,
    )


def _wish(
    line: str, state: str, flags: frozenset[str], user: str, *, keeps: bool
) -> tuple[str, str | None]:
    """Why it does not serve, and by whose wish; that may outlast the drain it was for.

    A node that `keeps` was powered down with a reason of Slurm's; another reason came after.
    """
    text, setter = _reason(line)
    kept = slurm_reason.is_kept(text) or (keeps and text)
    if "DRAIN" not in flags and state != "DOWN" and not kept:
        return text, None
    if not text and "POWER_DOWN" in flags:
        return "", slurm_reason.SLURM  # it keeps a node free that will go
    resumes = not flags.isdisjoint(_REBOOTS) and _field(line, "NextState") in _RESUMES
    return slurm_reason.read(text, setter, resumes=resumes, user=user)


def _field(line: str, key: str) -> str:
    """The first field of that name: free text, which might look like one, comes later."""
    start = line.find(f" {key}=")
    if start < 0:
        return ""
    start += len(key) + 2
    end = line.find(" ", start)
    return line[start:] if end < 0 else line[start:end]


def _known(value: str) -> str | None:
    return None if value in ("", "(null)", "None", "N/A", "n/a", "Unknown") else value


def _reason(line: str) -> tuple[str, str]:
    """The text, and who set it if that is told."""
    if " Reason=" not in line or not (match := _REASON.search(line)):
        return "", ""
    return _known((match[1] or match[3] or "").strip()) or "", match[2] or ""


@lru_cache(maxsize=1000)
def parse_state(text: str) -> tuple[str, frozenset[str]]:
    """IDLE+CLOUD+POWERED_DOWN, or down*+drain: the base state and its flags."""
    base, *flags = (word.strip(_MARKS).upper() for word in text.split("+"))
    return base, frozenset(flag for flag in flags if flag)


def power_of(state: str, flags: frozenset[str]) -> Power:
    """What has begun counts before what was only asked for."""
    busy = is_busy(state, flags)
    if "POWERING_DOWN" in flags:
        return Power.GOING_DOWN
    if flags & {"POWERING_UP", "REBOOT_ISSUED"}:
        return Power.GOING_UP
    if "POWERED_DOWN" in flags:
        # An allocated node is started within a second; its job must not think it lost.
        return Power.GOING_UP if busy or "POWER_UP" in flags else Power.DOWN
    return Power.GOING_DOWN if "POWER_DOWN" in flags and not busy else Power.UP


def is_busy(state: str, flags: frozenset[str]) -> bool:
    """Whether it has jobs, or they are being cleaned up after."""
    return state in _BUSY or "COMPLETING" in flags


def parse_time(text: str) -> float | None:
    """Slurm's own format, printed in UTC because it was asked so."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def powered_down(names: Iterable[str]) -> dict[str, BatchNode]:
    """Nodes that Slurm hides because they are powered down, as it would show them."""
    flags = frozenset({"CLOUD", "POWERED_DOWN"})
    return {name: BatchNode(name, "IDLE", flags, Power.DOWN) for name in names}


# Jobs


def parse_jobs(text: str) -> list[Job]:
    """The jobs of squeue in JOB_FORMAT."""
    return [_parse_job(line) for line in lines_of(text) if line]


def parse_past_job(text: str, id: str) -> Job | None:
    """One of squeue in PAST_FORMAT, which shows all tasks of an array that is asked for."""
    rows = [line.partition("|") for line in lines_of(text) if line]
    found = [replace(_parse_job(rest), ended_at=parse_time(end)) for end, _, rest in rows]
    return next((job for job in found if job.id == id), None)


def _parse_job(line: str) -> Job:
    fields = line.split("|", JOB_FORMAT.count("|"))
    if len(fields) <= JOB_FORMAT.count("|") or not (
        fields[0].isdecimal() and fields[4].isdecimal()
    ):
        raise UnreadableError(f"squeue printed {shorten(line)!r} instead of a job")
    id, state, user, partition, count, nodes, reason = fields
    return Job(
        id,
        state=state,
        user=user,
        partition=partition,
        nodes=_known(nodes) or "",
        node_count=int(count),
        reason="" if reason == "None" else reason,
    )


# Versions and errors


def parse_version(text: str) -> str:
    """`slurm-wlm 22.05.8` or `slurm 24.11.5-1`: the version alone."""
    if match := _VERSION.search(text):
        return match[0]
    raise UnreadableError(f"no version of Slurm in {shorten(text)!r}")


def release(version: str) -> tuple[int, int]:
    """22.05 as numbers that compare."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def error_text(output: str) -> str:
    """What went wrong, from what a command printed: its lines as one, each once."""
    lines = (_PROGRAM.sub("", line.strip()) for line in output.splitlines())
    return shorten("; ".join(dict.fromkeys(line for line in lines if line)), 500)


def last_errors(log: str, count: int = 3) -> str:
    """The last errors of a daemon's log, or else its last lines."""
    lines = [line.strip() for line in log.splitlines()]
    errors = [line for line in lines if _ERROR.search(line) and not _AFTERMATH.search(line)]
    return error_text("\n".join(_STAMP.sub("", line) for line in (errors or lines)[-count:]))


# Free text on its way to Slurm


def one_line(text: str, limit: int) -> str:
    """Free text as Slurm can take it: one line, no control characters, not too long."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return shorten(" ".join(printable.split()), limit)


def shorten(text: str, limit: int = 100) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
