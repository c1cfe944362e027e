"""The table of all that may be wrong with a node: no hole in it, no line without a use."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide import triage
from springtide.batch.slurm_text import parse_state, power_of
from springtide.model import TRANSITIONS, Node, NodeState
from springtide.ports import ITSELF, OURS, BatchNode, Instance, InstanceState, Power
from springtide.spec import Timing
from springtide.triage import RULES, After, Batch, Cloud, Drained, Owner, Repair, Rule, rule_of

ALL = list(product(NodeState, Batch, Drained, Cloud))
TIMING = Timing()

STATES = ("IDLE", "ALLOCATED", "MIXED", "DOWN", "ERROR", "FUTURE", "UNKNOWN", "FAIL", "PLANNED")
FLAGS = [
    "CLOUD",
    "COMPLETING",
    "DRAIN",
    "DYNAMIC_NORM",
    "FAIL",
    "INVALID_REG",
    "MAINTENANCE",
    "NOT_RESPONDING",
    "PLANNED",
    "POWERED_DOWN",
    "POWERING_DOWN",
    "POWERING_UP",
    "POWER_DOWN",
    "POWER_UP",
    "REBOOT_ISSUED",
    "REBOOT_REQUESTED",
    "RESERVED",
]


@pytest.mark.accepts("X2")
def test_every_combination_has_an_owner_a_deadline_and_a_repair() -> None:
    for view in ALL:
        rule = rule_of(view)
        rests = rule.repair is Repair.REST
        assert rests == (triage.limit_s(rule.after, TIMING) is None), (view, rule.name)
        assert not (rule.owner is Owner.NOBODY and not rests), (view, rule.name)


@pytest.mark.accepts("X2")
def test_no_rule_is_hidden_by_those_before_it() -> None:
    used = {rule_of(view).name for view in ALL}
    assert [rule.name for rule in RULES if rule.name not in used] == []
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_nothing_rests_but_what_is_as_it_should_be_or_somebodys() -> None:
    at_rest = {rule_of(view).name for view in ALL if rule_of(view).repair is Repair.REST}
    assert at_rest == {"off", "in service", "down by a person", "put down", "unfit and busy"}


def test_a_node_with_jobs_is_given_up_only_if_its_provider_says_that_it_is_dead() -> None:
    for view in ALL:
        state, batch, _, cloud = view
        if (
            state is NodeState.READY
            and batch is Batch.BUSY
            and rule_of(view).repair is Repair.REPAIR
        ):
            assert cloud in (Cloud.STOPPED, Cloud.BROKEN), view


def test_a_persons_drain_is_never_undone() -> None:
    for view in ALL:
        if view[2] is Drained.PERSON:
            assert rule_of(view).repair not in (Repair.UNDRAIN,), view


def test_no_instance_stays_that_nobody_wants() -> None:
    """A node that is off by record and batch system, with an instance, is repaired."""
    for batch, drained, cloud in product((Batch.OFF, Batch.STUCK), Drained, Cloud):
        rule = rule_of((NodeState.OFF, batch, drained, cloud))
        if cloud not in (Cloud.NONE, Cloud.GOING):
            assert rule.repair is Repair.REPAIR


def test_repairs_of_the_record_are_moves_that_it_knows() -> None:
    for state, _, _, _ in (view for view in ALL if rule_of(view).repair is Repair.FORGET):
        assert NodeState.FAILED in TRANSITIONS[state]
    for state, _, _, _ in (view for view in ALL if rule_of(view).repair is Repair.RETURN):
        assert NodeState.READY in TRANSITIONS[state]
    for state, _, _, _ in (view for view in ALL if rule_of(view).repair is Repair.ADOPT):
        assert state is NodeState.READY or NodeState.READY in TRANSITIONS[state]


@pytest.mark.accepts("X2")
@given(
    st.sampled_from(STATES),
    st.sets(st.sampled_from(FLAGS)),
    st.booleans(),
    st.sampled_from([None, OURS, ITSELF, "alice"]),
    st.sampled_from(NodeState),
    st.lists(st.tuples(st.sampled_from(InstanceState), st.integers(0, 3)), max_size=3),
)
def test_whatever_slurm_and_a_cloud_may_say_there_is_a_rule(
    state: str,
    flags: set[str],
    registered: bool,
    owner: str | None,
    record: NodeState,
    instances: list[tuple[InstanceState, int]],
) -> None:
    base, marks = parse_state("+".join((state, *sorted(flags))))
    seen = BatchNode(
        "c1",
        base,
        marks,
        power_of(base, marks),
        registered,
        drained="DRAIN" in marks,
        owner=owner,
    )
    node = Node("c1", "general", record, generation=2)
    listed = [
        Instance(str(n), "blue", "c1", generation, how)
        for n, (how, generation) in enumerate(instances)
    ]
    assert isinstance(rule_of(triage.view(node, seen, listed)), Rule)


def seen(state: str, power: Power = Power.UP, **more: object) -> BatchNode:
    return BatchNode("c1", state, power=power, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("node", "view"),
    [
        (None, Batch.UNKNOWN),
        (seen("IDLE", Power.DOWN), Batch.OFF),
        (seen("DOWN", Power.DOWN), Batch.STUCK),
        (seen("IDLE", Power.DOWN, flags=frozenset({"NOT_RESPONDING"})), Batch.STUCK),
        (seen("ALLOCATED", Power.GOING_UP), Batch.WANTED),
        (seen("IDLE", registered=True), Batch.SERVING),
        (seen("MIXED", registered=True, busy=True), Batch.BUSY),
        (seen("IDLE"), Batch.SILENT),
        (seen("DOWN"), Batch.DOWN),
        (seen("IDLE", Power.GOING_DOWN), Batch.LEAVING),
    ],
)
def test_how_the_batch_system_sees_a_node(node: BatchNode | None, view: Batch) -> None:
    assert triage.batch_view(node) is view


@pytest.mark.parametrize(
    ("node", "view"),
    [
        (None, Drained.NOBODY),
        (seen("IDLE", owner="alice"), Drained.NOBODY),
        (seen("IDLE", drained=True, owner=OURS), Drained.US),
        (seen("IDLE", drained=True, owner=ITSELF), Drained.SLURM),
        (seen("IDLE", drained=True, owner="alice"), Drained.PERSON),
        (seen("DOWN", owner="alice"), Drained.PERSON),
        (seen("DOWN", owner=OURS), Drained.NOBODY),
        (seen("DOWN", owner=ITSELF), Drained.NOBODY),
    ],
)
def test_who_wants_a_node_to_take_no_jobs(node: BatchNode | None, view: Drained) -> None:
    assert triage.drained_view(node) is view


def one(generation: int, state: InstanceState = InstanceState.RUNNING) -> Instance:
    return Instance(f"i{generation}", "blue", "c1", generation, state)


@pytest.mark.parametrize(
    ("instances", "view"),
    [
        ([], Cloud.NONE),
        ([one(2)], Cloud.RUNNING),
        ([one(2, InstanceState.PENDING)], Cloud.PENDING),
        ([one(2, InstanceState.BROKEN)], Cloud.BROKEN),
        ([one(2, InstanceState.DELETING)], Cloud.GOING),
        ([one(1)], Cloud.STRANGE),
        ([one(3)], Cloud.STRANGE),
        ([one(1), one(2)], Cloud.TWINS),
        ([one(2), one(2)], Cloud.TWINS),
        ([one(1, InstanceState.DELETING), one(2)], Cloud.RUNNING),
    ],
)
def test_what_the_provider_has_for_a_node(instances: list[Instance], view: Cloud) -> None:
    assert triage.cloud_view(2, instances) is view


def test_limits_come_from_the_cluster_file() -> None:
    timing = Timing(grace=7.0, start=8.0)
    expected = {After.ALWAYS: None, After.AT_ONCE: 0.0, After.GRACE: 7.0, After.START: 8.0}
    assert {after: triage.limit_s(after, timing) for after in After} == expected
