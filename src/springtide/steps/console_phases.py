"""The phases that container nodes tell on their consoles, put on record; others report them.

`boot_phases` and `bootlogs` call it; what cannot be had or kept is done without.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from springtide.configure.phases import parse_console
from springtide.ports import Instance, StoreError
from springtide.spec import Containers
from springtide.steps.work import Work

UPTIME = Path("/proc/uptime")
SAME_S = 1.0
"""By so much less the times of one phase differ that is read twice."""


async def note_consoles(work: Work, said: Iterable[tuple[Instance, str]]) -> None:
    """Keep what each instance told and nobody has kept yet."""
    groups, store = work.parts.spec.node_group, work.record.store
    with suppress(StoreError, OSError):
        started_at = time.time() - float(UPTIME.read_text().split()[0])
        for one, console in said:
            if tells(work, groups.get(one.node, "")):
                found = parse_console(one.node, one.generation, console, started_at)
                known = await store.phases(one.node) if found else ()
                fresh = [p for p in found if not any(p.repeats(k, SAME_S) for k in known)]
                await store.note_phases(fresh)


def tells(work: Work, group: str) -> bool:
    """Whether nodes of a group tell their phases there."""
    spec = work.parts.spec
    return group in spec.groups and isinstance(spec.provider_of(group), Containers)
