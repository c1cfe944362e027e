"""Giving nodes back that did not come up, without a job on one that did so at the last moment."""

from collections.abc import Awaitable, Callable, Iterable, Mapping

from springtide import decide
from springtide.ports import BatchSystem, NotTaken
from springtide.steps.work import Fallen

Look = Callable[[Iterable[str]], Awaitable[list[str]]]
"""Which of these nodes the batch system still waits for, or has given up."""


async def give_back_closed(batch: BatchSystem, why: Mapping[str, str], look: Look) -> Fallen:
    """Closed before the last look: one that comes up after that has no job to lose.

    Answers those that were given back. One call for each kind of reason.
    """
    late = await look(why)
    for alike in decide.alike(late, why):
        await batch.drain(alike, why[alike[0]])
    still = await look(late)
    for alike in decide.alike(still, why):
        await batch.give_back(alike, why[alike[0]])
    await batch.undrain([name for name in late if name not in still])
    return {name: why[name] for name in still}


async def kept(call: Callable[[], Awaitable[None]]) -> Mapping[str, str]:
    """The nodes that a batch system which answers does not let go, and why; others have gone."""
    try:
        await call()
    except NotTaken as error:
        return error.why
    return {}
