"""What was decided about a job of a polled batch system, for `why`: gathered from the last look."""

from collections.abc import Iterable, Mapping

from springtide import story
from springtide.calendar import limits
from springtide.daemon import Daemon
from springtide.demand import Demand
from springtide.model import STARTING, NodeState
from springtide.ports import Job, JobState, QueueJob
from springtide.scaling import polling_of
from springtide.spec import Cluster, NoProvider
from springtide.story import Short, Wait


def wait_of(daemon: Daemon, job: Job | None, groups: Iterable[str]) -> Wait | None:
    """None if it does not wait, or if the batch system asks for nodes itself."""
    if job is None or job.state != "PENDING" or not is_polled(daemon.spec):
        return None
    last, polling = daemon.poller.last, polling_of(daemon.spec)
    jobs = last.look.reading.jobs if last else ()
    found = next((one for one in jobs if one.id == job.id), None)
    if last is None or found is None:
        return Wait(polling.every, seen=False)
    decision, groups = last.decision, tuple(groups)
    waited_s = decision.memory.waiting.get(job.id, polling.patience)
    doubt = decision.memory.doubts.jobs.get(job.id)
    resting = {key: one.rest_s for key, one in decision.memory.vain.items() if one.rest_s}
    short = [group for group in groups if job.id in decision.demand.short.get(group, ())]
    return Wait(
        polling.every,
        held=found.state is JobState.HELD,
        strange=_strange(daemon.spec, found),
        impossible=decision.demand.impossible.get(job.id, ""),
        stuck_s=doubt.rest_s if doubt and doubt.is_out else 0.0,
        short=_short(daemon, [group for group in short if group in decision.exhausted]),
        vain={group: resting[group] for group in short if group in resting},
        held_back=[g for g in short if g not in decision.exhausted and g not in resting],
        patience_s=max(0.0, polling.patience - waited_s),
        starting=_starting(daemon, last.decision.demand, groups),
    )


def is_polled(spec: Cluster) -> bool:
    return getattr(spec.batch, "polling", None) is not None


async def known_as(daemon: Daemon, id: str, jobs: Iterable[Job], recent: int) -> str:
    """What the batch system calls a job that is there, or was among the last operations."""
    if not is_polled(daemon.spec):
        return id
    done = await daemon.parts.record.store.operations(limit=recent)
    past = (job for one in done for job in story.jobs_of(one))
    return story.known_as(id, (*(job.id for job in jobs), *past))


def _strange(spec: Cluster, job: QueueJob) -> str:
    served = [
        key
        for key, partition in spec.partitions.items()
        if any(not isinstance(spec.provider_of(group), NoProvider) for group in partition.groups)
    ]
    if not set(served) & set(job.queues):
        return f"{', '.join(job.queues) or 'its queue'} has no nodes of Springtide"
    if not set(spec.managed).issuperset(job.names):
        return "it insists on nodes that are not Springtide's"
    return ""


def _short(daemon: Daemon, groups: Iterable[str]) -> Mapping[str, Short]:
    found = limits(daemon.spec, daemon.parts.clock)
    sizes = {key: len(daemon.spec.names(key)) for key in groups}
    return {key: Short(min(found[key].max, size), size) for key, size in sizes.items()}


def _starting(daemon: Daemon, demand: Demand, groups: tuple[str, ...]) -> list[str]:
    """Nodes that jobs such as this are to get, and that are not up yet."""
    known = [daemon.parts.record.nodes.get(n) for n in (*demand.start, *sorted(demand.used))]
    ours = [node for node in known if node is not None and node.group in groups]
    asked = frozenset(demand.start)
    return [
        node.name
        for node in ours
        if node.state in STARTING or (node.state is NodeState.OFF and node.name in asked)
    ]
