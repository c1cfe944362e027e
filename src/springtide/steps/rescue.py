"""What happens to nodes that fell out on their way up: given back, then cleaned up.

The engine runs it beside the further steps of the nodes that still stand.
"""

from collections import defaultdict
from contextlib import suppress

from springtide import decide
from springtide.model import STARTING, Kind, NodeState
from springtide.ports import Unavailable
from springtide.steps.instances import remove
from springtide.steps.inventory import refresh_inventory
from springtide.steps.work import Fallen, Work, insist


async def rescue(work: Work, fallen: Fallen) -> None:
    """Give the nodes back first, so that their jobs move on, then remove what they left.

    Nobody waits for the nodes of a deploy, nor may there be a batch system yet.
    """
    starting = [node for node in work.record.of(fallen) if node.state in STARTING]
    await work.record.move(
        [node.to(NodeState.FAILED, reason=fallen[node.name]) for node in starting],
        "node failed",
        work.operation.id,
    )
    failed = {node.name for node in work.record.of(fallen, NodeState.FAILED)}
    if work.operation.kind is Kind.RESUME:
        await give_back(work, {name: why for name, why in fallen.items() if name in failed})
    stuck = await remove(work.on(failed))
    if stuck:
        await work.record.note("instance stuck", nodes=stuck, operation=work.operation.id)
    await refresh_inventory(work.on(failed - stuck.keys()))


async def give_back(work: Work, fallen: Fallen) -> None:
    """Hand nodes back to the batch system, one call for all that share a reason."""
    await _tell_owners(work, fallen)
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, why in fallen.items():
        by_reason[why].append(name)
    for why, names in by_reason.items():
        await _give_back(work, names, why)


async def _tell_owners(work: Work, fallen: Fallen) -> None:
    """Say it to the jobs that wait for the nodes, while the batch system still knows which."""
    with suppress(Unavailable):
        jobs = await work.parts.batch.jobs()
        for job, why in decide.news(jobs, fallen).items():
            await work.parts.batch.tell(job, why)


async def _give_back(work: Work, names: list[str], why: str) -> None:
    try:
        await insist(lambda: work.parts.batch.give_back(names, why), work.parts.spec.timing.lock)
    except Unavailable as error:
        failed = dict.fromkeys(names, f"not given back: {error}")
        await work.record.note("give back failed", nodes=failed, operation=work.operation.id)
    else:
        told = dict.fromkeys(names, why)
        await work.record.note("node given back", nodes=told, operation=work.operation.id)
