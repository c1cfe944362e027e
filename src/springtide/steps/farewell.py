"""The last look at drained nodes before their instances go: what has a job again stays.

`instances` asks. Between a drain and this a daemon may have been away for hours, and a person may
have undrained a node meanwhile.
"""

from functools import partial

from springtide.batch.polled import Polled
from springtide.steps.drain import look
from springtide.steps.work import Fallen, Work, insist

USED_AGAIN = "it was drained, and has jobs again, so it stays in service"


async def used_again(work: Work) -> Fallen:
    """Nodes that got jobs after they were drained; all others are drained."""
    if work.operation.options.get("now"):
        return {}
    seen = await look(work)
    if seen.undrained:
        seen = await look(work)  # a job may have come before it was drained again
    return dict.fromkeys(seen.busy, USED_AGAIN)


async def let_go(work: Work) -> Fallen:
    """The batch system is to believe them off, and free to be asked for when they are gone.

    Answers those that it uses or keeps, which are in service as before.
    """
    kept = await used_again(work)
    going = work.on(name for name in work.names if name not in kept)
    await insist(partial(work.parts.batch.power_down, going.names), work.parts.spec.timing.lock)
    kept |= await _not_forgotten(going)
    await _keep(work.on(kept))
    return kept


async def _not_forgotten(work: Work) -> Fallen:
    """One that is read gives no job to a node that it has forgotten, whoever undrains it."""
    batch, lock_s = work.parts.batch, work.parts.spec.timing.lock
    if not isinstance(batch, Polled) or work.operation.options.get("now"):
        return {}
    seen = await insist(partial(batch.nodes, work.names), lock_s)
    leaving = [name for name in work.names if name in seen and seen[name].leaving]
    kept = await insist(partial(batch.depart, leaving), lock_s)
    return {name: f"the batch system keeps it: {why}" for name, why in kept.items()}


async def _keep(work: Work) -> None:
    """They were to leave, some since before a crash: whoever polls would see to it that they do."""
    batch = work.parts.batch
    if isinstance(batch, Polled) and work.names:
        await insist(partial(batch.power_up, work.names), work.parts.spec.timing.lock)
