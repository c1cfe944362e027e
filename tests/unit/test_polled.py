"""Polled batch systems get from us what slurmctld has of power saving: over a fake Queue."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from springtide import decide
from springtide.batch.fake_queue import FakeQueue, QueueTiming
from springtide.batch.marks import Book, Course, Mark
from springtide.batch.polled import Polled
from springtide.batch.polled_look import Look
from springtide.ports import (
    BatchNode,
    BatchSystem,
    Chunk,
    Health,
    JobState,
    Member,
    Power,
    Site,
    Unavailable,
)
from springtide.steps.giving_back import give_back_closed
from springtide.triage import Batch, batch_view

pytestmark = pytest.mark.looptime

NAMES = ("n1", "n2", "n3")
SITE = Site("10.0.0.254")


@dataclass(slots=True)
class Facts:
    """The part of the record that outlives a daemon."""

    kept: dict[str, str] = field(default_factory=dict)

    async def get(self, key: str) -> str | None:
        return self.kept.get(key)

    async def put(self, key: str, value: str) -> None:
        self.kept[key] = value


class Bed:
    """A fake batch system with machines, and Polled before it."""

    def __init__(self, timing: QueueTiming | None = None) -> None:
        self.machines: dict[str, str] = {}
        self.queue = FakeQueue(self.machines.get, timing or QueueTiming())
        self.facts = Facts()
        self.polled = self.daemon()

    def daemon(self, names: tuple[str, ...] = NAMES) -> Polled:
        """One that starts, with what is on disk."""
        members = {name: Member(name, "", 4, 4096, (), ("cloud",)) for name in names}
        return Polled(self.queue, members, Book(self.facts), asyncio.get_running_loop().time)

    async def up(self, *names: str) -> None:
        """In service, as operations bring them there."""
        await self.polled.reload(SITE)
        await self.polled.power_up(names)
        await self.polled.set_addresses({name: address(name) for name in names})
        for name in names:
            self.boot(name)
        await asyncio.sleep(3)
        assert [(await self.node(name)).power for name in names] == [Power.UP] * len(names)

    def boot(self, name: str) -> None:
        self.machines[address(name)] = name
        self.queue.boot_seen(name)

    def die(self, name: str, *, deleted: bool = False) -> None:
        self.machines.pop(address(name))
        self.queue.stop_seen(name, deleted=deleted)

    async def node(self, name: str) -> BatchNode:
        return (await self.polled.nodes([name]))[name]

    async def look(self) -> Look:
        return await self.polled.look()

    async def running(self, *chunks: Chunk) -> str:
        id = self.queue.submit(*chunks).id
        await self.queue.wake()
        assert (await self.state(id)) is JobState.RUNNING
        return id

    async def state(self, id: str) -> JobState:
        return next(job.state for job in (await self.queue.read()).jobs if job.id == id)

    async def health(self, name: str) -> Health:
        return (await self.queue.read()).nodes[name].health


def address(name: str) -> str:
    return f"10.0.0.{name[1:]}"


def sees(node: BatchNode) -> Batch:
    return batch_view(node)


@pytest.fixture
async def bed() -> Bed:
    return Bed()


# --- the life of a node ------------------------------------------------------------------------


async def test_it_is_a_batch_system(bed: Bed) -> None:
    system: BatchSystem = bed.polled
    assert (await system.version(), await system.standing()) == ("fake", "")


async def test_nodes_are_off_until_they_are_wanted(bed: Bed) -> None:
    assert "knows n[1-3]" in await bed.polled.reload(SITE)
    seen = await bed.polled.nodes()
    assert {sees(node) for node in seen.values()} == {Batch.OFF}
    assert await bed.polled.reload(SITE) == "", "nothing has changed"


async def test_a_node_is_wanted_then_joins_then_serves(bed: Bed) -> None:
    await bed.polled.reload(SITE)
    await bed.polled.power_up(["n1"])
    node = await bed.node("n1")
    assert (sees(node), node.registered, node.address) == (Batch.WANTED, False, None)
    await bed.polled.set_addresses({"n1": "10.0.0.1"})
    assert await bed.health("n1") is Health.JOINING
    node = await bed.node("n1")
    assert (sees(node), node.registered, node.address) == (Batch.WANTED, False, "10.0.0.1")
    bed.boot("n1")
    await asyncio.sleep(3)
    node = await bed.node("n1")
    assert (sees(node), node.registered, node.address) == (Batch.SERVING, True, "10.0.0.1")
    await bed.running()
    assert sees(await bed.node("n1")) is Batch.BUSY


async def test_the_scheduler_is_woken_when_a_node_arrives() -> None:
    """N8: it would have looked for jobs an hour later."""
    bed = Bed(QueueTiming(turn_s=3600))
    await bed.polled.reload(SITE)
    job = bed.queue.submit()
    await bed.up("n1")
    assert await bed.state(job.id) is JobState.RUNNING


async def test_an_address_told_twice_joins_once(bed: Bed) -> None:
    await bed.up("n1")
    await bed.polled.set_addresses({"n1": "10.0.0.1"})
    assert bed.queue.calls["join"] == 1
    assert sees(await bed.node("n1")) is Batch.SERVING


async def test_another_address_joins_again(bed: Bed) -> None:
    await bed.up("n1")
    await bed.polled.set_addresses({"n1": "10.0.0.77"})
    assert sees(await bed.node("n1")) is Batch.WANTED
    assert bed.queue.node("n1").member.address == "10.0.0.77"


async def test_a_node_with_jobs_whose_join_nobody_noted_is_not_joined_again(bed: Bed) -> None:
    """A daemon died between the command and the note, and a job was faster than the next one."""
    await bed.polled.reload(SITE)
    await bed.polled.power_up(["n1", "n2"])
    await bed.queue.join([Member("n1", "10.0.0.1", 4, 4096, (), ("cloud",))])
    bed.boot("n1")
    await asyncio.sleep(3)
    id = await bed.running()
    assert sees(await bed.node("n1")) is Batch.BUSY, "whatever its mark says"
    await bed.polled.set_addresses({"n1": "10.0.0.1", "n2": "10.0.0.2"})
    node = await bed.node("n1")
    assert (sees(node), node.registered, node.address) == (Batch.BUSY, True, "10.0.0.1")
    assert await bed.health("n2") is Health.JOINING, "it does not keep others"
    assert bed.queue.node("n1").joins == 1
    bed.queue.finish(id)
    assert sees(await bed.node("n1")) is Batch.SERVING


async def test_a_busy_node_that_is_said_to_be_elsewhere_works_on(bed: Bed) -> None:
    await bed.up("n1")
    id = await bed.running()
    await bed.polled.set_addresses({"n1": "10.0.0.77"})
    node = await bed.node("n1")
    assert (sees(node), node.registered, node.address) == (Batch.BUSY, True, "10.0.0.77")
    assert bed.queue.calls["join"] == 1
    assert await bed.state(id) is JobState.RUNNING


async def test_what_was_heard_before_a_node_joined_does_not_count(bed: Bed) -> None:
    """The batch system still believes in a machine that is gone."""
    await bed.up("n1")
    bed.die("n1")
    await bed.polled.power_down(["n1"])
    await bed.facts.put("power", "{}")
    bed.polled = bed.daemon()
    await bed.polled.power_up(["n1"])
    assert await bed.health("n1") is Health.UP, "stale"
    assert sees(await bed.node("n1")) is Batch.WANTED
    await bed.polled.set_addresses({"n1": "10.0.0.1"})
    await asyncio.sleep(5)
    assert sees(await bed.node("n1")) is Batch.WANTED


async def test_a_join_that_failed_is_made_again(bed: Bed) -> None:
    await bed.polled.reload(SITE)
    await bed.polled.power_up(["n1"])
    bed.queue.forbidden = True
    with pytest.raises(Unavailable, match="no rights"):
        await bed.polled.set_addresses({"n1": "10.0.0.1"})
    bed.queue.forbidden = False
    assert sees(await bed.node("n1")) is Batch.WANTED
    await bed.up("n1")


async def test_an_idle_node_leaves_step_by_step(bed: Bed) -> None:
    await bed.up("n1", "n2")
    await bed.polled.retire(["n1"])
    node = await bed.node("n1")
    assert (sees(node), node.drained, node.leaving) == (Batch.SERVING, False, True)
    assert bed.queue.node("n1").drained
    assert await bed.polled.depart(["n1"]) == {}
    assert await bed.health("n1") is Health.ABSENT
    assert sees(await bed.node("n1")) is Batch.LEAVING, "its instance is there still"
    bed.die("n1", deleted=True)
    await bed.polled.release(["n1"])
    assert sees(await bed.node("n1")) is Batch.OFF
    assert sees(await bed.node("n2")) is Batch.SERVING
    await bed.up("n1")


async def test_a_job_that_came_a_moment_before_goes_on_to_its_end(bed: Bed) -> None:
    await bed.up("n1")
    id = await bed.running()
    await bed.polled.retire(["n1"])
    assert sees(await bed.node("n1")) is Batch.BUSY
    assert "it has jobs" in (await bed.polled.depart(["n1"]))["n1"]
    assert await bed.state(id) is JobState.RUNNING


async def test_a_busy_node_that_is_to_leave_works_on_and_then_goes(bed: Bed) -> None:
    await bed.up("n1")
    id = await bed.running()
    await bed.polled.power_down(["n1"])
    node = await bed.node("n1")
    assert (sees(node), node.drained, node.owner) == (Batch.BUSY, False, None)
    assert bed.queue.node("n1").drained
    assert "it has jobs: 1" in (await bed.polled.depart(["n1"]))["n1"]
    assert await bed.state(id) is JobState.RUNNING
    bed.queue.finish(id)
    assert sees(await bed.node("n1")) is Batch.SERVING, "the batch system has it still"
    assert await bed.polled.depart(["n1"]) == {}
    assert sees(await bed.node("n1")) is Batch.LEAVING


async def test_a_node_that_may_still_get_jobs_is_not_leaving(bed: Bed) -> None:
    """Its drain failed, or an admin ended it: whoever deletes its instance must see that."""
    await bed.up("n1")
    bed.queue.forbidden = True
    with pytest.raises(Unavailable):
        await bed.polled.retire(["n1"])
    bed.queue.forbidden = False
    assert (await bed.look()).marks.course("n1") is Course.LEAVING
    assert sees(await bed.node("n1")) is Batch.SERVING
    assert await bed.polled.depart(["n1"]) == {}, "drained first, and then forgotten"
    assert sees(await bed.node("n1")) is Batch.LEAVING


async def test_a_node_that_is_needed_while_it_leaves_stays(bed: Bed) -> None:
    await bed.up("n1")
    await bed.polled.retire(["n1"])
    job = bed.queue.submit()
    await bed.polled.power_up(["n1"])
    assert sees(await bed.node("n1")) is Batch.BUSY
    assert await bed.state(job.id) is JobState.RUNNING
    assert await bed.polled.depart(["n1"]) == {"n1": "it is not to leave"}


async def test_jobs_call_an_idle_node_back_and_none_that_a_person_sent_away(bed: Bed) -> None:
    """Whoever looked a moment ago may not know yet that it was."""
    await bed.up("n1", "n2")
    await bed.polled.retire(["n1", "n2"])
    await bed.polled.power_down(["n2"])
    assert await bed.polled.recall(["n1", "n2", "n3"]) == ["n1"]
    one, two, three = [await bed.node(name) for name in NAMES]
    assert (one.leaving, two.leaving, sees(three)) == (False, True, Batch.OFF)
    assert (await bed.look()).marks.nodes["n2"].asked
    assert bed.queue.node("n2").drained


async def test_a_busy_node_that_is_needed_while_it_leaves_stays(bed: Bed) -> None:
    await bed.up("n1")
    await bed.running()
    await bed.polled.power_down(["n1"])
    await bed.polled.power_up(["n1"])
    node = await bed.node("n1")
    assert (sees(node), node.drained, bed.queue.node("n1").drained) == (Batch.BUSY, False, False)


async def test_a_node_that_was_not_heard_from_is_forgotten_at_once(bed: Bed) -> None:
    await bed.polled.reload(SITE)
    await bed.polled.power_up(["n1"])
    await bed.polled.set_addresses({"n1": "10.0.0.1"})
    await bed.polled.power_down(["n1"])
    assert await bed.health("n1") is Health.ABSENT
    assert sees(await bed.node("n1")) is Batch.LEAVING


async def test_a_joining_node_that_could_not_be_forgotten_joins_on_if_it_is_needed(
    bed: Bed,
) -> None:
    await bed.polled.reload(SITE)
    await bed.polled.power_up(["n1"])
    await bed.polled.set_addresses({"n1": "10.0.0.1"})
    bed.queue.forbidden = True
    with pytest.raises(Unavailable):
        await bed.polled.power_down(["n1"])
    bed.queue.forbidden = False
    await bed.polled.power_up(["n1"])
    assert sees(await bed.node("n1")) is Batch.WANTED
    bed.boot("n1")
    await asyncio.sleep(3)
    assert sees(await bed.node("n1")) is Batch.SERVING


async def test_a_node_that_the_batch_system_does_not_let_go_is_up(bed: Bed) -> None:
    """N11: whoever deletes instances looks at that."""
    await bed.up("n1")

    async def stays(names: Iterable[str]) -> Mapping[str, str]:
        return dict.fromkeys(names, "somebody looks at it")

    bed.queue.leave = stays  # type: ignore[method-assign]
    await bed.polled.retire(["n1"])
    assert await bed.polled.depart(["n1"]) == {"n1": "somebody looks at it"}
    node = await bed.node("n1")
    assert (node.power, node.leaving) == (Power.UP, True)


async def test_a_node_that_the_batch_system_has_forgotten_goes_on_leaving(bed: Bed) -> None:
    await bed.up("n1")
    await bed.polled.retire(["n1"])
    await bed.polled.depart(["n1"])
    await bed.polled.power_up(["n1"])
    assert sees(await bed.node("n1")) is Batch.LEAVING


async def test_a_node_that_is_to_leave_does_not_join_any_more(bed: Bed) -> None:
    """It was let go while its instance was made."""
    await bed.polled.reload(SITE)
    await bed.polled.power_up(["n1"])
    await bed.polled.power_down(["n1"])
    await bed.polled.set_addresses({"n1": "10.0.0.1"})
    assert await bed.health("n1") is Health.ABSENT
    assert sees(await bed.node("n1")) is Batch.LEAVING


async def test_power_up_and_depart_at_once_end_well(bed: Bed) -> None:
    """Whichever is first: it serves, or it is gone; never half of each."""
    bed.queue.timing.latency_s = 0.1
    for pause_s in (0.0, 0.05, 0.15, 0.25, 0.35, 0.45):
        await bed.up("n1")
        await bed.polled.retire(["n1"])
        departing = asyncio.create_task(bed.polled.depart(["n1"]))
        await asyncio.sleep(pause_s)
        await bed.polled.power_up(["n1"])
        await departing
        look = await bed.look()
        served = look.marks.course("n1") is Course.UP
        assert (look.reading.nodes["n1"].health is Health.UP) == served, pause_s
        assert look.reading.nodes["n1"].drained is False
        await bed.polled.give_back(["n1"], "test")


# --- marks survive -----------------------------------------------------------------------------


async def test_marks_and_drains_survive_a_restart(bed: Bed) -> None:
    await bed.up("n1", "n2", "n3")
    await bed.polled.drain(["n1"], "disk", "ann")
    await bed.polled.power_down(["n2"])
    before = await bed.look()
    after = await bed.daemon().look()
    assert after.marks == before.marks
    assert after.nodes == before.nodes
    assert before.marks.nodes["n2"].asked


async def test_parts_that_are_made_anew_share_one_book(bed: Bed) -> None:
    """Another cluster file while the daemon runs."""
    members = {name: Member(name, "", 4, 4096, (), ("cloud",)) for name in NAMES}
    book = Book(bed.facts)
    old, new = (Polled(bed.queue, members, book, asyncio.get_running_loop().time) for _ in range(2))
    await old.reload(SITE)
    await old.power_up(["n1"])
    await asyncio.gather(new.power_up(["n2"]), old.power_up(["n3"]))
    assert {sees(node) for node in (await new.nodes()).values()} == {Batch.WANTED}
    assert (await Book(bed.facts).read()) == await book.read()


async def test_the_book_writes_nothing_that_is_not_new(bed: Bed) -> None:
    book = Book(bed.facts)
    await book.change(lambda marks: marks.marked({"n1": Mark(Course.UP, 1.0)}))
    bed.facts.kept.clear()
    await book.change(lambda marks: marks.marked({"n1": Mark(Course.UP, 1.0)}))
    assert bed.facts.kept == {}


async def test_nodes_that_left_the_cluster_file_are_forgotten_when_nothing_is_there(
    bed: Bed,
) -> None:
    await bed.up("n2")
    smaller = bed.daemon(("n1",))
    await smaller.reload(SITE)
    assert set((await bed.queue.read()).nodes) == {"n1", "n2"}, "n2 is there still"
    bed.polled = bed.daemon()
    await bed.polled.give_back(["n2"], "test")
    await bed.daemon(("n1",)).reload(SITE)
    assert set((await bed.queue.read()).nodes) == {"n1"}


async def test_a_stop_has_what_still_runs_wait_again_and_forgets_former_nodes(bed: Bed) -> None:
    await bed.up("n1", "n2")
    id = await bed.running(Chunk(count=2))
    smaller = bed.daemon(("n1",))
    await smaller.reload(SITE)
    await smaller.stop()
    assert (await bed.queue.read()).nodes == {}
    assert await bed.state(id) is JobState.WAITING


async def test_until_it_is_for_good_jobs_for_nodes_of_a_stopped_cluster_are_taken(bed: Bed) -> None:
    await bed.up("n1")
    id = await bed.running(Chunk(count=1))
    await bed.polled.stop(for_good=False)
    assert set((await bed.queue.read()).nodes) == set(NAMES)
    assert await bed.state(id) is JobState.WAITING
    assert {sees(await bed.node(name)) for name in NAMES} == {Batch.OFF}
    await bed.polled.stop()
    assert (await bed.queue.read()).nodes == {}


async def test_a_stop_forgets_nodes_and_keeps_whose_drains_they_were(bed: Bed) -> None:
    await bed.up("n1")
    await bed.polled.drain(["n1", "n2"], "disk", "ann")
    await bed.polled.give_back(["n1"], "test")
    await bed.polled.stop()
    assert (await bed.queue.read()).nodes == {}
    await bed.polled.reload(SITE)
    assert [(await bed.node(name)).owner for name in NAMES] == ["ann", "ann", None]
    assert sees(await bed.node("n1")) is Batch.OFF


async def test_who_comes_up_while_it_is_given_back_keeps_its_job() -> None:
    """It arrives after the first look; from then on it is closed until that is known."""
    bed = Bed()
    await bed.polled.reload(SITE)
    job = bed.queue.submit()
    await bed.polled.power_up(["n1"])
    await bed.polled.set_addresses({"n1": address("n1")})
    looks = 0

    async def look(names: Iterable[str]) -> list[str]:
        nonlocal looks
        found = decide.waited_for(names, await bed.polled.nodes(names))
        looks += 1
        if looks == 1:
            bed.boot("n1")
            await asyncio.sleep(30)
        return found

    given = await give_back_closed(bed.polled, {"n1": "it did not register"}, look)
    assert (looks, given) == (2, {})
    await asyncio.sleep(30)
    assert bed.queue.killed_jobs == {}
    assert [one.nodes for one in bed.queue.open_jobs] == [("n1",)] == [job.nodes]


async def test_what_is_given_back_is_open_when_it_starts_again() -> None:
    bed = Bed()
    await bed.polled.reload(SITE)
    await bed.polled.power_up(["n1"])
    await bed.polled.set_addresses({"n1": address("n1")})

    async def look(names: Iterable[str]) -> list[str]:
        return decide.waited_for(names, await bed.polled.nodes(names))

    assert await give_back_closed(bed.polled, {"n1": "late"}, look) == {"n1": "late"}
    (seen,) = (await bed.polled.nodes(["n1"])).values()
    assert (seen.power, seen.drained) == (Power.DOWN, False)


async def test_a_node_that_left_the_file_keeps_no_other_from_being_let_go(bed: Bed) -> None:
    await bed.up("n1")
    await bed.polled.drain(["n1"], "slow")
    await bed.polled.undrain(["gone1", "n1"])
    assert not (await bed.node("n1")).drained
    await bed.polled.power_down(["n1"])
    assert await bed.polled.depart(["n1"]) == {}
    bed.die("n1", deleted=True)
    await bed.polled.release(["gone1", "n1"])
    assert (await bed.node("n1")).power is Power.DOWN
    for act in (bed.polled.release(["gone1"]), bed.polled.undrain(["gone1"])):
        with pytest.raises(Unavailable, match="gone1: no nodes of this cluster"):
            await act


async def test_nodes_have_joined_once_the_batch_system_was_told_where_they_are(bed: Bed) -> None:
    await bed.polled.reload(SITE)
    await bed.polled.power_up(["n1", "n2"])
    assert await bed.polled.joined() == frozenset()
    await bed.polled.set_addresses({"n1": address("n1")})
    assert await bed.polled.joined() == {"n1"}


async def test_nodes_are_prepared_with_the_addresses_that_they_will_have(bed: Bed) -> None:
    seen: list[Member] = []

    class Listens(FakeQueue):
        async def prepare(self, members: Iterable[Member]) -> str:
            seen.extend(members)
            return ""

    members = {name: Member(name, "", 4, 4096, (), ("cloud",)) for name in NAMES}
    clock, queue = asyncio.get_running_loop().time, Listens(bed.machines.get)
    polled = Polled(queue, members, Book(bed.facts), clock, lambda site: {"n2": "10.0.0.2"})
    await polled.reload(SITE)
    assert [(one.name, one.address) for one in seen] == [("n1", ""), ("n2", "10.0.0.2"), ("n3", "")]
