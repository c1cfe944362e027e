"""Work in threads: whoever is cancelled neither walks away from it nor begins more of it."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from springtide import threads


async def test_its_answer_and_its_error_are_the_callers() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert await threads.run(pool, divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await threads.run(pool, divmod, 7, 0)


async def test_who_is_cancelled_waits_until_what_began_has_ended() -> None:
    began, go = threading.Event(), threading.Event()
    done: list[str] = []

    def work(name: str) -> None:
        began.set()
        go.wait(200)
        done.append(name)

    with ThreadPoolExecutor(1) as pool:
        first = asyncio.create_task(threads.run(pool, work, "first"))
        second = asyncio.create_task(threads.run(pool, work, "second"))
        await asyncio.to_thread(began.wait, 200)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        first.cancel()
        await asyncio.wait([first], timeout=0.1)
        assert not first.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert done == ["first"]
    assert done == ["first"], "what had not begun never does"


async def test_who_is_cancelled_waits_for_all_that_began_together() -> None:
    """Not only for the first that ends, which is one that never began."""
    began, go = threading.Event(), threading.Event()
    done: list[str] = []

    def work(name: str) -> None:
        began.set()
        go.wait(200)
        done.append(name)

    with ThreadPoolExecutor(1) as pool:
        both = (threads.run(pool, work, name) for name in ("first", "second"))
        call = asyncio.create_task(threads.together(both))
        await asyncio.to_thread(began.wait, 200)
        call.cancel()
        await asyncio.wait([call], timeout=0.1)
        assert not call.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert done == ["first"]


async def test_what_is_done_together_is_answered_in_order_and_its_error_is_the_callers() -> None:
    with ThreadPoolExecutor(2) as pool:
        assert await threads.together([]) == []
        halves = (threads.run(pool, divmod, number, 2) for number in (4, 5))
        assert await threads.together(halves) == [(2, 0), (2, 1)]
        with pytest.raises(ZeroDivisionError):
            await threads.together([threads.run(pool, divmod, 7, 0)])
