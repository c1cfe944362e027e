"""SQL of how nodes join: their tickets, and the phases of their boots. Called by `sqlite`."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from springtide.model import Phase, Ticket

COLUMNS = "node, generation, expires_at, used_at, key, machine, proven"
KEPT = 60
"""Phases of a node; some five boots."""


def issue(db: sqlite3.Connection, tickets: Sequence[Ticket]) -> None:
    """An instance that is only started afresh keeps its key until it gets another."""
    rows = [(one.node, one.generation, one.expires_at) for one in tickets]
    db.executemany(
        "INSERT INTO tickets (node, generation, expires_at) VALUES (?, ?, ?)"
        " ON CONFLICT (node) DO UPDATE SET used_at = NULL, proven = 0,"
        " expires_at = excluded.expires_at,"
        " key = iif(generation = excluded.generation, key, ''),"
        " machine = iif(generation = excluded.generation, machine, '{}'),"
        " generation = excluded.generation",
        rows,
    )


def tickets(db: sqlite3.Connection, names: Sequence[str] | None) -> Mapping[str, Ticket]:
    if names is None:
        rows = db.execute(f"SELECT {COLUMNS} FROM tickets").fetchall()
    else:
        wanted = json.dumps(names)
        where = "node IN (SELECT value FROM json_each(?))"
        rows = db.execute(f"SELECT {COLUMNS} FROM tickets WHERE {where}", (wanted,)).fetchall()
    return {row[0]: _ticket(row) for row in rows}


def joined_from(db: sqlite3.Connection, address: str) -> Sequence[Ticket]:
    where = "json_extract(machine, '$.address') = ?"
    rows = db.execute(f"SELECT {COLUMNS} FROM tickets WHERE {where}", (address,))
    return [_ticket(row) for row in rows]


def _ticket(row: tuple[Any, ...]) -> Ticket:
    node, generation, expires_at, used_at, key, machine, proven = row
    about = json.loads(machine)
    return Ticket(node, generation, expires_at, used_at, key, about, bool(proven))


def admit(db: sqlite3.Connection, ticket: Ticket) -> bool:
    done = db.execute(
        "UPDATE tickets SET used_at = ?, key = ?, machine = ?, proven = 0"
        " WHERE node = ? AND generation = ? AND expires_at = ? AND used_at IS NULL",
        (
            *(ticket.used_at, ticket.key, json.dumps(dict(ticket.machine))),
            *(ticket.node, ticket.generation, ticket.expires_at),
        ),
    )
    return done.rowcount == 1


def rekey(db: sqlite3.Connection, ticket: Ticket, former: str) -> bool:
    done = db.execute(
        "UPDATE tickets SET key = ?"
        " WHERE node = ? AND generation = ? AND used_at = ? AND key = ? AND NOT proven",
        (ticket.key, ticket.node, ticket.generation, ticket.used_at, former),
    )
    return done.rowcount == 1


def prove(db: sqlite3.Connection, ticket: Ticket) -> None:
    db.execute(
        "UPDATE tickets SET proven = 1, used_at = ?"
        " WHERE node = ? AND generation = ? AND key = ? AND expires_at = ?",
        (ticket.used_at, ticket.node, ticket.generation, ticket.key, ticket.expires_at),
    )


def note_phases(db: sqlite3.Connection, phases: Sequence[Phase]) -> None:
    rows = [(p.node, p.generation, p.name, p.at, p.took_s, p.detail) for p in phases]
    db.executemany(
        "INSERT INTO phases (node, generation, name, at, took_s, detail) VALUES (?, ?, ?, ?, ?, ?)",
        rows,
    )
    for node in {phase.node for phase in phases}:
        db.execute(
            "DELETE FROM phases WHERE node = ? AND id NOT IN"
            " (SELECT id FROM phases WHERE node = ? ORDER BY id DESC LIMIT ?)",
            (node, node, KEPT),
        )


def phases(db: sqlite3.Connection, node: str) -> Sequence[Phase]:
    rows = db.execute(
        "SELECT node, generation, name, at, took_s, detail FROM phases WHERE node = ? ORDER BY id",
        (node,),
    )
    return [Phase(*row) for row in rows]
