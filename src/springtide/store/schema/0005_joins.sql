-- The right of each node's last instance to join, and how its boots went.

CREATE TABLE tickets (
    node       TEXT PRIMARY KEY,
    generation INTEGER NOT NULL,
    expires_at REAL NOT NULL,
    used_at    REAL,
    key        TEXT NOT NULL DEFAULT '',       -- digest
    machine    TEXT NOT NULL DEFAULT '{}'      -- JSON
) STRICT, WITHOUT ROWID;

CREATE TABLE phases (
    id         INTEGER PRIMARY KEY,
    node       TEXT NOT NULL,
    generation INTEGER NOT NULL,
    name       TEXT NOT NULL,
    at         REAL NOT NULL,
    took_s     REAL NOT NULL,
    detail     TEXT NOT NULL
) STRICT;

CREATE INDEX phases_node ON phases (node, id);
