"""The route for what nodes said of their machines when they joined; for `tide check`."""

from collections.abc import Iterable, Iterator, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from springtide.api.asked import daemon_of
from springtide.model import Node, NodeState, Ticket

GONE = (NodeState.OFF, NodeState.REQUESTED)
Row = dict[str, str | int]


async def show_machines(request: Request) -> Response:
    record = daemon_of(request).parts.record
    tickets = await record.store.tickets()
    return JSONResponse({"machines": smallest(record.nodes.values(), tickets)})


def smallest(nodes: Iterable[Node], tickets: Mapping[str, Ticket]) -> list[Row]:
    """The least that a node of each group has, of those that are there."""
    found: dict[str, Row] = {}
    for group, row in _rows(nodes, tickets):
        least = found.setdefault(group, {**row, "count": 0})
        least["count"] = int(least["count"]) + 1
        for key in ("cpus", "memory"):
            least[key] = min(int(least[key]), int(row[key]))
    return list(found.values())


def _rows(nodes: Iterable[Node], tickets: Mapping[str, Ticket]) -> Iterator[tuple[str, Row]]:
    for node in nodes:
        ticket = tickets.get(node.name)
        if ticket is None or ticket.generation != node.generation or node.state in GONE:
            continue
        cpus, memory = ticket.machine.get("cpus"), ticket.machine.get("memory")
        if isinstance(cpus, int) and isinstance(memory, int) and cpus > 0 and memory > 0:
            yield node.group, {"group": node.group, "cpus": cpus, "memory": memory}
