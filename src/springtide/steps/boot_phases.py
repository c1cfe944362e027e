"""How the boots of container nodes went, kept when they are over: their consoles tell it.

`registration` calls it; of boots that failed `bootlogs` keeps it. Nothing depends on it, so
whatever goes wrong is done without.
"""

from collections.abc import Iterable
from contextlib import suppress

from springtide.model import Node
from springtide.ports import CloudError, Instance, Provider
from springtide.steps.bootlogs import consoles_of
from springtide.steps.console_phases import note_consoles, tells
from springtide.steps.work import Work


async def keep_phases(work: Work, nodes: Iterable[Node]) -> None:
    """Read what these nodes said until they registered."""
    said = [node.name for node in nodes if tells(work, node.group)]
    with suppress(CloudError):
        for provider, names in work.by_provider(said):
            await note_consoles(work, await _consoles(work, provider, names))


async def _consoles(
    work: Work, provider: Provider, names: Iterable[str]
) -> list[tuple[Instance, str]]:
    wanted = {(node.name, node.generation) for node in work.record.of(names)}
    listed = await work.parts.census.instances(provider)
    ours = [one for one in listed if (one.node, one.generation) in wanted]
    consoles = await consoles_of(provider, ours)
    return [(one, consoles.get(one.id, "")) for one in ours]
