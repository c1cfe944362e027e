"""How nodes that were asked for stand: pure, from what the daemon tells of nodes and operations.

`tide resume` and `tide suspend` look at it until nobody waits any more.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from springtide.cli.client import Json
from springtide.cli.endings import Exit
from springtide.model import STARTING, Kind, NodeState, OperationState
from springtide.nodeset import expand

GOALS: Mapping[Kind, NodeState] = {Kind.RESUME: NodeState.READY, Kind.SUSPEND: NodeState.OFF}
TOO_LATE = "it was being removed when you asked; ask again"
GIVEN_UP = STARTING | {NodeState.FAILED}
"""States in which why a node fell out of its start may still be found out."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Who has arrived, who never will, and who is on the way."""

    done: tuple[str, ...]
    fallen: Mapping[str, str]
    waiting: Mapping[str, str]
    """By node, the state it is in."""

    @property
    def exit(self) -> Exit:
        """Who still waits when nobody looks any more has not arrived."""
        if not self.fallen and not self.waiting:
            return Exit.DONE
        return Exit.PARTLY if self.done else Exit.FAILED

    def render(self) -> str:
        """How many nodes are in which state."""
        counts = Counter(self.waiting.values())
        parts = [f"{count} {state}" for state, count in counts.items()]
        parts += [f"{len(self.done)} done"] if self.done else []
        parts += [f"{len(self.fallen)} fallen out"] if self.fallen else []
        return ", ".join(parts)


BUSY = ("ALLOCATED", "MIXED", "COMPLETING")


def busy(nodes: Iterable[Json]) -> list[Json]:
    """The nodes that have jobs."""
    return [node for node in nodes if node["batch"] and node["batch"]["state"] in BUSY]


def decide_standing(
    kind: Kind, nodes: Iterable[Json], settled: Iterable[str], operations: Iterable[Json]
) -> Standing:
    """Sort the nodes; `operations` are those of the kind that were opened since we asked.

    Those as they are after the nodes were looked at: what is known of a node when it goes is in
    its operation by then.
    """
    nodes = list(nodes)
    unclear = (node["name"] for node in nodes if node["state"] in GIVEN_UP)
    fates = _fates(operations, frozenset(unclear if kind is Kind.RESUME else ()))
    resting = frozenset(settled)
    done: list[str] = []
    fallen: dict[str, str] = {}
    waiting: dict[str, str] = {}
    for node in nodes:
        name, state = node["name"], node["state"]
        fate = fates.get(name)
        if state == GOALS[kind] or fate == "":
            done.append(name)
        elif fate is not None:
            fallen[name] = fate
        elif name in resting and state == NodeState.OFF:
            fallen[name] = node["reason"] or TOO_LATE
        else:
            waiting[name] = state
    return Standing(tuple(done), fallen, waiting)


def _fates(operations: Iterable[Json], unclear: Collection[str]) -> dict[str, str | None]:
    """What operations did to nodes, the newest last: "" arrived, else why not; None is open.

    Of an operation that goes on, so are the `unclear`: it may learn more of why they fell out.
    """
    fates: dict[str, str | None] = {}
    for operation in sorted(operations, key=lambda each: int(each["id"])):
        end = _end(operation)
        names = expand(operation["nodes"]) if operation["nodes"] else []
        open = unclear if end is None else ()
        fates |= {n: None if n in open else operation["fallen"].get(n, end) for n in names}
    return fates


def _end(operation: Json) -> str | None:
    state = OperationState(operation["state"])
    if not state.finished:
        return None
    if state in (OperationState.DONE, OperationState.PARTLY):
        return ""
    return operation["reason"] or str(state)
