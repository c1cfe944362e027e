"""The two tables of the model, and what they promise."""

from itertools import pairwise

import pytest

from springtide.model import (
    PLANS,
    TRANSITIONS,
    IllegalMoveError,
    Kind,
    Node,
    NodeState,
    Operation,
    Step,
)


@pytest.mark.parametrize("kind", Kind)
def test_every_plan_is_a_subsequence_of_the_canonical_order(kind: Kind) -> None:
    order = list(Step)
    places = [order.index(step) for step in PLANS[kind]]
    assert places == sorted(set(places))


def test_every_state_has_its_edges() -> None:
    assert set(TRANSITIONS) == set(NodeState)


@pytest.mark.parametrize("state", NodeState)
def test_every_state_can_reach_off(state: NodeState) -> None:
    reached, frontier = {state}, {state}
    while frontier:
        frontier = {after for before in frontier for after in TRANSITIONS[before]} - reached
        reached |= frontier
    assert NodeState.OFF in reached


def test_the_way_up_and_down_is_in_the_graph() -> None:
    way = ["off", "requested", "booting", "joining", "ready", "deleting", "off"]
    for before, after in pairwise(way):
        assert NodeState(after) in TRANSITIONS[NodeState(before)]


def test_nothing_but_a_deletion_leads_to_off() -> None:
    leading = {state for state, after in TRANSITIONS.items() if NodeState.OFF in after}
    assert leading == {NodeState.DELETING}


def test_a_move_that_is_no_edge_is_refused() -> None:
    with pytest.raises(IllegalMoveError, match="c1 cannot go from off to joining"):
        Node("c1", "general").to(NodeState.JOINING)


def test_operations_on_the_site_claim_it() -> None:
    assert Operation(1, Kind.DEPLOY, ("c1",)).claims == ("c1", "@site")
    assert Operation(1, Kind.RESUME, ("c1",)).claims == ("c1",)
