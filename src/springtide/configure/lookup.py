"""Names that are looked up: that may take its time, and not everybody can wait for it."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread

from springtide.configure.programs import write

AGAIN_S = 60.0
"""What was found is looked up again after this, if somebody asks."""


class Lookup:
    """What `look` finds: addresses by names, an empty one if it cannot be found out now."""

    def __init__(self, look: Callable[[], Mapping[str, str]], path: Path) -> None:
        self._look = look
        self._path = path
        """Keeps what was found last, for a daemon that starts."""
        self._keeping = Lock()
        self._again_at = 0.0

    def __call__(self) -> Mapping[str, str]:
        """May take its time."""
        found = self._look()
        with self._keeping, suppress(OSError):  # there may be no cluster yet, or no more
            known = self._kept()
            kept = {name: address or known.get(name, "") for name, address in found.items()}
            write(self._path, json.dumps(kept), 0o644)
        return found

    def last(self) -> Mapping[str, str]:
        """What was found last, at once; if that is old, the next to ask gets what is so now."""
        if time.monotonic() >= self._again_at:
            self._again_at = time.monotonic() + AGAIN_S
            Thread(target=self, name="lookup", daemon=True).start()
        return self._kept()

    def _kept(self) -> dict[str, str]:
        try:
            return dict(json.loads(self._path.read_text()))
        except (OSError, ValueError):
            return {}
