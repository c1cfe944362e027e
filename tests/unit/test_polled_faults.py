"""Drains, deaths and mishap of polled batch systems; and every view of a node has a rule."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide import spares
from springtide.batch.fake_queue import QueueTiming
from springtide.batch.marks import Course, Drain, Mark, Marks
from springtide.batch.polled import RESTART_S, SOMEBODY
from springtide.batch.polled_look import refusals
from springtide.batch.polled_view import shown, shown_job
from springtide.model import Node, NodeState
from springtide.ports import (
    OURS,
    BatchNode,
    Chunk,
    Health,
    Instance,
    InstanceState,
    JobState,
    Member,
    NotTaken,
    Power,
    QueueJob,
    QueueNode,
    Reading,
    Unavailable,
)
from springtide.repairs import wanted_groups
from springtide.spec import parse
from springtide.triage import RULES, Batch, Cloud, Drained, Repair, drained_view, rule_of, view
from tests.sim.queue_world import text
from tests.unit.test_polled import SITE, Bed, address, sees

pytestmark = pytest.mark.looptime


@pytest.fixture
async def bed() -> Bed:
    return Bed()


# --- drains ------------------------------------------------------------------------------------


async def test_drains_have_owners_and_reasons(bed: Bed) -> None:
    await bed.up("n1", "n2")
    await bed.polled.drain(["n1"], "disk", "ann")
    await bed.polled.drain(["n2"], "rebuild")
    one, two = await bed.node("n1"), await bed.node("n2")
    assert (one.drained, one.owner, one.reason) == (True, "ann", "disk")
    assert (two.drained, two.owner, two.reason) == (True, OURS, "springtide: rebuild")
    assert [bed.queue.node(name).reason for name in ("n1", "n2")] == ["disk", "springtide: rebuild"]


async def test_only_its_owner_ends_a_drain_or_whoever_insists(bed: Bed) -> None:
    await bed.up("n1")
    await bed.polled.drain(["n1"], "disk", "ann")
    await bed.polled.undrain(["n1"])
    await bed.polled.undrain(["n1"], "bob")
    assert (await bed.node("n1")).owner == "ann"
    await bed.polled.undrain(["n1"], None)
    assert not (await bed.node("n1")).drained
    assert not bed.queue.node("n1").drained


async def test_a_person_takes_over_a_drain_of_ours_and_not_the_other_way(bed: Bed) -> None:
    await bed.up("n1")
    await bed.polled.drain(["n1"], "rebuild")
    await bed.polled.drain(["n1"], "disk", "ann")
    await bed.polled.drain(["n1"], "rebuild")
    assert (await bed.node("n1")).owner == "ann"


async def test_a_person_who_undrains_and_drains_again_has_a_drain_of_their_own(bed: Bed) -> None:
    """With the batch system's own commands, while an operation of ours has the node drained."""
    await bed.up("n1")
    await bed.polled.drain(["n1"], "rebuild")
    await bed.queue.undrain(["n1"])
    await bed.queue.drain(["n1"], "mine")
    await bed.polled.undrain(["n1"])
    node = await bed.node("n1")
    assert (node.drained, node.owner, node.reason) == (True, SOMEBODY, "mine")


async def test_nodes_that_are_off_are_drained_from_the_moment_they_join(bed: Bed) -> None:
    await bed.polled.reload(SITE)
    await bed.polled.drain(["n1"], "disk", "ann")
    assert sees(await bed.node("n1")) is Batch.OFF
    assert (await bed.node("n1")).owner == "ann"
    await bed.up("n1")
    assert bed.queue.node("n1").drained
    assert (await bed.node("n1")).owner == "ann"


async def test_a_known_drain_holds_before_a_node_is_heard_from(bed: Bed) -> None:
    """It would get a job between its first word and the next look."""
    await bed.polled.reload(SITE)
    await bed.polled.drain(["n1", "n2"], "disk", "ann")
    await bed.polled.power_up(["n1", "n2"])
    await bed.polled.set_addresses({"n1": address("n1"), "n2": address("n2")})
    assert [bed.queue.node(n).drained for n in ("n1", "n2")] == [True, True]
    assert bed.queue.calls["drain"] == 1
    job = bed.queue.submit()
    bed.boot("n1")
    await asyncio.sleep(30)
    assert await bed.state(job.id) is JobState.WAITING
    node = await bed.node("n1")
    assert (sees(node), node.owner, node.reason) == (Batch.SERVING, "ann", "disk")


