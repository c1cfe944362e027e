"""SQL of images that were made here. Called by `sqlite`."""

import sqlite3
from collections.abc import Sequence
from dataclasses import fields

from springtide.model import MadeImage, Making

_COLUMNS = (
    "family, number, arch, grp, provider, made_from, made_by, created_at, state, builder, id,"
    " detail, log"
)
_FIELDS = [field.name for field in fields(MadeImage)]
"""In the order of the columns."""


def images(db: sqlite3.Connection) -> Sequence[MadeImage]:
    rows = db.execute(f"SELECT {_COLUMNS} FROM images ORDER BY family, number, arch")
    found = (dict(zip(_FIELDS, row, strict=True)) for row in rows)
    return [MadeImage(**{**one, "state": Making(one["state"])}) for one in found]


def keep_image(db: sqlite3.Connection, one: MadeImage) -> None:
    db.execute(
        f"INSERT OR REPLACE INTO images ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            *(one.family, one.number, one.arch, one.group, one.provider, one.made_from),
            *(one.made_by, one.created_at, one.state, one.builder, one.id, one.detail, one.log),
        ),
    )


def drop_image(db: sqlite3.Connection, one: MadeImage) -> None:
    db.execute(
        "DELETE FROM images WHERE family = ? AND number = ? AND arch = ?",
        (one.family, one.number, one.arch),
    )
