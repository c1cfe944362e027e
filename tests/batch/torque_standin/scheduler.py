"""Which jobs start where: first come, first served, as Torque's own scheduler does."""

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.batch.torque_standin.server import Server

Json = dict[str, Any]

WAITS = "Not Running: Not enough of the right type of nodes are available"
NO_PROCS = "Not Running - PBS Error: Unknown node-attribute "
"""It knows nothing of jobs that ask for processors alone."""
NO_HOST = "Not Running - PBS Error: Unknown node "
"""A node specification that begins with a letter is a list of hosts."""
BUSY = (
    "nodes file is empty, all systems are busy, or no nodes have the requested feature",
    "nodes file is empty or requested nodes exceed all systems",
)


def chunks(spec: str) -> list[tuple[int, int, list[str]]]:
    """Count, processors and properties (or names) of each part of a node specification."""
    found = []
    for part in spec.split("+"):
        first, *rest = part.split(":")
        words = rest if first.isdecimal() else [first, *rest]
        ppn = next((int(w.removeprefix("ppn=")) for w in words if w.startswith("ppn=")), 1)
        plain = [word for word in words if "=" not in word]
        found.append((int(first) if first.isdecimal() else 1, ppn, plain))
    return found


def has(node: Json, properties: list[str]) -> bool:
    return set(properties) <= {node["name"], *filter(None, node["properties"].split(","))}


def infeasible(server: "Server", spec: str) -> str:
    """Why qsub refuses a job, if it does: it counts nodes and processors, in any state."""
    for count, ppn, properties in chunks(spec):
        if count > 1 and count > sum(has(node, properties) for node in server.nodes.values()):
            return BUSY[0]
        if ppn > sum(node["np"] for node in server.nodes.values()):
            return BUSY[1]
    return ""


def turn(server: "Server") -> None:
    for job in server.jobs.values():
        queue = server.state["queues"][job["queue"]]
        if job["state"] == "Q" and not queue["route"] and queue.get("started", True):
            if why := _never(server, job):
                job["comment"] = job["comment"] if job.get("kept") else why
            elif slots := _place(server, needed(server, job)):
                _start(server, job, slots)
            else:
                job["comment"] = job["comment"] if job.get("kept") else WAITS


def needed(server: "Server", job: Json) -> str:
    """What the job itself asks for (`-l nodes=`) replaces all that its queue does."""
    own = str(job["resources"].get("nodes", "1"))
    return own if job.get("explicit") else server.state["queues"][job["queue"]]["neednodes"] or own


def _never(server: "Server", job: Json) -> str:
    if "procs" in job["resources"]:
        return NO_PROCS
    firsts = [part.split(":")[0] for part in needed(server, job).split("+")]
    strange = [first for first in firsts if first[:1].isalpha() and first not in server.nodes]
    return NO_HOST if strange else ""


def _place(server: "Server", spec: str) -> dict[str, list[int]]:
    """A node of its own for each that it asks for; nothing if there are too few."""
    slots: dict[str, list[int]] = {}
    for count, ppn, properties in chunks(spec):
        for node in server.nodes.values():
            fits = not node["words"] and node["name"] not in slots and has(node, properties)
            free = server.free_slots(node) if fits else []
            if count and len(free) >= ppn:
                slots[node["name"]] = free[:ppn]
                count -= 1
        if count:
            return {}
    return slots


def _start(server: "Server", job: Json, slots: dict[str, list[int]]) -> None:
    at = time.strftime("%a %b %d at %H:%M", time.gmtime(server.now()))
    job["state"], job["slots"] = "R", slots
    job["start_time"] = job["mtime"] = int(server.now())
    job["comment"] = f"Job started on {at}"
