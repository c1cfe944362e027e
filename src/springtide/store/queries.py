"""The SQL of the record: plain functions over one connection, each inside a transaction.

Called by `store.sqlite` only, in its one thread.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from springtide.model import (
    Cause,
    Event,
    Hold,
    Kind,
    Move,
    Node,
    NodeState,
    Operation,
    OperationState,
    Request,
)
from springtide.nodeset import expand, fold

Row = Sequence[Any]

_NODE = (
    "name, grp, state, generation, instance, address, zone, flavor, image, reason, changed_at,"
    " rebuilds, config"
)
_OPERATION = (
    "id, kind, nodes, state, next_step, fallen, done, later, options, verdict,"
    " asked_by, reason, created_at, started_at, ended_at"
)
_EVENT = "at, what, node, operation, detail"
_HOLD = "key, cause, reason, count, since, until"
_REQUEST = "id, program, nodes, received_at, jobs, wide"


def _names(text: str) -> tuple[str, ...]:
    return tuple(expand(text)) if text else ()


# --- nodes ---------------------------------------------------------------------


def _node(row: Row) -> Node:
    name, group, state, *rest = row
    return Node(name, group, NodeState(state), *rest)


def _node_row(node: Node) -> tuple[object, ...]:
    return (
        node.name,
        node.group,
        node.state,
        node.generation,
        node.instance,
        node.address,
        node.zone,
        node.flavor,
        node.image,
        node.reason,
        node.changed_at,
        node.rebuilds,
        node.config,
    )


def define(db: sqlite3.Connection, nodes: Iterable[Node]) -> None:
    db.executemany(
        f"INSERT INTO nodes ({_NODE}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?) "
        "ON CONFLICT (name) DO UPDATE SET grp = excluded.grp",
        map(_node_row, nodes),
    )


def nodes(db: sqlite3.Connection, names: Iterable[str] | None) -> dict[str, Node]:
    if names is None:
        rows: Iterable[Row] = db.execute(f"SELECT {_NODE} FROM nodes")
    else:
        rows = db.execute(
            f"SELECT {_NODE} FROM nodes WHERE name IN (SELECT value FROM json_each(?))",
            (json.dumps(list(names)),),
        )
    found = map(_node, rows)
    return {node.name: node for node in found}


def move(db: sqlite3.Connection, moves: Sequence[Move]) -> list[Node]:
    return [m.after for m in moves if _move(db, m)]


def _move(db: sqlite3.Connection, move: Move) -> bool:
    before, after = move.before, move.after
    changed = db.execute(
        "UPDATE nodes SET state=?, generation=?, instance=?, address=?, zone=?, flavor=?, image=?,"
        " reason=?, changed_at=?, rebuilds=?, config=? WHERE name=? AND state=? AND generation=?",
        (*_node_row(after)[2:], before.name, before.state, before.generation),
    )
    return changed.rowcount == 1


# --- operations ------------------------------------------------------------------


def _operation(row: Row) -> Operation:
    id, kind, names, state, next_step, fallen, done, later, options, verdict, *rest = row
    return Operation(
        id,
        Kind(kind),
        _names(names),
        OperationState(state),
        next_step,
        json.loads(fallen),
        _names(done),
        _names(later),
        json.loads(options),
        OperationState(verdict) if verdict else None,
        *rest,
    )


def open_operations(
    db: sqlite3.Connection, operations: Sequence[Operation], requests: Iterable[str]
) -> list[Operation]:
    opened = [replace(operation, id=_insert(db, operation)) for operation in operations]
    db.executemany("UPDATE requests SET answered = 1 WHERE id = ?", [(id,) for id in requests])
    return opened


def _insert(db: sqlite3.Connection, operation: Operation) -> int:
    cursor = db.execute(
        "INSERT INTO operations (kind, nodes, state, next_step, fallen, options, asked_by, reason,"
        " created_at, started_at, ended_at) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
        (
            operation.kind,
            fold(operation.nodes),
            operation.state,
            operation.next_step,
            json.dumps(dict(operation.fallen)),
            json.dumps(dict(operation.options)),
            operation.asked_by,
            operation.reason,
            operation.created_at,
            operation.started_at,
            operation.ended_at,
        ),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def progress(db: sqlite3.Connection, operation: Operation) -> None:
    db.execute(
        "UPDATE operations SET state=?, next_step=?, fallen=?, done=?, later=?, options=?,"
        " verdict=?, reason=?, started_at=?, ended_at=? WHERE id=?",
        (
            operation.state,
            operation.next_step,
            json.dumps(dict(operation.fallen)),
            fold(operation.done),
            fold(operation.later),
            json.dumps(dict(operation.options)),
            operation.verdict,
            operation.reason,
            operation.started_at,
            operation.ended_at,
            operation.id,
        ),
    )


def operations(db: sqlite3.Connection, unfinished: bool, limit: int) -> list[Operation]:
    """Unfinished ones oldest first, all of them; otherwise the newest, newest first."""
    if unfinished:
        rows = db.execute(f"SELECT {_OPERATION} FROM operations WHERE ended_at IS NULL ORDER BY id")
    else:
        rows = db.execute(f"SELECT {_OPERATION} FROM operations ORDER BY id DESC LIMIT ?", (limit,))
    return [_operation(row) for row in rows]


def operation(db: sqlite3.Connection, id: int) -> Operation | None:
    row = db.execute(f"SELECT {_OPERATION} FROM operations WHERE id = ?", (id,)).fetchone()
    return _operation(row) if row else None


# --- leases ----------------------------------------------------------------------


def lease(db: sqlite3.Connection, operation: int, names: Sequence[str]) -> dict[str, int]:
    held = db.execute(
        "SELECT node, operation FROM leases"
        " WHERE operation <> ? AND node IN (SELECT value FROM json_each(?))",
        (operation, json.dumps(names)),
    ).fetchall()
    if not held:
        db.executemany(
            "INSERT INTO leases VALUES (?, ?) ON CONFLICT (node) DO NOTHING",
            [(name, operation) for name in names],
        )
    return dict(held)


def release(db: sqlite3.Connection, operation: int, names: Sequence[str] | None) -> None:
    db.execute(
        "DELETE FROM leases WHERE operation = :operation"
        " AND (:names IS NULL OR node IN (SELECT value FROM json_each(:names)))",
        {"operation": operation, "names": None if names is None else json.dumps(names)},
    )


# --- events ----------------------------------------------------------------------


def append(db: sqlite3.Connection, events: Sequence[Event]) -> list[Event]:
    return [replace(event, id=_append(db, event)) for event in events]


def _append(db: sqlite3.Connection, event: Event) -> int:
    cursor = db.execute(
        f"INSERT INTO events ({_EVENT}) VALUES (?,?,?,?,?)",
        (event.at, event.what, event.node, event.operation, event.detail),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def events(
    db: sqlite3.Connection, after: int, node: str | None, operation: int | None, limit: int
) -> list[Event]:
    """The newest `limit` events past `after` that match, oldest first."""
    rows = db.execute(
        f"SELECT {_EVENT}, id FROM events WHERE id > :after"
        " AND (:node IS NULL OR node = :node)"
        " AND (:operation IS NULL OR operation = :operation)"
        " ORDER BY id DESC LIMIT :limit",
        {"after": after, "node": node, "operation": operation, "limit": limit},
    ).fetchall()
    return [Event(*row) for row in reversed(rows)]


# --- holds -----------------------------------------------------------------------


def holds(db: sqlite3.Connection) -> dict[str, Hold]:
    rows = db.execute(f"SELECT {_HOLD} FROM holds ORDER BY since, key")
    return {key: Hold(key, Cause(cause), *rest) for key, cause, *rest in rows}


def hold(db: sqlite3.Connection, hold: Hold) -> None:
    db.execute(
        f"INSERT OR REPLACE INTO holds ({_HOLD}) VALUES (?,?,?,?,?,?)",
        (hold.key, hold.cause, hold.reason, hold.count, hold.since, hold.until),
    )


def lift(db: sqlite3.Connection, key: str) -> None:
    db.execute("DELETE FROM holds WHERE key = ?", (key,))


# --- requests and facts ------------------------------------------------------------


def receive(db: sqlite3.Connection, request: Request) -> bool:
    done = db.execute(
        f"INSERT INTO requests ({_REQUEST}) VALUES (?,?,?,?,?,?) ON CONFLICT (id) DO NOTHING",
        (
            request.id,
            request.program,
            fold(request.nodes),
            request.received_at,
            json.dumps(request.jobs),
            json.dumps(dict(request.wide)),
        ),
    )
    return done.rowcount == 1


def waiting(db: sqlite3.Connection) -> list[Request]:
    rows = db.execute(
        f"SELECT {_REQUEST} FROM requests WHERE answered = 0 ORDER BY received_at, id"
    )
    return [
        Request(id, program, _names(names), at, tuple(json.loads(jobs)), json.loads(wide))
        for id, program, names, at, jobs, wide in rows
    ]


def forget_answered(db: sqlite3.Connection, before: float) -> None:
    db.execute("DELETE FROM requests WHERE answered = 1 AND received_at < ?", (before,))


def put(db: sqlite3.Connection, key: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))


def get(db: sqlite3.Connection, key: str) -> str | None:
    row = db.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])
