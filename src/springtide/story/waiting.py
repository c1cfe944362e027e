"""Why a job of a polled batch system waits: what was decided about it at the last look. Pure.

`job` asks here, and tells itself of starts that failed and of groups that are held.
"""

from collections.abc import Mapping

from springtide.ports import Job
from springtide.story.case import JobCase, Short, Wait
from springtide.story.queue import WAITS
from springtide.story.telling import Told, lasting

_SHOW = "`scontrol show job {}` tells more"
_FREE = "Slurm starts it when other jobs have ended"


def unneeded(case: JobCase, job: Job, wait: Wait) -> Told | None:
    """A job that no node is started for, whatever else there may be; None if it is not so."""
    if case.closed or not wait.seen:
        return None
    if wait.strange:
        return Told(
            f"job {job.id} waits: {wait.strange}",
            "nothing by Springtide: that is Slurm's to decide",
            _SHOW.format(job.id),
        )
    if wait.impossible:
        return Told(
            f"job {job.id} waits in vain: {wait.impossible}", "never", f"`scancel {job.id}`"
        )
    if wait.held:
        return _held(job)
    return _stuck(job, wait.stuck_s) if wait.stuck_s else None


def _stuck(job: Job, left_s: float) -> Told:
    """What keeps it the batch system knows; held and released, a job is one that begins to wait."""
    said = f" (Slurm: {job.reason})" if job.reason else ""
    return Told(
        f"job {job.id} waits, but not for nodes: such as would hold it stood free, and Slurm did "
        "not start it; a quota, a limit or access may keep it, or its scheduler stands still"
        f"{said}",
        f"no node is started or kept for it; Springtide tries again in {lasting(left_s)}, or when "
        "it has been held and released, asks for something else, or may be free",
        _SHOW.format(job.id),
    )


def _held(job: Job) -> Told:
    """By whom or what, the batch system says."""
    known = WAITS.get(job.reason)
    why = f": {known.now}" if known else ""
    said = f" (Slurm: {job.reason})" if job.reason else ""
    return Told(
        f"job {job.id} is held{why}{said}",
        "no node is started for it before it is released, or what it waits for has come",
        _SHOW.format(job.id),
    )


def lacking(job: Job, wait: Wait) -> Told:
    """What must come before it can start."""
    said = f" (Slurm: {job.reason})" if job.reason else ""
    if not wait.seen:
        return Told(
            f"Springtide has not looked at it yet{said}",
            f"Springtide looks within {lasting(wait.every_s)} (polling.every), and starts what it "
            "needs",
        )
    if wait.short:
        return _short(wait, said)
    if wait.vain:
        return _vain(wait.vain, said)
    if wait.held_back:
        return Told(f"no more nodes of {', '.join(wait.held_back)} are started now{said}", _FREE)
    if wait.patience_s > 0:
        return Told(
            f"it may yet find room on nodes that are there{said}",
            f"Springtide starts nodes for it if it still waits in {lasting(wait.patience_s)} "
            "(polling.patience)",
        )
    return Told(
        f"Springtide has nothing more to start for it{said}",
        "Slurm starts it where there is room, when it looks for jobs next",
        _SHOW.format(job.id),
    )


def _vain(resting: Mapping[str, float], said: str) -> Told:
    left_s = min(resting.values())
    return Told(
        f"nodes of {', '.join(resting)} come up and take no jobs{said}",
        f"no more of them start; Springtide tries again in {lasting(left_s)}, or when one takes "
        "jobs",
        "`tide nodes` shows which; what they all have may be the cause: image, prolog, queue",
    )


def _short(wait: Wait, said: str) -> Told:
    """The pool has not enough nodes, or not enough of them may be up now."""
    groups = ", ".join(_pool(group, short) for group, short in wait.short.items())
    if any(short.most < short.size for short in wait.short.values()):
        then = f"{_FREE}, or the calendar allows more nodes"
        return Told(f"{groups}{said}", then, "`tide schedule show` tells what holds until when")
    key = next(iter(wait.short))
    more = f"more names in groups.{key}.nodes, and `tide apply`, make room for more nodes"
    return Told(f"{groups}{said}", _FREE, more)


def _pool(group: str, short: Short) -> str:
    if short.most < short.size:
        return f"group {group} has too few left for it of the {short.most} nodes that may be up now"
    return f"group {group} has too few left for it of its {short.size} nodes"
