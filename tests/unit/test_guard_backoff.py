"""What all calls of a provider share: who waits when it throttles, how long, and who is told."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.guard import LIMIT_S, TRIES, Guard, Tally, decide_pause_s
from springtide.ports import CloudError, Instance, Throttled
from springtide.providers.fake import FakeCloud, FakeProvider, Faults
from tests.unit.guard_world import (
    BROKEN,
    BUSY,
    KINDS,
    Cloud,
    guarded,
    launches,
    now,
    peopled,
    throttled,
)

pytestmark = pytest.mark.looptime


@pytest.mark.accepts("C11", "X4")
async def test_all_other_calls_wait_while_one_is_throttled() -> None:
    cloud = peopled(*[BUSY] * 4)
    guard = guarded(cloud)
    first = asyncio.create_task(guard.list("blue"))
    await asyncio.sleep(0.01)
    assert len(cloud.seen) == 1
    others = [asyncio.create_task(_ignoring(call(guard))) for call in KINDS.values()]
    await asyncio.gather(first, *others)
    times = sorted({at for at, _ in cloud.seen})
    assert len(times) == 3, "1 was refused alone, 3 with others after a pause, then all passed"
    assert len(cloud.seen) == 1 + 8 + 3


async def _ignoring(call: Awaitable[object]) -> None:
    with suppress(CloudError):
        await call


async def test_calls_that_are_throttled_together_prolong_the_wait_once() -> None:
    together, alone = Cloud(befalls=[BUSY] * 20), Cloud(befalls=[BUSY])
    guard = guarded(together)
    await asyncio.gather(*(guard.list("blue") for _ in range(20)))
    took_s = now()
    await guarded(alone).list("blue")
    assert took_s == pytest.approx(now() - took_s)


async def test_a_broken_connection_of_one_call_holds_up_no_other() -> None:
    cloud = peopled(*[BROKEN] * 5)
    guard = guarded(cloud)
    slow = asyncio.create_task(guard.list("blue"))
    while cloud.befalls:
        await asyncio.sleep(0.1)
    at = now()
    await guard.create(launches("n1"))
    assert now() == at
    await slow


async def test_a_call_that_never_got_its_turn_says_how_long_it_waited() -> None:
    guard = Guard(_Instant(), Random(0))
    hog = asyncio.create_task(_hog(guard))
    await asyncio.sleep(0.01)
    with pytest.raises(Throttled, match=r"slow down \(waited \d+ s to try it\)"):
        await guard.prepare("blue")
    assert now() <= LIMIT_S + 1
    hog.cancel()
    with suppress(asyncio.CancelledError):
        await hog


class _Instant(FakeProvider):
    """Refuses before anybody else can run."""

    def __init__(self) -> None:
        super().__init__(FakeCloud(throttled()))

    async def list(self, cluster: str) -> Sequence[Instance]:
        raise BUSY


async def _hog(guard: Guard) -> None:
    while True:
        with suppress(Throttled):
            await guard.list("blue")


async def test_the_beginning_and_the_end_of_throttling_are_told_once_each() -> None:
    told: list[tuple[str, str]] = []
    cloud = Cloud(befalls=[BUSY] * 12)
    guard = Guard(FakeProvider(cloud), Random(2), lambda what, detail: told.append((what, detail)))
    await asyncio.gather(*(guard.list("blue") for _ in range(3)))
    await guard.list("blue")
    (begun, why), (ended, how) = told
    assert (begun, why) == ("provider throttled", "all calls to it wait: 429: slow down")
    assert ended == "provider throttled no more"
    assert "4 pauses" in how


async def test_a_call_made_before_the_throttling_does_not_end_it() -> None:
    told: list[str] = []
    cloud = peopled()
    guard = Guard(FakeProvider(cloud), Random(2), lambda what, _: told.append(what))
    cloud.faults.after_s = 0.2
    before = asyncio.create_task(guard.list("blue"))
    await asyncio.sleep(0.1)
    cloud.befalls = [BUSY] * 3
    throttled_one = asyncio.create_task(guard.list("blue"))
    await before
    assert told == ["provider throttled"]
    await throttled_one
    assert told == ["provider throttled", "provider throttled no more"]


async def test_calls_tries_and_times_are_counted_by_kind() -> None:
    cloud = Cloud(Faults(before_s=2, after_s=1), befalls=[BUSY, BROKEN])
    guard = guarded(cloud)
    await guard.list("blue")
    await guard.create(launches("n1"))
    waited_s = guard.tallies["list"].waited_s
    assert guard.tallies["list"] == Tally(1, 3, 1, 2 + 2 + 3, waited_s)
    assert guard.tallies["create"] == Tally(1, 1, 0, 3, 0)
    assert waited_s == pytest.approx(now() - 10)


async def test_the_same_seed_takes_the_same_course() -> None:
    courses = [await _course(7), await _course(7), await _course(8)]
    assert courses[0] == courses[1] != courses[2]


async def _course(seed: int) -> list[float]:
    cloud, began = Cloud(befalls=[BUSY] * 5 + [BROKEN] * 3), now()
    await guarded(cloud, seed).list("blue")
    return [round(at - began, 6) for at, _ in cloud.seen]


@given(st.integers(1, 5000), st.integers())
def test_pauses_have_full_jitter_below_a_growing_bound(tries: int, seed: int) -> None:
    assert 0 <= decide_pause_s(tries, Random(seed)) <= min(2 ** (tries - 1), 128)


def test_the_longest_course_of_ten_tries_takes_less_than_the_limit() -> None:
    assert sum(decide_pause_s(tries, Unlucky()) for tries in range(1, TRIES)) == 383 < LIMIT_S


class Unlucky(Random):
    def uniform(self, a: float, b: float) -> float:
        return b


def test_pauses_grow_on_average() -> None:
    random = Random(0)
    means = [sum(decide_pause_s(n, random) for _ in range(2000)) / 2000 for n in range(1, 9)]
    assert means == [pytest.approx(2 ** (n - 2), rel=0.1) for n in range(1, 9)]
