"""The record of a cluster as it is on disk, for a bundle: read only, whoever else has it open."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from springtide.bundle.parts import Part

COUNTED = ("nodes", "operations", "events", "requests", "holds", "phases", "images", "users")
MOST_EVENTS = 20_000
MOST_OPERATIONS = 1000
WAIT_S = 5.0


def facts(record: Path) -> Part:
    """How large it is, and of which schema."""
    with closing(_open(record)) as db:
        found = {
            "bytes": record.stat().st_size,
            "schema": db.execute("PRAGMA user_version").fetchone()[0],
            "rows": {
                table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
                for table in COUNTED
            },
        }
    return _json("record/facts.json", found)


def rows(record: Path, since: float) -> list[Part]:
    """What the daemon would have told of nodes, operations and events, were it there."""
    with closing(_open(record)) as db:
        nodes = list(_rows(db, "SELECT * FROM nodes ORDER BY name"))
        newest = "SELECT * FROM operations ORDER BY id DESC LIMIT ?"
        operations = list(_rows(db, newest, MOST_OPERATIONS))
        last = "SELECT * FROM events WHERE at >= ? ORDER BY id DESC LIMIT ?"
        events = list(_rows(db, last, since, MOST_EVENTS))
        phases = list(_rows(db, "SELECT * FROM phases WHERE at >= ? ORDER BY id", since))
        holds = list(_rows(db, "SELECT * FROM holds"))
    about = "from the record on disk, for no daemon answered"
    lines = "".join(f"{json.dumps(one)}\n" for one in reversed(events))
    return [
        _json("record/nodes.json", nodes, about),
        _json("record/operations.json", operations, about),
        Part("record/events.jsonl", lines.encode(), about),
        _json("record/phases.json", phases, about),
        _json("record/holds.json", holds, about),
    ]


def file(record: Path) -> Path | None:
    """Where people have the cluster's file, as far as that can be read."""
    try:
        with closing(_open(record)) as db:
            found = db.execute("SELECT value FROM facts WHERE key = 'file'").fetchone()
    except sqlite3.Error:
        return None
    return Path(found[0]) if found and found[0] else None


def _open(record: Path) -> sqlite3.Connection:
    db = sqlite3.connect(f"file:{quote(str(record))}?mode=ro", uri=True, timeout=WAIT_S)
    db.row_factory = sqlite3.Row
    return db


def _rows(db: sqlite3.Connection, query: str, *values: float) -> Iterator[dict[str, Any]]:
    return (dict(row) for row in db.execute(query, values))


def _json(name: str, value: Any, about: str = "") -> Part:
    return Part(name, (json.dumps(value, indent=1) + "\n").encode(), about)
