"""Nodes that came back, in a Slurm that lets nobody come back by himself.

With ReturnToService=2, as a Slurm of our own has it, a node that is down is in service again
when it registers. Elsewhere it stays down, and what is good for the owner's nodes is no good for
ours, which start afresh all the time. So we give them back to service. Pure; called by
`slurm_attached`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from springtide.batch.slurm_reason import LEAVES, PREFIX
from springtide.batch.slurm_text import lines_of, parse_state, parse_time
from springtide.ports import BatchNode, Power

REBOOTED = "Node unexpectedly rebooted"
SILENT = "Not responding"
"""What slurmctld says of nodes that it put down itself."""

_NODE = re.compile(r"NodeName=(\S+)")
_STATE = re.compile(r" State=(\S+)")
_STARTED = re.compile(r" SlurmdStartTime=(\S+)")
_REASON = re.compile(r" Reason=(.*?) \[[^\]\s]+@(\d{4}-\d\d-\d\dT[\d:]+)\]")


@dataclass(frozen=True, slots=True)
class Returned:
    """A node that is down though it has registered since."""

    name: str
    drained: str | None
    """Why it was drained besides, and has to stay so."""


def may_have_returned(nodes: Iterable[BatchNode]) -> list[str]:
    """Those worth a closer look: down, but heard from."""
    return [n.name for n in nodes if n.state == "DOWN" and n.power is Power.UP and _is_heard(n)]


def _is_heard(node: BatchNode) -> bool:
    return node.flags.isdisjoint({"NOT_RESPONDING", "INVALID_REG"})


def decide_returned(text: str) -> list[Returned]:
    """From `scontrol -o show node` of such nodes."""
    found = (_decide(line) for line in lines_of(text))
    return [node for node in found if node is not None]


def _decide(line: str) -> Returned | None:
    name, state, why = _NODE.match(line), _STATE.search(line), _REASON.search(line)
    if name is None or state is None or why is None:
        return None
    reason, drained = why[1].strip(), "DRAIN" in parse_state(state[1])[1]
    if reason != REBOOTED and not (_is_since(line, why[2]) and _is_temporary(reason, drained)):
        return None
    return Returned(name[1], reason if drained else None)


def _is_since(line: str, put_down: str) -> bool:
    """Whether its slurmd started after it was put down; both are whole seconds."""
    started = _STARTED.search(line)
    started_at = parse_time(started[1]) if started else None
    put_down_at = parse_time(put_down)
    return started_at is not None and put_down_at is not None and started_at >= put_down_at


def _is_temporary(reason: str, drained: bool) -> bool:
    """Not what somebody put down for good; a drain stays anyway."""
    return drained or reason in (SILENT, LEAVES) or reason.startswith(PREFIX)
