"""People outlive the daemon, and their ids outlive them."""

from dataclasses import replace
from pathlib import Path

import pytest

from springtide.ports import StoreError
from springtide.store import open_sqlite
from springtide.users import Group, User
from tests.unit.test_users import KEY

ALICE = User("alice", 20000, 20001, "Alice A", "/home/alice", "/bin/sh", ("p",), (KEY,), False, 5.0)


async def test_people_are_there_after_a_restart(tmp_path: Path) -> None:
    first = open_sqlite(tmp_path / "record.db")
    await first.keep_user(ALICE, [Group("alice", 20001), Group("p", 20002)])
    await first.close()
    second = open_sqlite(tmp_path / "record.db")
    assert await second.users() == [ALICE]
    assert await second.user_groups() == [Group("alice", 20001), Group("p", 20002)]
    await second.close()


async def test_ids_stay_as_they_were_first_kept_and_are_nobody_elses(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "record.db")
    await store.keep_user(ALICE, [Group("p", 20002)])
    await store.keep_user(replace(ALICE, uid=1, gid=1, removed_at=9.0), [Group("p", 1)])
    assert await store.users() == [replace(ALICE, removed_at=9.0)]
    assert await store.user_groups() == [Group("p", 20002)]
    with pytest.raises(StoreError):
        await store.keep_user(replace(ALICE, name="bob"))
    await store.close()
