"""What a container node's boot says of where its time went. Pure; for the boot timeline.

Nodes elsewhere report their phases to the daemon; container nodes say them on their console, in
seconds since this machine's start, which is theirs too.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from springtide.model import Phase

_LINE = re.compile(r"springtide: phase ([a-z]+) up ([0-9]+\.[0-9]+)")


def parse_console(node: str, generation: int, console: str, started_at: float) -> list[Phase]:
    """The phases of a boot; `started_at` is when this machine started.

    A phase lasts from the one before, the first from itself. A reboot begins the list anew.
    """
    said = list(_last_boot(console))
    ends = [(name, round(started_at + up_s, 3)) for name, up_s in said]
    took = [0.0, *(after[1] - before[1] for before, after in pairwise(ends))]
    return [
        Phase(node, generation, name, at, round(s, 3))
        for (name, at), s in zip(ends, took, strict=False)
    ]


def _last_boot(console: str) -> Iterator[tuple[str, float]]:
    found = [(match[1], float(match[2])) for match in _LINE.finditer(console)]
    starts = [index for index, (name, _) in enumerate(found) if name == "started"]
    yield from found[starts[-1] :] if starts else ()
