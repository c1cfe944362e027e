"""What programs said, on its way from a provider's threads into the events of the cluster."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping

from springtide.providers.programs.run import Done

Note = Callable[[str, Mapping[str, str] | None, str], Awaitable[None]]
"""Keeps an event: what happened, to which nodes with what detail, or to none."""


class Notes:
    """Filled in threads, emptied by the event loop after each call."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._waiting: deque[tuple[str, Mapping[str, str] | None, str]] = deque()

    def ended(self, done: Done, nodes: Iterable[str]) -> None:
        self._waiting.append(("program ended", dict.fromkeys(nodes, done.told()), ""))

    def begun(self, command: str, nodes: Iterable[str]) -> None:
        self._waiting.append(("program started", dict.fromkeys(nodes, command), ""))

    async def keep(self) -> None:
        while self._waiting:
            await self._note(*self._waiting.popleft())
