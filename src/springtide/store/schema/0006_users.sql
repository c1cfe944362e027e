-- People of the cluster. Rows are never deleted: an id that was somebody's is nobody else's.

CREATE TABLE users (
    name       TEXT PRIMARY KEY,
    uid        INTEGER NOT NULL UNIQUE,
    gid        INTEGER NOT NULL,
    gecos      TEXT NOT NULL,
    home       TEXT NOT NULL,
    shell      TEXT NOT NULL,
    groups     TEXT NOT NULL DEFAULT '[]',     -- JSON
    keys       TEXT NOT NULL DEFAULT '[]',     -- JSON
    made       INTEGER NOT NULL,               -- whether the control host's account is ours
    created_at REAL NOT NULL,
    removed_at REAL
) STRICT, WITHOUT ROWID;

CREATE TABLE user_groups (
    name       TEXT PRIMARY KEY,
    gid        INTEGER NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;
