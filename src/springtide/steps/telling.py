"""Telling the owners of jobs what befell them, in their job's comment; nobody the same twice."""

from collections.abc import Mapping, Sequence

from springtide.steps.work import Work
from springtide.story import not_yet_told

MOST = 10_000
"""Jobs of which is remembered what they were told last."""


async def tell(work: Work, letters: Mapping[str, Sequence[str]]) -> None:
    """Each letter to its jobs; raises Unavailable."""
    told = work.parts.told
    for text, jobs in not_yet_told(letters, told).items():
        await work.parts.batch.tell(",".join(jobs), text)
        told |= dict.fromkeys(jobs, text)
    for job in list(told)[:-MOST]:
        del told[job]
