"""SQL of the cluster's users and groups. Called by `sqlite`."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from springtide.users import Group, User

_COLUMNS = "name, uid, gid, gecos, home, shell, groups, keys, made, created_at, removed_at"


def users(db: sqlite3.Connection) -> list[User]:
    rows = db.execute(f"SELECT {_COLUMNS} FROM users ORDER BY name").fetchall()
    return [_user(row) for row in rows]


def _user(row: tuple[Any, ...]) -> User:
    name, uid, gid, gecos, home, shell, groups, keys, made, created_at, removed_at = row
    return User(
        *(name, uid, gid, gecos, home, shell, tuple(json.loads(groups))),
        *(tuple(json.loads(keys)), bool(made), created_at, removed_at),
    )


def groups(db: sqlite3.Connection) -> list[Group]:
    rows = db.execute("SELECT name, gid FROM user_groups ORDER BY name").fetchall()
    return [Group(*row) for row in rows]


def keep_user(db: sqlite3.Connection, user: User, groups: Sequence[Group]) -> None:
    """Ids stay as they were first kept."""
    db.executemany(
        "INSERT INTO user_groups (name, gid) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
        [(group.name, group.gid) for group in groups],
    )
    db.execute(
        f"INSERT INTO users ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?)"
        " ON CONFLICT (name) DO UPDATE SET gecos = excluded.gecos, home = excluded.home,"
        " shell = excluded.shell, groups = excluded.groups, keys = excluded.keys,"
        " made = excluded.made, created_at = excluded.created_at, removed_at = excluded.removed_at",
        (
            *(user.name, user.uid, user.gid, user.gecos, user.home, user.shell),
            *(json.dumps(user.groups), json.dumps(user.keys), int(user.made)),
            *(user.created_at, user.removed_at),
        ),
    )