async def test_a_node_that_was_drained_by_hand_while_it_was_off_is_somebodys(bed: Bed) -> None:
    await bed.polled.reload(SITE)
    await bed.queue.drain(["n1"], "broken disk (bob)")
    node = await bed.node("n1")
    assert (sees(node), node.owner, node.reason) == (Batch.OFF, SOMEBODY, "broken disk (bob)")
    await bed.up("n1")
    node = await bed.node("n1")
    assert (sees(node), node.owner, node.reason) == (Batch.SERVING, SOMEBODY, "broken disk (bob)")


async def test_a_batch_system_that_is_not_to_be_woken_keeps_nobody_out_of_service(
    bed: Bed,
) -> None:
    async def refuses() -> None:
        raise Unavailable("Unauthorized Request")

    wake, bed.queue.wake = bed.queue.wake, refuses  # type: ignore[method-assign]
    await bed.up("n1")
    assert bed.polled.refused == {"wake": "it cannot be woken: Unauthorized Request"}
    bed.queue.wake = wake  # type: ignore[method-assign]
    await bed.up("n2")
    assert bed.polled.refused == {}


async def test_a_node_that_cannot_be_undrained_keeps_no_other_out_of_service(bed: Bed) -> None:
    await bed.polled.reload(SITE)
    await bed.polled.power_up(["n1", "n2"])
    await bed.polled.set_addresses({"n1": address("n1"), "n2": address("n2")})
    await bed.queue.drain(["n1", "n2"], "springtide: left behind")
    undrain = bed.queue.undrain

    async def picky(names: Iterable[str]) -> None:
        if "n1" in (names := list(names)):
            raise Unavailable("not n1")
        await undrain(names)

    bed.queue.undrain = picky  # type: ignore[method-assign]
    for name in ("n1", "n2"):
        bed.boot(name)
    await asyncio.sleep(3)
    assert [sees(await bed.node(n)) for n in ("n1", "n2")] == [Batch.WANTED, Batch.SERVING]
    assert bed.polled.refused == {"undrain": "undrain of n1: not n1"}
    bed.queue.undrain = undrain  # type: ignore[method-assign]
    assert sees(await bed.node("n1")) is Batch.SERVING
    assert bed.polled.refused == {}


async def test_a_drain_by_hand_is_somebodys_and_stays(bed: Bed) -> None:
    await bed.up("n1")
    await bed.queue.drain(["n1"], "by hand")
    node = await bed.node("n1")
    assert (node.drained, node.owner, node.reason) == (True, SOMEBODY, "by hand")
    await bed.polled.undrain(["n1"])
    assert bed.queue.node("n1").drained
    await bed.polled.undrain(["n1"], None)
    assert not bed.queue.node("n1").drained


@pytest.mark.parametrize("reason", ["by hand", ""], ids=["reasons kept", "no reasons kept"])
async def test_a_drain_by_hand_comes_back_with_its_node(bed: Bed, reason: str) -> None:
    await bed.up("n1")
    await bed.queue.drain(["n1"], reason)
    await bed.polled.power_down(["n1"])
    await bed.polled.depart(["n1"])
    bed.die("n1", deleted=True)
    await bed.polled.release(["n1"])
    node = await bed.node("n1")
    assert (sees(node), node.drained, node.owner) == (Batch.OFF, True, SOMEBODY)
    await bed.up("n1")
    assert bed.queue.node("n1").drained
    assert (await bed.node("n1")).owner == SOMEBODY


@pytest.mark.parametrize("reason", ["by hand", ""], ids=["with words", "without"])
async def test_a_drain_by_hand_of_a_node_that_joins_holds_when_it_arrives(
    bed: Bed, reason: str
) -> None:
    await bed.polled.reload(SITE)
    await bed.polled.power_up(["n1"])
    await bed.polled.set_addresses({"n1": address("n1")})
    await bed.queue.drain(["n1"], reason)
    assert (await bed.node("n1")).owner == SOMEBODY
    job = bed.queue.submit()
    bed.boot("n1")
    await asyncio.sleep(30)
    node = await bed.node("n1")
    assert (sees(node), node.owner, node.reason) == (Batch.SERVING, SOMEBODY, reason)
    assert await bed.state(job.id) is JobState.WAITING
    assert bed.queue.calls["undrain"] == 0


