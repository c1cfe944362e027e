"""Giving up nodes that are broken: what they were to the batch system goes back to it."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from springtide import decide, triage
from springtide.ports import BatchNode, Unavailable
from springtide.steps.giving_back import kept
from springtide.steps.telling import tell
from springtide.steps.work import Fallen, Work, insist
from springtide.triage import Batch, Drained, Repair, Rule

MENDED = "it is as it should be by now"
KEPT = "the batch system keeps it"


async def give_back(work: Work) -> Fallen:
    """Look again: only what is still broken is given up, with its jobs back in the queue."""
    lock_s = work.parts.spec.timing.lock
    seen = await insist(partial(work.parts.batch.nodes, work.names), lock_s)
    rules = await _rules(work, seen)
    broken = {name: rule for name, rule in rules.items() if rule.repair is Repair.REPAIR}
    unfit = {name: rule.why for name, rule in broken.items() if rule.name == triage.UNFIT}
    await work.parts.holding.failed_boots(unfit, work.parts.spec)
    with suppress(Unavailable):
        await _tell_owners(work, {name: rule.why for name, rule in broken.items()})
    told = {name: rule.why for name, rule in broken.items()}
    await work.record.note("node given up", nodes=told, operation=work.operation.id)
    fallen = {name: MENDED for name in work.names if name not in broken}
    for why, names in _by_reason(broken).items():
        fallen |= await _give_up(work, [seen[name] for name in names if name in seen], why)
    return fallen


async def _rules(work: Work, seen: Mapping[str, BatchNode]) -> dict[str, Rule]:
    """What is the matter with each node now."""
    rules = {}
    for provider, names in work.by_provider(work.names):
        listed = await insist(partial(provider.list, work.cluster), work.parts.spec.timing.lock)
        instances, heard = decide.instances_of(listed, names), triage.heard(seen, listed)
        for node in work.record.of(names):
            view = triage.view(node, heard.get(node.name), instances[node.name])
            rules[node.name] = triage.rule_of(view)
    return rules


def _by_reason(rules: Mapping[str, Rule]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, rule in rules.items():
        found.setdefault(rule.why, []).append(name)
    return found


async def _give_up(work: Work, nodes: list[BatchNode], why: str) -> Fallen:
    """Down first: a job on a node that is merely given back ends with its slurmd's word.

    What a person put down stays so. Answers those that the batch system keeps.
    """
    batch, lock_s = work.parts.batch, work.parts.spec.timing.lock
    views = {node.name: triage.batch_view(node) for node in nodes}
    theirs = {n.name for n in nodes if triage.drained_view(n) is Drained.PERSON}
    up = [n for n, view in views.items() if view in _UP]
    waiting = [n for n, view in views.items() if view is Batch.WANTED]
    stay = dict[str, str]()
    if up:
        stay |= await insist(partial(kept, partial(batch.fail, up, why)), lock_s)
    gone = [n for n in up if not (n in stay or (n in theirs and views[n] is Batch.DOWN))]
    if gone or waiting:
        call = partial(batch.give_back, [*gone, *waiting], why)
        stay |= await insist(partial(kept, call), lock_s)
    return {name: f"{KEPT}: {words}" for name, words in stay.items()}


_UP = (Batch.SERVING, Batch.BUSY, Batch.SILENT, Batch.DOWN)


async def _tell_owners(work: Work, broken: Mapping[str, str]) -> None:
    """What became of the jobs on them, or of those that waited for them."""
    await tell(work, decide.losses(await work.parts.batch.jobs(), broken))
