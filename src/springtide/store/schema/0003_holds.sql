-- Where nothing is launched for a while; what a node was started with; jobs of several nodes.

CREATE TABLE holds (
    key    TEXT PRIMARY KEY,
    cause  TEXT NOT NULL,
    reason TEXT NOT NULL,
    count  INTEGER NOT NULL,
    since  REAL NOT NULL,
    until  REAL NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE nodes ADD COLUMN config TEXT NOT NULL DEFAULT '';
ALTER TABLE requests ADD COLUMN wide TEXT NOT NULL DEFAULT '{}';          -- JSON: job -> hostlist