@pytest.mark.parametrize("reason", ["by hand", ""], ids=["with words", "without"])
async def test_a_drain_by_hand_of_a_node_that_joins_comes_back_with_it(
    bed: Bed, reason: str
) -> None:
    await bed.polled.reload(SITE)
    await bed.polled.power_up(["n1"])
    await bed.polled.set_addresses({"n1": address("n1")})
    await bed.queue.drain(["n1"], reason)
    await bed.polled.power_down(["n1"])
    await bed.polled.release(["n1"])
    node = await bed.node("n1")
    assert (sees(node), node.owner) == (Batch.OFF, SOMEBODY)
    await bed.up("n1")
    assert bed.queue.node("n1").drained


@pytest.mark.parametrize("reason", ["by hand", ""], ids=["reasons kept", "no reasons kept"])
async def test_a_drain_by_hand_stays_on_a_node_that_is_called_back(bed: Bed, reason: str) -> None:
    await bed.up("n1")
    await bed.queue.drain(["n1"], reason)
    await bed.polled.power_down(["n1"])
    await bed.polled.power_up(["n1"])
    node = await bed.node("n1")
    assert (sees(node), node.owner) == (Batch.SERVING, SOMEBODY)
    assert bed.queue.node("n1").drained


async def test_a_drain_that_was_ended_by_hand_does_not_come_back(bed: Bed) -> None:
    await bed.up("n1")
    await bed.polled.drain(["n1"], "disk", "ann")
    await bed.queue.undrain(["n1"])
    assert not (await bed.node("n1")).drained
    await bed.polled.retire(["n1"])
    await bed.polled.depart(["n1"])
    bed.die("n1", deleted=True)
    await bed.polled.release(["n1"])
    assert not (await bed.node("n1")).drained


async def test_a_drain_of_ours_that_was_left_behind_is_shown_as_ours(bed: Bed) -> None:
    await bed.up("n1")
    await bed.queue.drain(["n1"], "springtide: idle, leaves")
    node = await bed.node("n1")
    assert (node.drained, node.owner) == (True, OURS)
    await bed.polled.undrain(["n1"])
    assert not bed.queue.node("n1").drained


async def test_a_person_who_drains_an_idle_node_that_leaves_keeps_it(bed: Bed) -> None:
    await bed.up("n1", "n2")
    await bed.polled.retire(["n1"])
    await bed.polled.power_down(["n2"])
    await bed.polled.drain(["n1", "n2"], "hands off", "ann")
    one, two = await bed.node("n1"), await bed.node("n2")
    assert (one.leaving, one.owner, bed.queue.node("n1").reason) == (False, "ann", "hands off")
    assert await bed.polled.depart(["n1"]) == {"n1": "it is not to leave"}
    assert two.leaving, "somebody wants that"


async def test_undraining_a_leaving_node_does_not_keep_it(bed: Bed) -> None:
    await bed.up("n1")
    await bed.polled.drain(["n1"], "disk", "ann")
    await bed.polled.power_down(["n1"])
    await bed.polled.undrain(["n1"], "ann")
    assert (await bed.node("n1")).leaving
    assert bed.queue.node("n1").drained
    assert not (await bed.node("n1")).drained


# --- deaths ------------------------------------------------------------------------------------


async def test_a_node_that_is_given_back_is_off_and_its_jobs_wait_again(bed: Bed) -> None:
    await bed.up("n1", "n2")
    id = await bed.running(Chunk(count=2, cores=4))
    bed.die("n1")
    await bed.polled.give_back(["n1"], "it died")
    assert sees(await bed.node("n1")) is Batch.OFF
    assert sees(await bed.node("n2")) is Batch.SERVING
    assert await bed.state(id) is JobState.WAITING
    assert bed.queue.killed_jobs == {}


