"""Telling the owners of jobs what befell them, in their job's comment; nobody the same twice."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from springtide.batch.polled import Polled
from springtide.nodeset import fold
from springtide.ports import Job
from springtide.steps.work import Work
from springtide.story import is_for, nodes_asked, not_yet_told, voice_of

MOST = 10_000
"""Jobs of which is remembered what they were told last."""


async def tell(work: Work, letters: Mapping[str, Sequence[str]]) -> None:
    """Each letter to its jobs; raises Unavailable."""
    told, voice = work.parts.told, voice_of(work.parts.spec)
    for text, jobs in not_yet_told(letters, told).items():
        await work.parts.batch.tell(",".join(jobs), voice.say(text))
        told |= dict.fromkeys(jobs, text)
    for job in list(told)[:-MOST]:
        del told[job]


def awaiting(work: Work, jobs: Iterable[Job], fallen: Iterable[str]) -> list[Job]:
    """The jobs, with the nodes that they wait for.

    In a polled batch system they get nodes only when these are up, so it is those that the
    operation was asked for; where these may be others', only if none of them came up.
    """
    if not isinstance(work.parts.batch, Polled):
        return list(jobs)
    lost = frozenset(fallen)
    found = []
    for job in jobs:
        names, shared = nodes_asked(work.operation, job.id)
        if job.state == "PENDING" and is_for(work.operation, job.id):
            certain = not shared or lost.issuperset(names)
            found.append(replace(job, state="CONFIGURING", nodes=fold(names) if certain else ""))
    return found
