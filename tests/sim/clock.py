"""An event loop whose clock jumps to the next timer: hours of waiting cost nothing.

`week` runs on it. looptime, on which the other simulations run, looks for outside events many
times before each jump, because there may be some in a test; here there are none.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
BEGIN_AT = 1_000_000.0
"""Late enough that whatever is zero is long ago."""


class Deaf(selectors.SelectSelector):
    """Nothing comes from outside; to wait is to move the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGIN_AT

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        self.now += max(0.0, timeout)
        return []


class JumpingLoop(asyncio.SelectorEventLoop):
    """Time passes only while nobody has anything to do."""

    def __init__(self) -> None:
        self._deaf = Deaf()
        super().__init__(self._deaf)
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._deaf.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, in no time."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main)
