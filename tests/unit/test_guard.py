"""The guard in front of a provider, on virtual time: what is tried again, how often, for whom."""

import asyncio
from random import Random

import pytest

from springtide.guard import LIMIT_S, TRIES, Guard
from springtide.ports import (
    CloudError,
    Denied,
    Instance,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)
from springtide.providers.fake import FakeProvider, Faults
from tests.unit.guard_world import (
    BROKEN,
    BUSY,
    KINDS,
    Asked,
    Cloud,
    guarded,
    launches,
    now,
    peopled,
    throttled,
)

pytestmark = pytest.mark.looptime
any_call = pytest.mark.parametrize("kind", KINDS)


@any_call
@pytest.mark.accepts("C11")
async def test_any_call_works_after_nine_throttles(kind: str) -> None:
    cloud = peopled(*[BUSY] * 9)
    guard = guarded(cloud)
    await KINDS[kind](guard)
    assert [seen for _, seen in cloud.seen] == [kind] * TRIES
    assert now() <= LIMIT_S
    assert guard.tallies[kind].throttles == 9


@any_call
@pytest.mark.accepts("C11")
async def test_any_call_fails_with_the_reason_after_ten_throttles(kind: str) -> None:
    cloud = peopled(*[BUSY] * 10)
    with pytest.raises(Throttled, match=r"429: slow down \(tried 10 times in \d+ s\)"):
        await KINDS[kind](guarded(cloud))
    assert len(cloud.seen) == TRIES


@any_call
async def test_any_call_is_tried_again_after_a_broken_connection(kind: str) -> None:
    cloud = peopled(BROKEN, BROKEN)
    await KINDS[kind](guarded(cloud))
    assert len(cloud.seen) == 3


@any_call
@pytest.mark.parametrize("error", [NoCapacity, QuotaExceeded, Denied, Rejected])
@pytest.mark.accepts("X4")
async def test_what_would_not_come_out_otherwise_is_never_tried_again(
    kind: str, error: type[CloudError]
) -> None:
    cloud = peopled(error("no"))
    with pytest.raises(error, match=r"^no$"):
        await KINDS[kind](guarded(cloud))
    assert len(cloud.seen) == 1
    assert now() == 0


@pytest.mark.accepts("C11")
async def test_slow_calls_are_given_up_after_ten_minutes_whatever_their_number() -> None:
    cloud = Cloud(Faults(before_s=100, throttled_until=1e9))
    with pytest.raises(Throttled, match=r"tried [4-6] times in"):
        await guarded(cloud).list("blue")
    assert now() <= LIMIT_S + 100


@pytest.mark.parametrize("error", [BUSY, BROKEN])
async def test_a_guard_with_less_patience_gives_up_earlier(error: Transient) -> None:
    cloud = Cloud(befalls=[error] * TRIES)
    with pytest.raises(type(error), match=r"tried [2-9] times"):
        await Guard(FakeProvider(cloud), Random(0), limit_s=20).list("blue")
    assert now() <= 20


async def test_slow_broken_calls_are_given_up_after_ten_minutes_too() -> None:
    cloud = Cloud(Faults(before_s=100), befalls=[BROKEN] * 10)
    with pytest.raises(Transient, match=r"connection reset \(tried [4-6] times in"):
        await guarded(cloud).list("blue")
    assert now() <= LIMIT_S + 100


async def test_final_answers_do_not_wait_for_nodes_that_may_come_out_otherwise() -> None:
    cloud = Cloud(capacity={("zone-1", "small"): 2})
    cloud.faults.refused_nodes = {"n2": BROKEN, "n3": Denied("not you")}
    provider = Asked(cloud)
    answers = await Guard(provider, Random(1)).create(launches("n1", "n2", "n3"))
    assert isinstance(answers["n1"], Instance)
    assert isinstance(answers["n2"], Transient)
    assert isinstance(answers["n3"], Denied)
    assert provider.asked == [["n1", "n2", "n3"]]


