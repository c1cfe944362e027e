"""The phases that container nodes tell on their consoles, put on record; others report them.

`boot_phases` and `bootlogs` call it; what cannot be had or kept is done without.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from springtide.configure.phases import parse_console
from springtide.model import Phase
from springtide.ports import Instance, StoreError
from springtide.spec import Containers
from springtide.steps.work import Work

UPTIME = Path("/proc/uptime")
SAME_S = 1.0
"""No phase of a boot comes twice within this; when it was is reckoned anew each time."""


async def note_consoles(work: Work, said: Iterable[tuple[Instance, str]]) -> None:
    """Keep what each instance told and nobody has kept yet."""
    groups, store = work.parts.spec.node_group, work.record.store
    with suppress(StoreError, OSError):
        started_at = time.time() - float(UPTIME.read_text().split()[0])
        for one, console in said:
            if tells(work, groups.get(one.node, "")):
                found = parse_console(one.node, one.generation, console, started_at)
                known = await store.phases(one.node) if found else ()
                await store.note_phases([p for p in found if not _is_known(p, known)])


def tells(work: Work, group: str) -> bool:
    """Whether nodes of a group tell their phases there."""
    spec = work.parts.spec
    return group in spec.groups and isinstance(spec.provider_of(group), Containers)


def _is_known(phase: Phase, known: Iterable[Phase]) -> bool:
    alike = (p for p in known if (p.generation, p.name) == (phase.generation, phase.name))
    return any(abs(p.at - phase.at) < SAME_S for p in alike)
