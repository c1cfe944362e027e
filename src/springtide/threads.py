"""Work in threads that nobody walks away from."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")


async def run(threads: Executor, work: Callable[..., T], *arguments: object) -> T:
    """Whoever is cancelled waits for its end: a change must not come after its undoing.

    What has not begun by then never does.
    """
    job = threads.submit(work, *arguments)
    running = asyncio.wrap_future(job)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if not job.cancel():
            await asyncio.wait([running])
        raise


async def together(doing: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All at once. Who is cancelled waits for all of them: `gather` would for the first only."""
    tasks = [asyncio.ensure_future(one) for one in doing]
    try:
        return await asyncio.gather(*tasks)
    finally:
        if tasks:
            await asyncio.wait(tasks)
