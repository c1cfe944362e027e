"""The SQL of what lies behind: how long boots took, and what is so old that it goes.

Called by `store.sqlite` only, in its one thread, each function inside a transaction.
"""

import sqlite3

from springtide.ports import Pruned

LAST_EVENTS = 20
"""So many events of each node stay, however old: they say how it came to be as it is."""

_BOOTS = """
SELECT nodes.grp, registered.at - requested.at
FROM (SELECT id, at, node FROM events WHERE what = 'node registered' ORDER BY id DESC LIMIT ?)
    AS registered
JOIN events AS requested ON requested.id = (
    SELECT id FROM events
    WHERE node = registered.node AND id < registered.id
        AND what IN ('node requested', 'reboot requested')
    ORDER BY id DESC LIMIT 1
)
JOIN nodes ON nodes.name = registered.node
WHERE requested.what = 'node requested'
ORDER BY registered.id DESC
"""
"""A reboot keeps the generation, so what was requested last tells which boot this was."""

_LOOK = {
    "events": """
        SELECT max(id), min(at) FROM
            (SELECT id, at FROM events WHERE id > ? ORDER BY id LIMIT ?)
        """,
    "operations": """
        SELECT max(id), min(created_at) FROM
            (SELECT id, created_at FROM operations WHERE id > ? ORDER BY id LIMIT ?)
        """,
}
_DELETE = {
    "events": """
        DELETE FROM events AS old WHERE id > :after AND id <= :reached AND at < :before
            AND NOT EXISTS (
                SELECT 1 FROM operations WHERE id = old.operation AND ended_at IS NULL
            )
            AND (node IS NULL OR (
                SELECT newer.id FROM events AS newer
                WHERE newer.node = old.node AND newer.id > old.id
                ORDER BY newer.id LIMIT 1 OFFSET :kept
            ) IS NOT NULL)
        """,
    "operations": """
        DELETE FROM operations WHERE id > :after AND id <= :reached AND ended_at < :before
            AND id NOT IN (SELECT operation FROM leases)
        """,
}


def boot_times(db: sqlite3.Connection, limit: int) -> list[tuple[str, float]]:
    """Groups and seconds of the last boots, newest first."""
    return [(group, seconds) for group, seconds in db.execute(_BOOTS, (limit,))]


def prune_events(db: sqlite3.Connection, before: float, after: int, limit: int) -> Pruned:
    return _prune(db, "events", before, after, limit)


def prune_operations(db: sqlite3.Connection, before: float, after: int, limit: int) -> Pruned:
    return _prune(db, "operations", before, after, limit)


def _prune(db: sqlite3.Connection, table: str, before: float, after: int, limit: int) -> Pruned:
    """Ids rise with time: where all are young, the rest is."""
    reached, oldest = db.execute(_LOOK[table], (after, limit)).fetchone()
    if reached is None or oldest >= before:
        return Pruned(None, 0)
    which = {"after": after, "reached": reached, "before": before, "kept": LAST_EVENTS - 1}
    return Pruned(reached, db.execute(_DELETE[table], which).rowcount)


def prune_requests(db: sqlite3.Connection, before: float, limit: int) -> int:
    gone = db.execute(
        "DELETE FROM requests WHERE id IN"
        " (SELECT id FROM requests WHERE answered = 1 AND received_at < ? LIMIT ?)",
        (before, limit),
    )
    return gone.rowcount
