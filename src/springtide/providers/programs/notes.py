"""What programs said, on its way from a provider's threads into the events of the cluster."""

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

from springtide.nodeset import fold
from springtide.providers.programs.run import Done

Note = Callable[[str, Mapping[str, str] | None, str], Awaitable[None]]
"""Keeps an event: what happened, to which nodes with what detail, or to none."""

FEW = 8


class Notes:
    """Filled in threads, emptied by the event loop after each call."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._waiting: deque[tuple[str, Mapping[str, str] | None, str]] = deque()

    def begun(self, program: str, nodes: Collection[str]) -> None:
        """Its name alone: arguments may be secret."""
        self._add("program started", nodes, Path(program).name)

    def ended(self, done: Done, nodes: Collection[str]) -> None:
        self._add("program ended", nodes, done.told())

    def failed(self, error: Exception, nodes: Collection[str]) -> None:
        """It did not even end by itself."""
        self._add("program failed", nodes, str(error))

    def _add(self, what: str, nodes: Collection[str], detail: str) -> None:
        """For each node if they are few; what was said of many is kept once."""
        if len(nodes) <= FEW:
            self._waiting.append((what, dict.fromkeys(nodes, detail), ""))
        else:
            self._waiting.append((what, None, f"{fold(nodes)}: {detail}"))

    async def keep(self) -> None:
        while self._waiting:
            await self._note(*self._waiting.popleft())
