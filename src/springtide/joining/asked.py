"""What nodes say when they join and report, checked. Pure.

A node may be anybody until its token was looked at, and may be in wrong hands after that: what is
not as the protocol has it (see `springtide.node`) is refused, and texts are cut to a length.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from springtide.model import Phase
from springtide.node import PHASES

LONGEST = 300
"""Characters of a text that people will read."""
LOG = 60_000
"""Characters of a log; its end says most."""
MOST_PHASES = 60
MOST_KEYS = 8
MOST = 2**53
TOLERATED_S = 1.0
"""Clocks that differ by less count as the same."""
REPEATED_S = 2.0
"""By so much less the corrected times of one phase differ that is told twice."""
_NAME = re.compile(r"[a-z][a-z0-9 _-]{0,39}")


class BadAsked(Exception):
    """What a node said is not of the protocol."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a node says of itself."""

    arch: str = ""
    cpus: int = 0
    memory: int = 0
    """MiB."""
    slurm: str = ""
    """The version of its slurmd; empty if it has none."""
    boot: str = ""
    """The kernel's id of this boot."""
    clock: float = 0.0
    host_keys: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        slurmd = f"slurmd {self.slurm}" if self.slurm else "no slurmd"
        return f"{slurmd}, {self.cpus} cpus, {self.memory} MiB, {self.arch}"


@dataclass(frozen=True, slots=True)
class Asked:
    """One question of a node."""

    cluster: str
    node: str
    generation: int
    secret: str
    """Its token, or once it has joined its key."""
    machine: Machine = Machine()
    clock: float = 0.0
    """What the node's clock said when it asked; 0 if it did not say."""
    only: tuple[str, ...] | None = None
    """The features that it asks for; None for all."""
    phases: tuple[Phase, ...] = ()
    failed: str = ""
    """Why its boot came to an end."""
    final: bool = False
    """Whether trying again would not help."""
    log: str = ""


def parse_join(body: Mapping[str, Any], secret: str) -> Asked:
    """A join, whose `secret` is the token, or a refresh, where it is the key."""
    machine = body.get("machine")
    if not isinstance(machine, Mapping):
        raise BadAsked("machine is an object")
    only = _names(body.get("only"))
    return replace(_who(body, secret), machine=parse_machine(machine), only=only)


def parse_report(body: Mapping[str, Any]) -> Asked:
    final = body.get("final", False)
    if not isinstance(final, bool):
        raise BadAsked("final is true or false")
    return replace(
        _who(body, "key"),
        failed=_line(body.get("failed") or "", "failed"),
        final=final,
        log=_log(body.get("log") or ""),
    )


def _who(body: Mapping[str, Any], secret: str) -> Asked:
    node, generation = _word(body, "node"), _whole(body, "generation")
    phases = parse_phases(body.get("phases") or [], node, generation)
    return Asked(
        *(_word(body, "cluster"), node, generation, _word(body, secret)),
        phases=phases,
        clock=_number(body.get("clock", 0.0), "clock"),
    )


def parse_machine(about: Mapping[str, Any]) -> Machine:
    return Machine(
        arch=_line(about.get("arch") or "", "arch"),
        cpus=_whole(about, "cpus"),
        memory=_whole(about, "memory"),
        slurm=_line(about.get("slurm") or "", "slurm")[:40],
        boot=_line(about.get("boot") or "", "boot")[:80],
        clock=_number(about.get("clock"), "clock"),
        host_keys=_keys(about.get("host_keys") or []),
    )


def _keys(lines: Any) -> tuple[str, ...]:
    """As they are: whoever signs them looks at them."""
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise BadAsked("host_keys is a list of lines")
    return tuple(line.strip() for line in lines[:MOST_KEYS])


def _names(value: Any) -> tuple[str, ...] | None:
    """Unknown ones are nobody's."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BadAsked("only is a list of features")
    return tuple(value)


def parse_phases(rows: Any, node: str, generation: int) -> tuple[Phase, ...]:
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise BadAsked("phases is a list of objects")
    return tuple(_phase(row, node, generation) for row in rows[-MOST_PHASES:])


def _phase(row: Mapping[str, Any], node: str, generation: int) -> Phase:
    name = row.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadAsked("a phase has a name")
    took_s = _number(row.get("took_s") or 0.0, "took_s")
    detail = _line(row.get("detail") or "", "detail")
    return Phase(node, generation, name, _number(row.get("at"), "at"), max(0.0, took_s), detail)


def corrected(phases: Sequence[Phase], clock: float | None, now: float) -> list[Phase]:
    """By our clock: that of a node may be wrong until it has been told the time."""
    if clock is None:
        clock = max([now, *(phase.at for phase in phases)])
    off_s = clock - now
    if abs(off_s) <= TOLERATED_S:
        return list(phases)
    return [replace(phase, at=phase.at - off_s) for phase in phases]


def untold(phases: Sequence[Phase], known: Sequence[Phase]) -> list[Phase]:
    """The phases that are not on record: a node repeats a report whose answer it did not get.

    Only the boot under way is compared: the one before may be as good as the same, seconds ago.
    """
    starts = [index for index, phase in enumerate(known) if phase.name == PHASES[0]]
    boot, fresh = list(known[max(starts, default=0) :]), []
    for phase in phases:
        if any(phase.repeats(other, REPEATED_S) for other in boot):
            continue
        if phase.name == PHASES[0]:
            boot.clear()
        boot.append(phase)
        fresh.append(phase)
    return fresh


# --- single values -----------------------------------------------------------------------------


def _word(body: Mapping[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST or not value.isprintable():
        raise BadAsked(f"{key} is a text of at most {LONGEST} characters")
    return value


def _whole(body: Mapping[str, Any], key: str) -> int:
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise BadAsked(f"{key} is a whole number")
    return value


def _number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > MOST:
        raise BadAsked(f"{key} is a number")
    if not isfinite(value):
        raise BadAsked(f"{key} is a number")
    return float(value)


def _line(value: Any, key: str) -> str:
    """One line that a terminal can show."""
    if not isinstance(value, str):
        raise BadAsked(f"{key} is a text")
    printable = "".join(each if each.isprintable() else " " for each in value[: 4 * LONGEST])
    return " ".join(printable.split())[:LONGEST]


def _log(value: Any) -> str:
    if not isinstance(value, str):
        raise BadAsked("log is a text")
    return value[-LOG:].replace("\0", "")
