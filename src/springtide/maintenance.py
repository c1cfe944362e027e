"""Maintenance mode: what looks wrong is reported and not repaired, until somebody ends it.

Nothing is replaced by itself either. Jobs start and stop nodes as ever, and so do people. It is a
fact beside the record: the reconciler reads it before it acts, the API changes it for people.
"""

import json
from dataclasses import asdict, dataclass

from springtide.ports import Store
from springtide.record import Record

FACT = "maintenance"


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Who wanted it, why, and since when."""

    by: str
    reason: str
    since: float


async def read(store: Store) -> Maintenance | None:
    """As it is now; None is the usual."""
    text = await store.get(FACT)
    return Maintenance(**json.loads(text)) if text else None


async def begin(record: Record, by: str, reason: str) -> Maintenance:
    """From now on, or as before for another reason."""
    before = await read(record.store)
    wanted = Maintenance(by, reason, before.since if before else record.now())
    await record.store.put(FACT, json.dumps(asdict(wanted)))
    await record.note("maintenance began", detail=f"by {by}: {reason}")
    return wanted


async def end(record: Record, by: str) -> bool:
    """Repairs go on; False if they did anyway."""
    if await read(record.store) is None:
        return False
    await record.store.put(FACT, "")
    await record.note("maintenance ended", detail=f"by {by}")
    return True
