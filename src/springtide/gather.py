"""Merges a burst of calls from the batch system into few operations.

The daemon adds each request once it is on disk; when no more come for a moment, those of one
program become one call to `submit`, in the order in which they came.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby

from springtide.model import Request
from springtide.ports import StoreError

Submit = Callable[[str, Sequence[Request]], Awaitable[None]]

RETRY_S = 5.0
LONGEST = 10
"""A window that keeps being extended closes after this many of its lengths."""


class Gather:
    """A window that opens with the first request and closes when it has been quiet."""

    def __init__(self, window_s: float, submit: Submit) -> None:
        self._window_s = window_s
        self._submit = submit
        self._requests: list[Request] = []
        self._task: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()

    def add(self, request: Request) -> None:
        self._requests.append(request)
        self._heard.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._collect())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _collect(self) -> None:
        while self._requests:
            await self._quiet()
            burst, self._requests = self._requests, []
            for program, requests in groupby(burst, key=lambda request: request.program):
                await self._insist(program, list(requests))

    async def _insist(self, program: str, requests: Sequence[Request]) -> None:
        """A request that was accepted is not dropped because the record is in trouble."""
        while True:
            try:
                return await self._submit(program, requests)
            except StoreError:
                await asyncio.sleep(RETRY_S)

    async def _quiet(self) -> None:
        """Until nothing has come for a window, or it has been open for too long."""
        loop = asyncio.get_running_loop()
        end = loop.time() + LONGEST * self._window_s
        while loop.time() < end:
            self._heard.clear()
            try:
                async with asyncio.timeout(self._window_s):
                    await self._heard.wait()
            except TimeoutError:
                return