async def test_a_node_that_the_batch_system_keeps_is_not_off(bed: Bed) -> None:
    await bed.up("n1")
    await bed.running()
    requeue = bed.queue.requeue
    bed.queue.requeue = lambda jobs: bed.queue.wake()  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="keeps n1: n1: it has jobs: 1"):
        await bed.polled.give_back(["n1"], "it died")
    assert (await bed.look()).marks.course("n1") is Course.UP
    bed.queue.requeue = requeue  # type: ignore[method-assign]
    await bed.polled.give_back(["n1"], "it died")
    assert sees(await bed.node("n1")) is Batch.OFF


async def test_a_failed_node_serves_when_it_has_joined_anew(bed: Bed) -> None:
    await bed.up("n1")
    id = await bed.running()
    bed.die("n1")
    await bed.polled.fail(["n1"], "lost")
    assert await bed.state(id) is JobState.WAITING
    assert sees(await bed.node("n1")) is Batch.SILENT
    await bed.polled.set_addresses({"n1": address("n1")})
    bed.boot("n1")
    await asyncio.sleep(10)
    assert sees(await bed.node("n1")) is Batch.BUSY


async def test_a_node_that_starts_afresh_must_be_heard_from_again(bed: Bed) -> None:
    await bed.up("n1")
    await bed.polled.drain(["n1"], "rebuild")
    bed.die("n1")
    await bed.polled.expect(["n1"])
    assert await bed.health("n1") is Health.JOINING
    await asyncio.sleep(10)
    node = await bed.node("n1")
    assert (sees(node), node.registered, node.address) == (Batch.WANTED, False, address("n1"))
    bed.boot("n1")
    await asyncio.sleep(3)
    node = await bed.node("n1")
    assert (sees(node), node.drained, node.owner) == (Batch.SERVING, True, OURS)


async def test_a_job_on_an_instance_that_is_gone_waits_again(bed: Bed) -> None:
    """It got hold of the node at the last moment: the batch system believed in it."""
    await bed.up("n1")
    await bed.polled.retire(["n1"])
    await bed.queue.undrain(["n1"])
    bed.die("n1")
    id = await bed.running()
    await bed.polled.release(["n1"])
    assert sees(await bed.node("n1")) is Batch.OFF
    assert await bed.state(id) is JobState.WAITING


async def test_release_leaves_nodes_alone_that_are_wanted(bed: Bed) -> None:
    await bed.up("n1")
    await bed.polled.power_up(["n2"])
    await bed.polled.release(["n1", "n2", "n3"])
    assert [sees(await bed.node(name)) for name in ("n1", "n2", "n3")] == [
        Batch.SERVING,
        Batch.WANTED,
        Batch.OFF,
    ]


# --- rules 1 and 5 -----------------------------------------------------------------------------


async def test_what_is_down_is_believed_only_after_a_while(bed: Bed) -> None:
    """rule 5"""
    await bed.up("n1")
    bed.die("n1")
    await asyncio.sleep(bed.queue.timing.silence_s + 1)
    assert await _seen_for(bed, RESTART_S - 1) is Batch.SILENT
    await asyncio.sleep(2)
    assert sees(await bed.node("n1")) is Batch.DOWN


async def _seen_for(bed: Bed, seconds: float) -> Batch:
    """What n1 was seen as at the end of so long a time, in which it was looked at as usual."""
    await bed.look()
    for _ in range(10):
        await asyncio.sleep(seconds / 10)
        await bed.look()
    return sees(await bed.node("n1"))


@pytest.mark.parametrize("jump_s", [-86_400.0, 3_600.0, 86_400.0])
async def test_a_clock_that_jumps_is_no_evidence_that_a_node_is_down(jump_s: float) -> None:
    """rule 5"""
    bed = Bed(QueueTiming(deaf_s=10 * RESTART_S))
    await bed.up("n1")
    await bed.running()
    jumped_s, time = 0.0, asyncio.get_running_loop().time
    bed.polled._now = lambda: time() + jumped_s
    bed.queue.restart()
    assert await _seen_for(bed, 20) is Batch.SILENT
    jumped_s = jump_s
    assert sees(await bed.node("n1")) is Batch.SILENT
    assert await _seen_for(bed, 20) is Batch.SILENT
    assert await _seen_for(bed, RESTART_S) is Batch.DOWN


