"""What this client made a moment ago: EC2 may not know it yet wherever it is asked next."""

import time
from collections.abc import Iterable
from threading import Lock

VISIBLE_S = 60.0
"""What is not found later than that is gone."""


class Recent:
    """Ids of instances; the launcher adds them, who deletes asks."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._until: dict[str, float] = {}

    def add(self, ids: Iterable[str]) -> None:
        """A launch that is answered again with what it made is no new one."""
        now = time.monotonic()
        with self._lock:
            kept = {id: until for id, until in self._until.items() if until > now}
            self._until = dict.fromkeys(ids, now + VISIBLE_S) | kept

    def __contains__(self, id: str) -> bool:
        return self._until.get(id, 0.0) > time.monotonic()
