"""What `tide bundle` has from the daemon: what other commands print with --json."""

import json
import time
from collections.abc import Mapping
from typing import Any

from springtide.bundle.parts import Part, Parts
from springtide.cli import output
from springtide.cli.client import Away, Client
from springtide.cli.endings import Complaint

ASKED: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "status.json": ("/status", {}),
    "nodes.json": ("/nodes", {}),
    "operations.json": ("/operations", {"limit": 1000}),
    "events.jsonl": ("/events", {"limit": 20000}),
    "holds.json": ("/holds", {}),
    "maintenance.json": ("/maintenance", {}),
    "machines.json": ("/machines", {}),
    "images.json": ("/images", {}),
    "plan.json": ("/plan", {}),
}
PATIENCE_S = 30.0
"""For each answer: a cloud or a batch system that hangs costs its part alone."""
ALL_S = 120.0
"""For all answers."""
MOST_TIMELINES = 50


class Asked:
    """The daemon's answers, as far as it gives any."""

    def __init__(self, daemon: Client, parts: Parts, since: float) -> None:
        self._daemon, self._parts, self._since = daemon, parts, since
        self._ends = time.monotonic() + ALL_S
        self.lacks = False
        """Whether anything is missing that the record on disk may have."""
        self.file: str | None = None
        """Where people have the cluster's file, as the daemon says."""

    def all(self) -> None:
        try:
            self._daemon.fetch("/status", PATIENCE_S)
        except Away as error:  # no more needs to be asked
            self.lacks = True
            self._parts.lack("answers of the daemon", str(error))
            output.note(f"tide: {error}; taking what the disk has")
            return
        except Complaint:
            pass  # it is told below, and other answers may be had
        for name, (path, query) in ASKED.items():
            with self._parts.trying(name):
                self._take(name, self._answer(name, path, query))

    def _answer(self, name: str, path: str, query: Mapping[str, object]) -> bytes | None:
        patience = min(PATIENCE_S, self._ends - time.monotonic())
        try:
            if patience <= 0:
                raise Away("the daemon took too long for what was asked before")
            return self._daemon.fetch(path, patience, **query)
        except Complaint as error:
            self.lacks = True
            self._parts.lack(name, str(error))
            return None

    def _take(self, name: str, answer: bytes | None) -> None:
        if answer is None:
            return
        if name == "events.jsonl":
            rows = [json.loads(line) for line in answer.splitlines()]
            young = [row for row in rows if row["at"] >= self._since]
            lines = "".join(f"{json.dumps(row)}\n" for row in young)
            self._parts.add(Part(name, lines.encode()))
            self._take_timelines(young)
            return
        self._parts.add(Part(name, answer))
        if name == "status.json":
            self.file = json.loads(answer)["file"]

    def _take_timelines(self, events: list[Any]) -> None:
        """Of the nodes that were last heard of."""
        names = dict.fromkeys(one["node"] for one in reversed(events) if one["node"])
        for name in list(names)[:MOST_TIMELINES]:
            if time.monotonic() > self._ends:
                self._parts.lack("timelines/", "the daemon took too long")
                return
            try:
                answer = self._daemon.fetch(f"/nodes/{name}/timeline", PATIENCE_S)
            except Complaint:  # nothing is known of it
                continue
            self._parts.add(Part(f"timelines/{name}.json", answer))