async def test_a_time_without_a_look_is_little_evidence_that_a_node_is_down(bed: Bed) -> None:
    """rule 5: between two looks it may have been restarted twice."""
    await bed.up("n1")
    bed.die("n1")
    await asyncio.sleep(bed.queue.timing.silence_s + 1)
    assert sees(await bed.node("n1")) is Batch.SILENT
    await asyncio.sleep(10 * RESTART_S)
    assert sees(await bed.node("n1")) is Batch.SILENT


async def test_a_restart_that_nobody_noticed_is_no_evidence() -> None:
    """rule 5"""
    bed = Bed(QueueTiming(deaf_s=RESTART_S - 10))
    await bed.up("n1", "n2")
    id = await bed.running()
    await asyncio.sleep(10 * RESTART_S)
    bed.queue.restart()
    for _ in range(int(RESTART_S) - 10):
        seen = {sees(await bed.node(name)) for name in ("n1", "n2")}
        assert seen == {Batch.SILENT}
        await asyncio.sleep(1)
    assert [sees(await bed.node(name)) for name in ("n1", "n2")] == [Batch.BUSY, Batch.SERVING]
    assert await bed.state(id) is JobState.RUNNING


async def test_time_that_it_was_away_does_not_count(bed: Bed) -> None:
    """rule 5"""
    await bed.up("n1")
    bed.die("n1")
    await asyncio.sleep(bed.queue.timing.silence_s + 1)
    assert await _seen_for(bed, RESTART_S - 1) is Batch.SILENT
    bed.queue.unavailable = True
    with pytest.raises(Unavailable):
        await bed.look()
    bed.queue.unavailable = False
    await asyncio.sleep(10)
    assert sees(await bed.node("n1")) is Batch.SILENT


async def test_a_batch_system_that_is_away_changes_no_mark(bed: Bed) -> None:
    """rule 1"""
    await bed.up("n1")
    before = (await bed.look()).marks
    bed.queue.unavailable = True
    polled = bed.polled
    for doing in (
        polled.look(),
        polled.nodes(),
        polled.jobs(),
        polled.version(),
        polled.set_addresses({"n1": "10.0.0.9"}),
        polled.power_up(["n2"]),
        polled.power_down(["n1"]),
        polled.retire(["n1"]),
        polled.depart(["n1"]),
        polled.give_back(["n1"], "x"),
        polled.fail(["n1"], "x"),
        polled.release(["n1"]),
        polled.expect(["n1"]),
        polled.drain(["n1"], "x"),
        polled.undrain(["n1"]),
        polled.reload(SITE),
        polled.stop(),
    ):
        with pytest.raises(Unavailable):
            await doing
    bed.queue.unavailable = False
    assert (await bed.look()).marks == before
    assert sees(await bed.node("n1")) is Batch.SERVING


async def test_a_wrong_name_spoils_the_command(bed: Bed) -> None:
    await bed.up("n1")
    for doing in (
        bed.polled.power_up(["n1", "x9"]),
        bed.polled.retire(["n1", "x9"]),
        bed.polled.drain(["n1", "x9"], "x"),
        bed.polled.set_addresses({"x9": "10.0.0.9"}),
    ):
        with pytest.raises(Unavailable, match="x9: no nodes of this cluster"):
            await doing
    assert sees(await bed.node("n1")) is Batch.SERVING


async def test_what_it_cannot_do_is_said(bed: Bed) -> None:
    with pytest.raises(Unavailable, match="--direct"):
        await bed.polled.reboot(["n1"], "x")
    with pytest.raises(Unavailable, match="--via jobs"):
        await bed.polled.submit_rebuilds(["n1"], None)
    await bed.polled.close()
    await bed.polled.open()


async def test_owners_of_jobs_are_told_and_jobs_are_shown(bed: Bed) -> None:
    await bed.up("n1", "n2")
    one = await bed.running(Chunk(count=2, cores=4))
    two = bed.queue.submit(held=True).id
    await bed.polled.tell(f"{one},{two}", "hello")
    assert bed.queue.told == [(one, "springtide: hello"), (two, "springtide: hello")]
    first, second = await bed.polled.jobs()
    assert (first.state, first.nodes, first.node_count) == ("RUNNING", "n[1-2]", 2)
    assert (second.state, second.node_count, second.reason) == ("PENDING", 1, "held")
    assert first.partition == "cloud"


