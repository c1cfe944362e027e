"""`tide attach --remove`: our nodes go, then our part in that Slurm, then our state.

What that Slurm still needs stays, harmless, until its owner has taken us out of slurm.conf and
restarted slurmctld; run again after that, nothing is left.
"""

from collections.abc import Sequence

from springtide.batch.slurm_attachment import Attachment
from springtide.batch.slurm_include import lost
from springtide.batch.slurm_service import read
from springtide.cli import attached, detached, output, serving
from springtide.cli.attach_checks import see
from springtide.cli.attach_text import render_leaving
from springtide.cli.client import Client
from springtide.cli.consent import NO_CHANGE, Consent
from springtide.cli.destroy import end
from springtide.cli.endings import Complaint, Exit
from springtide.cli.progress import watching
from springtide.cli.subject import subject
from springtide.cli.watch import Watch
from springtide.cli.whereabouts import option
from springtide.model import Kind, NodeState
from springtide.nodeset import fold
from springtide.ports import Job, Unavailable
from springtide.spec import Cluster

SHOWN_JOBS = 10
REREAD = ("have slurmctld read it:", "  scontrol reconfigure")
"""For one that need not be restarted: once it runs without us, we do not ask it."""


def remove_attached(spec: Cluster, consent: Consent, *, dry_run: bool = False) -> Exit:
    daemon, attachment = Client(spec.state), Attachment(spec)
    serving.refuse_other(serving.status_of(daemon), spec)
    if dry_run:
        output.put(_render_intent(spec, attachment))
        output.note(NO_CHANGE)
        return Exit.DONE
    attached.restore(spec)
    if daemon.layout.record.exists():
        _refuse_jobs(attachment, consent)
        output.note(_render_plan(spec))
        what = f"take cluster {spec.cluster} out of {attachment.conf}"
        consent.require(spec.cluster, what, protected=spec.protected)
        _end_cluster(daemon, spec, attachment)
    return _finish(daemon, spec, attachment)


# --- jobs ----------------------------------------------------------------------------------


def _refuse_jobs(attachment: Attachment, consent: Consent) -> None:
    """Whoever says yes beforehand has them waited for."""
    if consent.yes or consent.really:
        return
    try:
        jobs = attachment.jobs()
    except Unavailable as error:
        raise Complaint(
            f"cannot see whether jobs need our nodes: {error}; start slurmctld, and run this "
            "again; if it is gone for good, say --yes, which works while no node of ours is up"
        ) from None
    if jobs:
        raise Complaint(
            f"{render_jobs(jobs)}; wait for them, or say --yes: then those that run are waited "
            "for, and those that wait in our partitions are lost when slurmctld is restarted"
        )


def render_jobs(jobs: Sequence[Job]) -> str:
    named = ", ".join(f"{job.id} of {job.user}" for job in jobs[:SHOWN_JOBS])
    more = f" and {len(jobs) - SHOWN_JOBS} more" if len(jobs) > SHOWN_JOBS else ""
    what = "1 job runs on our nodes or waits" if len(jobs) == 1 else "jobs run on our nodes or wait"
    count = "" if len(jobs) == 1 else f"{len(jobs)} "
    return f"{count}{what} for them: {named}{more}"


# --- the cluster ---------------------------------------------------------------------------


def _end_cluster(daemon: Client, spec: Cluster, attachment: Attachment) -> None:
    """Nothing new starts, what runs ends, and then all that is ours goes."""
    if serving.status_of(daemon) is None:
        detached.start(daemon, daemon.stored_spec)
    try:
        attachment.close()
        _suspend(daemon, spec)
    except Unavailable as error:
        _refuse_nodes(daemon, str(error))
        output.note(f"tide: {error}; no node of ours is up, so they are removed all the same")
    end(daemon, spec.cluster)


def _refuse_nodes(daemon: Client, why: str) -> None:
    """What runs on them cannot be waited for."""
    rows = daemon.get("/nodes", world=0)["nodes"]
    if up := fold(row["name"] for row in rows if row["state"] not in (None, NodeState.OFF)):
        raise Complaint(
            f"{why}; {up} may have jobs, so nothing was removed; start slurmctld, and run this "
            f"again; if it is gone for good, run `tide kill {up}` first: their jobs are lost"
        )


def _suspend(daemon: Client, spec: Cluster) -> None:
    """As Slurm lets nodes go: when their jobs have ended."""
    if not spec.managed or daemon.get("/status")["control_address"] is None:
        return
    watch = Watch(daemon, Kind.SUSPEND, list(spec.managed))
    watch.ask()
    with watching(lambda: watch.operations) as progress:
        standing = watch.until_nobody_waits(progress, None)
    if standing.fallen:
        raise Complaint(
            f"{fold(standing.fallen)} cannot be suspended; see `tide nodes`, then run this again"
        )


# --- what is left ----------------------------------------------------------------------------


def _finish(daemon: Client, spec: Cluster, attachment: Attachment) -> Exit:
    from springtide.api.server import remove_state
    from springtide.detach import leave

    try:
        kept = leave(spec)
    except Unavailable as error:
        raise Complaint(f"{error}; correct that, and run this again") from None
    remove_state(daemon.layout, kept)
    if kept:
        output.put("\n".join([f"cluster {spec.cluster} is gone. Now:", *_render_left(spec)]))
        return Exit.PARTLY
    output.put(f"cluster {spec.cluster} is gone: nothing left of it in {attachment.conf}")
    return Exit.DONE


def _render_left(spec: Cluster) -> list[str]:
    sight = see(subject(spec))
    attachment = sight.attachment
    again = f"tide attach --remove {option(spec.state)}"
    conf, left = attachment.read_conf(), read(attachment.include)
    restart: Sequence[str] = attached.restarting(sight) if sight.needs_programs else []
    if conf.ours is None and lost(left, conf):
        restart = attached.restarting(sight) or REREAD
    return render_leaving(conf, attachment.include, left, restart, again)


def _render_plan(spec: Cluster) -> str:
    nodes = fold(spec.managed) or "no node"
    return f"plan: suspend {nodes}, stop the daemon, and remove {spec.state}"


def _render_intent(spec: Cluster, attachment: Attachment) -> str:
    """What would go, and what there would be to do."""
    lines = [_render_plan(spec)]
    try:
        jobs = attachment.jobs()
        lines += [render_jobs(jobs)] if jobs else []
        return "\n".join([*lines, "and then you would be told to:", *_render_left(spec)])
    except Unavailable as error:
        return "\n".join([*lines, str(error)])
