"""The store's part in joining: a ticket is used once, and a key lives as long as its instance."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.model import Phase, Ticket
from springtide.store import SqliteStore, open_sqlite

NEW = Ticket("c1", 3, 1000.0)
USED = replace(NEW, used_at=500.0, key="digest", machine={"boot": "b", "cpus": 2})


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = open_sqlite(tmp_path / "record.db")
    await opened.issue([NEW])
    yield opened
    await opened.close()


async def test_a_ticket_is_used_once(store: SqliteStore) -> None:
    assert await store.admit(USED)
    assert not await store.admit(replace(USED, key="another"))
    assert await store.tickets(["c1", "c2"]) == {"c1": USED}


async def test_the_ticket_of_another_generation_is_not_used(store: SqliteStore) -> None:
    assert not await store.admit(replace(USED, generation=2))
    assert await store.tickets() == {"c1": NEW}


async def test_a_key_is_replaced_only_by_who_knows_the_last(store: SqliteStore) -> None:
    await store.admit(USED)
    assert await store.rekey(replace(USED, key="second"), "digest")
    assert not await store.rekey(replace(USED, key="third"), "digest")
    assert (await store.tickets())["c1"].key == "second"


async def test_a_key_that_was_used_is_not_replaced(store: SqliteStore) -> None:
    await store.admit(USED)
    await store.prove(USED)
    assert not await store.rekey(replace(USED, key="second"), "digest")
    assert await store.tickets() == {"c1": replace(USED, proven=True)}


async def test_the_key_of_a_fresh_token_was_not_used_yet(store: SqliteStore) -> None:
    await store.admit(USED)
    await store.prove(USED)
    await store.issue([NEW])
    await store.prove(replace(NEW, key="digest"))  # started afresh, it still has its former key
    await store.admit(replace(USED, key="second"))
    assert (await store.tickets())["c1"] == replace(USED, key="second")


async def test_the_use_of_a_key_does_not_spend_a_token_that_came_meanwhile(
    store: SqliteStore,
) -> None:
    await store.admit(USED)
    await store.issue([replace(NEW, expires_at=2000.0)])
    await store.prove(USED)
    assert (await store.tickets())["c1"].used_at is None


async def test_who_joined_from_an_address_is_known(store: SqliteStore) -> None:
    used = replace(USED, machine={"address": "10.0.0.1"})
    await store.issue([Ticket("c2", 1, 1000.0)])
    await store.admit(used)
    assert await store.joined_from("10.0.0.1") == [used]
    assert await store.joined_from("10.0.0.2") == []


async def test_an_instance_that_is_started_afresh_keeps_its_key(store: SqliteStore) -> None:
    await store.admit(USED)
    await store.issue([replace(NEW, expires_at=2000.0)])
    again = (await store.tickets())["c1"]
    assert again == replace(USED, expires_at=2000.0, used_at=None)


async def test_the_key_of_an_instance_ends_with_it(store: SqliteStore) -> None:
    await store.admit(USED)
    await store.issue([replace(NEW, generation=4)])
    assert await store.tickets() == {"c1": replace(NEW, generation=4)}


async def test_of_a_node_the_last_phases_are_kept(store: SqliteStore) -> None:
    await store.note_phases([Phase("c1", 1, "started", float(at)) for at in range(70)])
    await store.note_phases([Phase("c2", 1, "started", 1.0, 0.5, "slow")])
    assert [phase.at for phase in await store.phases("c1")] == list(range(10, 70))
    assert await store.phases("c2") == [Phase("c2", 1, "started", 1.0, 0.5, "slow")]