@pytest.mark.parametrize("why", ["", "Not Running: Insufficient amount of resource: ncpus"])
def test_jobs_are_shown_as_those_that_want_nodes_or_do_not(why: str) -> None:
    """What is decided by Slurm's words about spare nodes and holds holds for others too."""
    spec = parse(text(), "x")
    job = QueueJob("1", JobState.WAITING, queues=("cloud",), reason=why)
    waits, held = shown_job(job), shown_job(replace(job, state=JobState.HELD))
    assert why in waits.reason
    assert why in held.reason
    groups = {"cloud": frozenset({"general"})}
    assert [one.id for one in spares.waiting([waits], {}, groups)] == ["1"]
    assert spares.waiting([held], {}, groups) == []
    assert wanted_groups([waits], spec) == {"general"}
    assert wanted_groups([held], spec) == frozenset()


# --- views -------------------------------------------------------------------------------------


MARKS = [None, *(Mark(course, 0.0, at) for course in Course for at in ("", "10.0.0.1"))]
DRAINS = [None, Drain(OURS, "springtide: x"), Drain("ann", "disk"), Drain(SOMEBODY, "")]
SEEN = [
    None,
    *(
        QueueNode("n1", health, frozenset({health}), drained, reason if drained else "", jobs)
        for health in Health
        for drained, reason in ((False, ""), (True, ""), (True, "springtide: x"), (True, "by hand"))
        for jobs in ((), ("7",))
    ),
]
CLOUDS: list[tuple[Instance, ...]] = [
    (),
    *(
        (Instance("i1", "sim", "n1", generation, state),)
        for generation in (1, 2)
        for state in InstanceState
    ),
]


def show(mark: Mark | None, seen: QueueNode | None, drain: Drain | None, silent: bool) -> BatchNode:
    marks = Marks({"n1": mark} if mark else {}, {"n1": drain} if drain else {})
    return shown("n1", Reading({"n1": seen} if seen else {}), marks, silent)


ALL = [show(*one) for one in product(MARKS, SEEN, DRAINS, (False, True))]


def test_views_do_not_contradict_themselves() -> None:
    for mark, seen, drain, silent in product(MARKS, SEEN, DRAINS, (False, True)):
        node = show(mark, seen, drain, silent)
        health = seen.health if seen else Health.ABSENT
        assert node.drained == (node.owner is not None)
        assert not (node.registered and health is not Health.UP)
        assert not (node.power is Power.UP and node.state == "IDLE" and node.busy)
        if node.power is Power.GOING_DOWN:
            assert not node.busy, "who deletes its instance would kill its jobs"
            assert health is not Health.UP or (seen and seen.drained), "it could get jobs"
        if seen and seen.drained and seen.reason == "by hand" and drain is None:
            assert node.owner == SOMEBODY, "also of a node that is off"


@pytest.mark.accepts("X2")
@given(
    st.sampled_from(NodeState),
    st.sampled_from(MARKS),
    st.sampled_from(SEEN),
    st.sampled_from(DRAINS),
    st.booleans(),
    st.sampled_from(CLOUDS),
)
def test_every_view_of_a_polled_node_has_a_rule(
    state: NodeState,
    mark: Mark | None,
    seen: QueueNode | None,
    drain: Drain | None,
    silent: bool,
    instances: tuple[Instance, ...],
) -> None:
    node = show(mark, seen, drain, silent)
    found = view(Node("n1", "general", state, generation=1), node, instances)
    rule = rule_of(found)
    assert rule in RULES
    if node.busy and node.registered and found[3] is Cloud.RUNNING:
        assert rule.repair not in (Repair.SUSPEND, Repair.RESUME, Repair.REPAIR) or (
            state in (NodeState.FAILED, NodeState.DELETING)
        ), "it has jobs, and runs"
    if drained_view(node) is Drained.PERSON:
        assert rule.repair is not Repair.UNDRAIN