async def test_a_node_that_is_throttled_makes_others_wait() -> None:
    cloud = Cloud()
    cloud.faults.refused_nodes = {"n2": BUSY}
    provider = Asked(cloud)
    guard = Guard(provider, Random(1))
    answers = await guard.create(launches("n1", "n2"))
    assert isinstance(answers["n1"], Instance)
    assert isinstance(answers["n2"], Throttled)
    cloud.faults.refused_nodes = {}
    await guard.list("blue")
    assert now() > 0.01


async def test_a_node_waits_for_its_namesake_to_terminate_and_no_other_call_does() -> None:
    cloud = Cloud(Faults(delete_s=30))
    guard = guarded(cloud)
    await guard.create(launches("n1"))
    await guard.delete(cloud.alive())
    task = asyncio.create_task(guard.create(launches("n1", generation=2)))
    await asyncio.sleep(1)
    await guard.list("blue")
    assert now() == 1
    answers = await task
    assert now() >= 30
    assert all(isinstance(answer, Instance) for answer in answers.values())
    assert cloud.duplicates() == []


async def test_refused_deletes_are_answered_beside_those_that_were_done() -> None:
    cloud = Cloud(Faults(delete_s=1000, refused_deletes=0.5))
    for launch in launches("n1", "n2", "n3", "n4", "n5"):
        cloud.start(launch)
    refused = await guarded(cloud).delete(cloud.alive())
    assert 0 < len(refused) < 5
    staying = {one.id for one in cloud.alive() if one.state != "deleting"}
    assert refused.keys() == staying


async def test_instances_that_cannot_be_deleted_are_answered_with_how_often_it_was_tried() -> None:
    cloud = Cloud(Faults(refused_deletes=1))
    instance = cloud.start(launches("n1")[0])
    answers = await guarded(cloud).delete([instance])
    assert "could not delete i-000001" in str(answers[instance.id])
    assert "tried 10 times" in str(answers[instance.id])


async def test_a_lost_reply_makes_nothing_twice() -> None:
    cloud = Cloud(Faults(lost_replies=0.7, seed=3))
    answers = await guarded(cloud).create(launches("n1", "n2"))
    assert all(isinstance(answer, Instance) for answer in answers.values())
    assert len(cloud.alive()) == 2
    assert cloud.duplicates() == []


async def test_nothing_to_do_costs_no_call() -> None:
    cloud = Cloud(throttled())
    assert await guarded(cloud).create([]) == {}
    assert await guarded(cloud).delete([]) == {}
    assert cloud.seen == []


@pytest.mark.accepts("N18")
async def test_a_loop_goes_on_when_its_provider_fails_and_works_again_with_it() -> None:
    cloud = Cloud(throttled(until=2000))
    guard, course = guarded(cloud), list[str]()
    while now() < 3000:
        try:
            await guard.list("blue")
            course.append("listed")
        except CloudError as error:
            course.append(type(error).__name__)
        await asyncio.sleep(30)
    failed = course.count("Throttled")
    assert failed >= 2
    assert course == ["Throttled"] * failed + ["listed"] * (len(course) - failed)
    refused = [at for at, _ in cloud.seen if at < 2000]
    assert len(refused) <= failed * TRIES, "a loop that goes on does not hammer"


@pytest.mark.accepts("N18")
async def test_credentials_that_work_again_are_noticed_at_the_next_call() -> None:
    cloud = Cloud(Faults(denied=True))
    guard = guarded(cloud)
    for _ in range(3):
        with pytest.raises(Denied):
            await guard.list("blue")
    cloud.faults.denied = False
    assert await guard.list("blue") == []
    assert now() == 0


@pytest.mark.parametrize("after_s", [0.05, 0.5, 1.0], ids=["calling", "waiting", "calling again"])
async def test_a_cancelled_call_ends_at_once_and_leaves_the_others_to_theirs(
    after_s: float,
) -> None:
    cloud = Cloud(Faults(before_s=0.1, throttled_until=20))
    guard = guarded(cloud)
    doomed, other = (asyncio.create_task(guard.list("blue")) for _ in range(2))
    await asyncio.sleep(after_s)
    doomed.cancel()
    at = now()
    with pytest.raises(asyncio.CancelledError):
        await doomed
    assert now() == at
    assert await other == []
    assert await guard.list("blue") == []
