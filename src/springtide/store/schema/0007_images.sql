-- Images that were made here, or are being made.

CREATE TABLE images (
    family     TEXT NOT NULL,
    number     INTEGER NOT NULL,
    arch       TEXT NOT NULL,
    grp        TEXT NOT NULL,
    provider   TEXT NOT NULL,
    made_from  TEXT NOT NULL,
    made_by    TEXT NOT NULL,
    created_at REAL NOT NULL,
    state      TEXT NOT NULL,
    builder    TEXT NOT NULL,
    id         TEXT NOT NULL,
    detail     TEXT NOT NULL,
    log        TEXT NOT NULL,
    PRIMARY KEY (family, number, arch)
) STRICT, WITHOUT ROWID;
