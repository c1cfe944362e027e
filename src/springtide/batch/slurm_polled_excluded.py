"""Nodes of ours that jobs of a Slurm that is read must not have (--exclude). Pure."""

from functools import lru_cache

from springtide.batch.slurm_polled_jobs import SEPARATOR, nodes_of
from springtide.batch.slurm_text import lines_of, shorten
from springtide.batch.unread import UnreadableError

EXCLUDED = f"%A{SEPARATOR}%x"
"""For squeue -o: jobs, and nodes that they must not have, which -O does not show."""


def parse_excluded(text: str, ours: frozenset[str]) -> dict[str, frozenset[str]]:
    """By JobID, of squeue in EXCLUDED; without jobs that exclude none of ours."""
    found: dict[str, frozenset[str]] = {}
    for line in filter(None, lines_of(text)):
        id, mark, names = line.partition(SEPARATOR)
        if not mark or not id.strip().isdecimal():
            raise UnreadableError(f"squeue printed {shorten(line)!r} instead of a job")
        if listed := _of_ours(names.strip(), ours):
            found[id.strip()] = listed
    return found


@lru_cache(maxsize=512)
def _of_ours(text: str, ours: frozenset[str]) -> frozenset[str]:
    """One for all jobs with the same list, at the next look too."""
    return ours.intersection(nodes_of(text))
