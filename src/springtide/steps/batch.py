"""The batch system's own configuration."""

from functools import partial

from springtide import decide
from springtide.model import STARTS_NODES, Kind, NodeState
from springtide.nodeset import expand, fold
from springtide.ports import Site, Unavailable
from springtide.record import whole
from springtide.spec import Cluster
from springtide.spec.cluster import STATE
from springtide.steps.instances import wait_powered_down
from springtide.steps.inventory import publish, tell_addresses
from springtide.steps.site import SiteError
from springtide.steps.work import Fallen, Parts, Work, insist

LOST = "its instance died, and the jobs on it with it"


async def write_batch_config(work: Work) -> Fallen:
    """Write it, have the batch system run with it, and tell it where its nodes are."""
    try:
        changed = await _insist_on_reload(work)
    except Unavailable as error:
        raise SiteError(f"{error}{_again(work.parts.spec)}") from error
    await publish(work)  # the file may tell other addresses now
    if changed:
        await work.record.note("batch system changed", operation=work.operation.id, detail=changed)
    await _give_up_jobs(work)
    return await tell_addresses(work)


async def _insist_on_reload(work: Work) -> str:
    """One that is read is not ours to start: while it is away, it is waited for.

    Not by instances that it was never told of, which would cost meanwhile. What it refuses though
    it answers, it would refuse again.
    """
    spec = work.parts.spec
    try:
        return await _reload(work)
    except Unavailable:
        if not spec.polled or work.operation.kind in STARTS_NODES:
            raise
    await insist(work.parts.batch.version, spec.timing.lock)
    return await _reload(work)


async def _reload(work: Work) -> str:
    parts = work.parts
    assert parts.site is not None
    async with parts.writing:
        await parts.settle(work.names if work.operation.kind is Kind.SHRINK else ())
        if strays := parts.strays():
            raise SiteError(f"{fold(strays)} left the cluster file and is still up, with its jobs")
        return await whole(_run_with(parts, parts.site))


async def _run_with(parts: Parts, site: Site) -> str:
    """Whoever cancels this waits for its end: a cluster is either stopped or started."""
    stopped = parts.stopped
    await parts.doubt_applied()
    await parts.keep_stopped(False)  # it asks for nodes as soon as it runs
    try:
        changed = await parts.batch.reload(site)
    except Unavailable:
        await parts.keep_stopped(stopped)
        raise
    await parts.keep_applied()
    return changed


def _again(spec: Cluster) -> str:
    """From the file that is stored: another one may lie where somebody reads this."""
    if not spec.polled:
        return ""
    chosen = f"--cluster {spec.cluster}" if spec.state.parent == STATE else f"--state {spec.state}"
    return f"; when that is mended, run `tide deploy {chosen}`"


async def _give_up_jobs(work: Work) -> None:
    """Jobs of instances that died go back to the queue: the batch system may not know for long."""
    if "lost" not in work.operation.options:
        return
    lost = expand(work.operation.options["lost"])
    booting = [node.name for node in work.record.of(lost, NodeState.BOOTING)]
    batch, lock_s = work.parts.batch, work.parts.spec.timing.lock
    haunted = decide.haunted(booting, await insist(batch.jobs, lock_s))
    if haunted:
        await insist(partial(batch.fail, haunted, LOST), lock_s)
        told = dict.fromkeys(haunted, LOST)
        await work.record.note("jobs given back", nodes=told, operation=work.operation.id)


async def _go_on_without(work: Work, error: Unavailable) -> None:
    """A destroy may, if the batch system never heard of the nodes or somebody has said so."""
    parts, options = work.parts, work.operation.options
    if work.operation.kind is not Kind.DESTROY or not parts.spec.polled:
        raise error
    if not parts.is_up:
        return
    if not options.get("leave_batch"):
        gone = f"the instances of {fold(work.names)} are gone, but " if work.names else ""
        raise SiteError(
            f"{gone}the batch system keeps what it has of the nodes: {error}; when it answers, run "
            "`tide destroy` again; if it is gone for good, run `tide destroy --leave-batch`"
        ) from error
    await work.record.note(
        "batch system left as it is", operation=work.operation.id, detail=str(error)
    )


async def stop_batch(work: Work) -> Fallen:
    """Stop the batch system that we started; what waits in its queue stays there.

    Not under nodes that stayed, with their jobs. One that runs without us forgets our nodes only
    when the cluster is destroyed: until then it takes jobs for them, which wait.
    """
    for_good = work.operation.kind is not Kind.STOP
    if not for_good:
        if stayed := work.operation.fallen:
            raise SiteError(f"{fold(stayed)} stayed, so the batch system runs on")
        await wait_powered_down(work, work.names)
    try:
        await work.parts.batch.stop(for_good)
    except Unavailable as error:
        await _go_on_without(work, error)
    await work.parts.configurator.stop(for_good)
    await work.parts.keep_stopped(True)
    return {}
