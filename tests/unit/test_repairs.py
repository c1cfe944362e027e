"""Which repairs a look calls for, and which of them the brakes allow."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide import repairs, service, triage
from springtide.model import Node, NodeState
from springtide.ports import BatchNode, Instance, InstanceState
from springtide.repairs import Finding, Spent, allowance, brake, findings, replaceable, within
from springtide.spec import Timing
from springtide.triage import Batch, Cloud, Drained, Repair, View

TIMING = Timing(grace=60.0)
READY, OFF = NodeState.READY, NodeState.OFF
VANISHED: View = (READY, Batch.SERVING, Drained.NOBODY, Cloud.NONE)
DEAD: View = (READY, Batch.DOWN, Drained.NOBODY, Cloud.NONE)
HUNG: View = (READY, Batch.DOWN, Drained.NOBODY, Cloud.RUNNING)
ORPHAN: View = (OFF, Batch.OFF, Drained.NOBODY, Cloud.RUNNING)
WELL: View = (READY, Batch.SERVING, Drained.NOBODY, Cloud.RUNNING)
HURT: View = (READY, Batch.BUSY, Drained.NOBODY, Cloud.STOPPED)


def found(view: View, names: Iterable[str]) -> list[Finding]:
    return [Finding(name, view, triage.rule_of(view), 0.0, 0.0) for name in names]


def names(count: int) -> list[str]:
    return [f"c{n}" for n in range(count)]


def test_what_is_well_is_no_finding() -> None:
    assert findings({"c1": WELL}, {}, TIMING, 10.0) == {}


def test_a_trouble_lasts_its_grace_and_another_begins_anew() -> None:
    first = findings({"c1": VANISHED}, {}, TIMING, 10.0)
    assert first["c1"].due_at == 70.0
    assert repairs.due(first.values(), 1e9) == {}, "nothing is done at first sight"
    again = findings({"c1": VANISHED}, first, TIMING, 40.0)
    assert again["c1"].due_at == 70.0
    assert repairs.due(again.values(), 69.0) == {}
    assert list(repairs.due(again.values(), 70.0)) == [Repair.REPAIR]
    other = findings({"c1": HUNG}, again, TIMING, 50.0)
    assert other["c1"].due_at == 110.0
    assert findings({"c1": WELL}, other, TIMING, 60.0) == {}


def test_few_running_nodes_are_given_up_at_once_and_any_number_of_dead_ones() -> None:
    most = allowance(10)
    braked = brake([*found(HUNG, names(10)), *found(DEAD, ["d1", "d2", "d3", "d4"])], most)
    assert len(braked.allowed) == 4 + 3
    assert len(braked.kept) == 7


def test_a_fifth_of_a_large_cluster_may_go_at_once() -> None:
    assert len(brake(found(HUNG, names(400)), allowance(1000)).allowed) == 200


def test_a_list_that_lost_many_nodes_which_serve_is_not_believed() -> None:
    braked = brake(found(VANISHED, names(40)), allowance(100))
    assert braked.allowed == ()
    assert len(braked.kept) == 40
    assert len(brake(found(VANISHED, names(20)), allowance(100)).allowed) == 20


def test_idle_nodes_go_before_busy_ones() -> None:
    busy: View = (READY, Batch.DOWN, Drained.NOBODY, Cloud.TWINS)
    braked = brake([*found(busy, ["b"]), *found(ORPHAN, ["o1", "o2", "o3"])], 3)
    assert len(braked.allowed) == 3


@given(
    st.lists(st.sampled_from([VANISHED, DEAD, HUNG, ORPHAN, HURT]), max_size=60),
    st.integers(0, 100),
)
def test_brakes_lose_nothing_and_never_allow_too_many_that_may_run(
    views: list[View], running: int
) -> None:
    doomed = [one for n, view in enumerate(views) for one in found(view, [f"c{n}"])]
    braked = brake(doomed, allowance(running))
    assert sorted(one.node for one in (*braked.allowed, *braked.kept)) == sorted(
        one.node for one in doomed
    )
    risky = [one for one in braked.allowed if one.view is not DEAD]
    assert len(risky) <= max(3, running // 5)


def node(**more: object) -> Node:
    return Node("c1", "general", generation=3, instance="i3", **more)  # type: ignore[arg-type]


def one(generation: int, address: str, state: InstanceState = InstanceState.RUNNING) -> Instance:
    return Instance(f"i{generation}", "blue", "c1", generation, state, address, "base", "small")


SEEN = BatchNode("c1", "IDLE", registered=True, address="10.0.0.5")


def test_a_node_is_adopted_with_the_instance_that_is_heard_from() -> None:
    move = service.adoption(node(), SEEN, [one(4, "10.0.0.4"), one(5, "10.0.0.5")])
    assert move is not None
    assert (move.after.state, move.after.generation, move.after.instance) == (READY, 5, "i5")
    assert service.adoption(node(), SEEN, [one(5, "x", InstanceState.BROKEN)]) is None


def test_the_instance_that_serves_is_never_one_too_many() -> None:
    right, other = one(3, "10.0.0.5"), one(2, "10.0.0.4")
    assert repairs.extras(node(), SEEN, [other, right]) == [other]
    assert repairs.extras(node(), None, [other, right]) == [other]
    assert repairs.extras(node(), SEEN, [one(2, "10.0.0.5")]) == []


@pytest.mark.parametrize(
    ("clock", "hours", "expected"),
    [
        ("12:00", (), True),
        ("12:00", ("22:00-06:00",), False),
        ("23:30", ("22:00-06:00",), True),
        ("05:59", ("22:00-06:00",), True),
        ("06:00", ("22:00-06:00",), False),
        ("12:30", ("22:00-06:00", "12:00-13:00"), True),
    ],
)
def test_hours_of_the_day(clock: str, hours: tuple[str, ...], expected: bool) -> None:
    hour, minute = map(int, clock.split(":"))
    assert within(hours, datetime(2026, 1, 1, hour, minute, tzinfo=UTC)) is expected


def test_a_budget_takes_idle_nodes_first_and_counts_what_is_under_way() -> None:
    drifted = ["c1", "c2", "c3", "c4"]
    assert replaceable(drifted, {"c1", "c2"}, "2", 40, 0) == ["c3", "c4"]
    assert replaceable(drifted, {"c1"}, "10%", 40, 1) == ["c2", "c3", "c4"]
    assert replaceable(drifted, (), "10%", 4, 0) == ["c1"]
    assert replaceable(drifted, (), "10%", 4, 1) == []


def test_what_was_given_up_counts_for_a_while() -> None:
    spent = Spent()
    assert spent.left(5, 100.0, 30.0) == 5
    spent.add(100.0, 3)
    assert spent.left(5, 120.0, 30.0) == 2
    assert spent.left(5, 130.0, 30.0) == 5
    spent.add(130.0, 9)
    assert spent.left(5, 131.0, 30.0) == 0


def test_a_clock_that_is_set_back_does_not_put_repairs_off() -> None:
    first = findings({"c1": VANISHED}, {}, TIMING, 1000.0)
    again = findings({"c1": VANISHED}, first, TIMING, 10.0)
    assert again["c1"].due_at == 70.0


def test_the_record_learns_which_instance_serves_and_where() -> None:
    ready, here = node(state=READY), one(3, "10.0.0.5")
    (move,) = repairs.learnt(_seen(ready, SEEN, here))
    assert (move.after.instance, move.after.address) == (here.id, "10.0.0.5")
    assert repairs.learnt(_seen(move.after, SEEN, here)) == []
    other = replace(here, id="other")
    (moved,) = repairs.learnt(_seen(move.after, SEEN, other))
    assert moved.after.instance == "other"
    elsewhere = replace(SEEN, address="10.0.0.9")
    assert repairs.learnt(_seen(move.after, elsewhere, other)) == []
    assert repairs.learnt(_seen(ready, SEEN, one(2, "10.0.0.5"))) == []
    assert repairs.learnt(_seen(ready, SEEN, here, one(3, "10.0.0.3"))) == []


def _seen(record: Node, seen: BatchNode, *instances: Instance) -> repairs.World:
    return repairs.World({"c1": record}, {"c1": seen}, {"c1": instances})


def test_who_answers_at_an_address_that_another_node_has_by_now_is_not_the_one_that_had_it() -> (
    None
):
    """Slurm asks an address whether a slurmd is there, and not whose."""

    def world(address: str, state: InstanceState) -> repairs.World:
        busy = BatchNode("c1", "ALLOCATED", registered=True, address="10.0.0.3", busy=True)
        fresh = BatchNode("c2", "IDLE", registered=True, address=address)
        other = Instance("i-2", "blue", "c2", 1, state, address)
        nodes = {name: Node(name, "general", READY, generation=1) for name in ("c1", "c2")}
        return repairs.World(nodes, {"c1": busy, "c2": fresh}, {"c1": (), "c2": (other,)})

    def rules(found: repairs.World) -> list[str]:
        return [triage.rule_of(view).name for view in found.views().values()]

    assert rules(world("10.0.0.3", InstanceState.RUNNING)) == ["vanished", "in service"]
    assert rules(world("10.0.0.4", InstanceState.RUNNING)) == ["unlisted", "in service"]
    assert rules(world("10.0.0.3", InstanceState.DELETING)) == ["unlisted", "vanished"]
