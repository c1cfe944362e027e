"""Ids of jobs, as batch systems write them and as people do. Pure."""

import re
from collections.abc import Iterable

JOB = re.compile(r"[0-9]{1,18}(?:_[0-9]{1,18})?")
"""Of Slurm that asks for nodes itself."""
POLLED_JOB = re.compile(
    r"[0-9]{1,18}(?:_[0-9]{1,18}|\.[0-9]{1,18}|(?:\[[0-9]{0,18}\])?(?:\.[A-Za-z0-9.-]{1,255})?)"
)
"""17, and also 17_3, 17.3, 17.server, 17[].server and 17[3].server."""

_TASK = re.compile(r"([0-9]+)(?:_[0-9]+|\.[0-9]+|\[[0-9]+\](.*))$")


def known_as(id: str, known: Iterable[str]) -> str:
    """What a job is called among those that are known; as it was asked for if it is none of them.

    People leave the server away; and tasks of an array that wait have the id of the array.
    """
    ids = list(dict.fromkeys(known))
    for wanted in (id, *_array(id)):
        if wanted in ids:
            return wanted
        short = [one for one in ids if one.startswith(f"{wanted}.") and not _TASK.match(one)]
        if len(short) == 1:
            return short[0]
    return id


def _array(task: str) -> list[str]:
    found = _TASK.match(task)
    if found is None:
        return []
    number, server = found[1], found[2]
    return [number] if server is None else [f"{number}[]{server}"]
