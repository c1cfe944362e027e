-- The record: nodes, operations, leases, events, and requests not yet answered.

CREATE TABLE nodes (
    name       TEXT PRIMARY KEY,
    grp        TEXT NOT NULL,
    state      TEXT NOT NULL,
    generation INTEGER NOT NULL,
    instance   TEXT,
    address    TEXT,
    zone       TEXT,
    flavor     TEXT,
    image      TEXT,
    reason     TEXT NOT NULL,
    changed_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE operations (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    kind       TEXT NOT NULL,
    nodes      TEXT NOT NULL,          -- hostlist
    state      TEXT NOT NULL,
    next_step  INTEGER NOT NULL,
    fallen     TEXT NOT NULL,          -- JSON: node -> reason
    verdict    TEXT,                   -- how it will end, once that is known
    asked_by   TEXT NOT NULL,
    reason     TEXT NOT NULL,
    created_at REAL NOT NULL,
    started_at REAL,
    ended_at   REAL
) STRICT;

CREATE INDEX operations_unfinished ON operations (id) WHERE ended_at IS NULL;

CREATE TABLE leases (
    node      TEXT PRIMARY KEY,
    operation INTEGER NOT NULL REFERENCES operations (id)
) STRICT, WITHOUT ROWID;

CREATE INDEX leases_operation ON leases (operation);

CREATE TABLE events (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    at        REAL NOT NULL,
    what      TEXT NOT NULL,
    node      TEXT,
    operation INTEGER,
    detail    TEXT NOT NULL
) STRICT;

CREATE INDEX events_node ON events (node, id);
CREATE INDEX events_operation ON events (operation, id);

CREATE TRIGGER events_are_kept BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;

CREATE TABLE requests (
    id          TEXT PRIMARY KEY,
    program     TEXT NOT NULL,
    nodes       TEXT NOT NULL,         -- hostlist
    received_at REAL NOT NULL,
    jobs        TEXT NOT NULL,         -- JSON: ids of the jobs that wait for them
    answered    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE facts (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
