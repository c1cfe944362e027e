"""What the stand-in's server knows: one JSON file in a directory, changed by one at a time."""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.batch.openpbs_standin.scheduler import State, schedule

FIRST: dict[str, Any] = {
    "up": True,
    "at": 0.0,
    "clock": None,
    "spoil": None,
    "raw": False,
    "scheduling": True,
    "turn": False,
    "next": 0,
    "moms": {},
    "resolves": None,
    "registered": None,  # address and port of the server at pbs_comm; None if any will do
    "resources": [],
    "queues": {"workq": {"queue_type": "Execution", "enabled": "True", "started": "True"}},
    "nodes": {},
    "jobs": {},
    "calls": 0,
}
HARDWARE = {"ncpus": 2, "mem": "24682416kb"}
"""Of the machines that were recorded."""
SILENT = "node down: communication closed"


@contextmanager
def changing(directory: Path) -> Iterator[State]:
    """The state; what was done to it is kept, unless something fails."""
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = directory / "state.json"
        state: State = (
            json.loads(path.read_text()) if path.exists() else json.loads(json.dumps(FIRST))
        )
        state["at"] = state["clock"] or time.time()
        yield state
        if state["up"]:
            settle(state)
        hidden = directory / ".state.json"
        hidden.write_text(json.dumps(state))
        hidden.rename(path)


def settle(state: State) -> None:
    """Moms are heard from, or no more. The scheduler has its turn only if somebody asked for it:
    a new job, one that ended, or whoever sets `scheduling`; nodes that come do not."""
    for name, node in state["nodes"].items():
        machine = state["moms"].get(name)
        if machine and not node["alive"]:
            _heard(node, machine, int(state["at"]))
        elif node["alive"] and not machine:
            node |= {"alive": False, "changed": int(state["at"])}
            node["comment"] = node["comment"] or SILENT
    if state["turn"]:
        state["turn"] = False
        schedule(state)


def _heard(node: State, machine: State, at: int) -> None:
    """What was set by hand stays; the rest is as its machine has it."""
    has = node["resources_available"]
    node["resources_available"] = {"arch": "linux", **machine, **has}
    node |= {"alive": True, "heard": True, "pcpus": machine["ncpus"], "changed": at}
    if node["comment"] == SILENT:
        node["comment"] = ""


def new_node(name: str) -> State:
    return {
        "name": name,
        "alive": False,
        "heard": False,
        "offline": False,
        "queue": "",
        "comment": "",
        "pcpus": 0,
        "changed": 0,
        "resources_available": {"host": name, "vnode": name},
    }
