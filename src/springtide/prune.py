"""What is too old is deleted once a day, a little at a time, so that the record stays small.

The daemon runs `daily`. What is not over stays, and so do the last events of each node: they say
how it came to be as it is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn

from springtide.ports import Pruned, Store, StoreError
from springtide.record import Record

BATCH = 1000
"""So many rows in one transaction: others wait for it no longer than a few milliseconds."""
PAUSE_S = 0.05
"""Between two of them."""
FIRST_S = 60.0
"""A daemon that has just started has better things to do."""
DAY_S = 86_400.0
REQUESTS_S = DAY_S
"""Answered requests serve to know a late copy of them, and none comes as late as this."""


@dataclass(frozen=True, slots=True)
class Gone:
    """How much was deleted."""

    events: int = 0
    operations: int = 0
    requests: int = 0

    def render(self) -> str:
        return f"{self.events} events, {self.operations} operations, {self.requests} requests"


async def daily(record: Record, keep: Callable[[], float]) -> NoReturn:
    """Once a day; `keep` says how long things are kept, as the cluster file has it by then."""
    await asyncio.sleep(FIRST_S)
    while True:
        try:
            gone = await prune(record.store, record.now(), keep())
            if gone != Gone():
                await record.note("old records deleted", detail=gone.render())
        except StoreError as error:  # tomorrow is another day
            record.complain("old records not deleted", str(error))
        await asyncio.sleep(DAY_S)


async def prune(store: Store, now: float, keep_s: float) -> Gone:
    """Everything that is older than that, now."""
    before = now - keep_s
    return Gone(
        await _through(lambda after: store.prune_events(before, after, BATCH)),
        await _through(lambda after: store.prune_operations(before, after, BATCH)),
        await _requests(store, now - max(keep_s, REQUESTS_S)),
    )


async def _through(prune: Callable[[int], Awaitable[Pruned]]) -> int:
    """Batch after batch until what follows is young; how many rows went."""
    deleted, reached = 0, 0
    while (done := await prune(reached)).reached is not None:
        deleted, reached = deleted + done.deleted, done.reached
        await asyncio.sleep(PAUSE_S)
    return deleted


async def _requests(store: Store, before: float) -> int:
    deleted = 0
    while gone := await store.prune_requests(before, BATCH):
        deleted += gone
        await asyncio.sleep(PAUSE_S)
    return deleted