@pytest.mark.parametrize("reason", ["springtide: is to leave", ""])
def test_nobody_mends_a_node_that_leaves_when_its_jobs_have_ended(reason: str) -> None:
    seen = QueueNode("n1", Health.UP, drained=True, reason=reason, jobs=("7",))
    node = show(Mark(Course.LEAVING, 0.0, "10.0.0.1"), seen, None, silent=False)
    runs = Instance("i1", "sim", "n1", 1, InstanceState.RUNNING)
    found = view(Node("n1", "general", NodeState.READY, generation=1), node, [runs])
    assert rule_of(found).repair is Repair.REST


def test_polled_nodes_are_seen_in_all_ways_but_those_of_slurm_alone() -> None:
    assert {sees(node) for node in ALL} == set(Batch) - {Batch.UNKNOWN, Batch.STUCK}
    assert {drained_view(node) for node in ALL} == set(Drained) - {Drained.SLURM}


async def test_one_that_is_refused_keeps_no_other_from_joining(bed: Bed) -> None:
    await bed.polled.reload(SITE)
    join = bed.queue.join

    async def picky(members: Iterable[Member]) -> None:
        members = list(members)
        if any(member.name == "n2" for member in members):
            raise Unavailable("the server knows no n2")
        await join(members)

    bed.queue.join = picky  # type: ignore[method-assign]
    with pytest.raises(NotTaken, match=r"^n2: the server knows no n2$") as refused:
        await bed.polled.set_addresses({name: address(name) for name in ("n1", "n2", "n3")})
    assert refused.value.why == {"n2": "the server knows no n2"}
    healths = [await bed.health(name) for name in ("n1", "n2", "n3")]
    assert healths == [Health.JOINING, Health.ABSENT, Health.JOINING]


class Server:
    """One that does not take some nodes, and counts what it is asked."""

    def __init__(self, *bad: str) -> None:
        self.bad = bad
        self.taken: set[str] = set()
        self.calls = 0
        self.dies_after = 10_000

    async def take(self, names: Sequence[str]) -> None:
        self.calls += 1
        await self.answers()
        if bad := [name for name in names if name in self.bad]:
            raise Unavailable(f"it knows no {', '.join(bad)}")
        self.taken.update(names)

    async def answers(self) -> None:
        if self.calls > self.dies_after:
            raise Unavailable("connection refused")


ALL_NAMES = [f"n{number}" for number in range(200)]


@given(st.sets(st.sampled_from(ALL_NAMES), max_size=15), st.integers(1, 200))
async def test_each_of_many_that_are_refused_falls_out_alone(bad: set[str], count: int) -> None:
    names, server = ALL_NAMES[:count], Server(*bad)
    refused = await refusals(names, server.take, server.answers)
    assert refused == {name: f"it knows no {name}" for name in names if name in bad}
    assert server.taken == {*names} - bad
    assert server.calls <= 1 + 2 * 8 * len(bad)


async def test_most_may_be_refused_and_the_others_are_taken_all_the_same() -> None:
    names, server = ALL_NAMES[:16], Server(*ALL_NAMES[1:16])
    refused = await refusals(names, server.take, server.answers)
    assert server.taken == {"n0"}
    assert refused == {name: f"it knows no {name}" for name in names[1:]}


async def test_a_server_that_refuses_everything_is_not_asked_of_each_node() -> None:
    server = Server(*ALL_NAMES)
    refused = await refusals(ALL_NAMES, server.take, server.answers)
    assert list(refused) == ALL_NAMES
    assert server.calls == 1 + 2 + 4 + 8 + 16


async def test_a_server_that_dies_meanwhile_is_asked_no_more() -> None:
    server = Server("n7")
    server.dies_after = 2
    refused = await refusals(ALL_NAMES, server.take, server.answers)
    assert server.calls == 3
    assert server.taken == set()
    assert refused == dict.fromkeys(ALL_NAMES[:100], "it knows no n7") | dict.fromkeys(
        ALL_NAMES[100:], "connection refused"
    )


async def test_a_server_that_says_whom_it_did_not_take_is_asked_once() -> None:
    """The others it has taken."""
    asked: list[Sequence[str]] = []

    async def take(names: Sequence[str]) -> None:
        asked.append(names)
        raise NotTaken("it keeps n2", {"n2": "job 7 is on it"})

    refused = await refusals(["n1", "n2", "n3"], take, Server().answers)
    assert (refused, len(asked)) == ({"n2": "job 7 is on it"}, 1)
