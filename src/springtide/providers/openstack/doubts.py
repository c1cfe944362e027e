"""Nodes whose request was sent and not answered: Nova may still make them, minutes later.

Nova has no token by which it would know a request again, so another one would make the same nodes
a second time. `Launching` therefore asks for none of them for a while; whoever launches looks
first anyway, and finds them once they are there. Threads share it.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from springtide.ports import Instance, Launch

SHORTEST_S = 60.0
TIMEOUTS = 2
"""So many of the time limits that we have for each call: Nova's own calls take as long, or so."""

Key = tuple[str, str, int]


class Doubts:
    """Of one project. What it remembers goes with the process."""

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lasting_s = max(SHORTEST_S, TIMEOUTS * timeout_s)
        self._clock = clock
        self._until: dict[Key, float] = {}
        self._lock = threading.Lock()

    def add(self, launches: Iterable[Launch]) -> None:
        with self._lock:
            until = self._clock() + self._lasting_s
            self._until |= {_key(one): until for one in launches}

    def among(self, launches: Sequence[Launch]) -> list[Launch]:
        """Those of them that must not be asked for yet."""
        with self._lock:
            now = self._clock()
            self._until = {key: until for key, until in self._until.items() if until > now}
            return [one for one in launches if _key(one) in self._until]

    def settle(self, seen: Iterable[Instance]) -> None:
        """They are there after all."""
        with self._lock:
            for one in seen:
                self._until.pop(_key(one), None)


def _key(one: Launch | Instance) -> Key:
    return one.cluster, one.node, one.generation
