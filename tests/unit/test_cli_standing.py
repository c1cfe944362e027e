"""Who has arrived, who never will, and who is on the way."""

from typing import Any

import pytest

from springtide.cli.endings import Exit
from springtide.cli.standing import TOO_LATE, Standing, decide_standing
from springtide.model import Kind


def node(name: str, state: str, reason: str = "") -> dict[str, Any]:
    return {"name": name, "state": state, "reason": reason}


def operation(id: int, nodes: str, state: str, reason: str = "", **fallen: str) -> dict[str, Any]:
    return {"id": id, "nodes": nodes, "state": state, "reason": reason, "fallen": fallen}


def resumed(nodes: list[Any], *operations: Any, settled: str = "") -> Standing:
    return decide_standing(Kind.RESUME, nodes, settled.split(), operations)


def test_nodes_wait_until_they_are_ready() -> None:
    standing = resumed([node("c1", "off"), node("c2", "booting"), node("c3", "ready")])
    assert standing.waiting == {"c1": "off", "c2": "booting"}
    assert standing.done == ("c3",)
    assert standing.render() == "1 off, 1 booting, 1 done"


def test_a_node_falls_with_the_reason_of_its_operation_while_that_still_runs() -> None:
    standing = resumed([node("c1", "deleting")], operation(1, "c[1-2]", "running", c1="full"))
    assert standing.fallen == {"c1": "full"}
    assert standing.exit is Exit.FAILED


@pytest.mark.parametrize("state", ["joining", "failed"])
def test_but_not_before_why_it_fell_has_been_found_out(state: str) -> None:
    """As long as it is not cleaned up after, its operation may learn more of it."""
    late = operation(1, "c[1-2]", "running", c1="late")
    assert resumed([node("c1", state)], late).waiting == {"c1": state}
    assert resumed([node("c1", state)], {**late, "state": "failed"}).fallen == {"c1": "late"}


def test_what_falls_out_of_a_suspend_is_not_waited_for() -> None:
    used = operation(1, "c1", "running", c1="it is in use")
    standing = decide_standing(Kind.SUSPEND, [node("c1", "joining")], [], [used])
    assert standing.fallen == {"c1": "it is in use"}


def test_a_failed_operation_takes_all_its_nodes_with_it() -> None:
    standing = resumed([node("c1", "off")], operation(1, "c1", "failed", "waited 600 s for c1"))
    assert standing.fallen == {"c1": "waited 600 s for c1"}
    cancelled = resumed([node("c1", "off")], operation(1, "c1", "cancelled", "cancelled by root"))
    assert cancelled.fallen == {"c1": "cancelled by root"}


def test_some_done_and_some_fallen_is_partly_done() -> None:
    one = operation(1, "c[1-2]", "partly done", c2="full")
    standing = resumed([node("c1", "ready"), node("c2", "off")], one)
    assert standing.exit is Exit.PARTLY


def test_a_node_that_arrived_and_was_taken_away_at_once_had_arrived() -> None:
    standing = resumed([node("c1", "deleting")], operation(1, "c1", "done"))
    assert standing.done == ("c1",)


def test_a_newer_operation_counts_more_than_an_older_one() -> None:
    first, second = operation(1, "c1", "failed", "full"), operation(2, "c1", "running")
    assert resumed([node("c1", "booting")], second, first).waiting == {"c1": "booting"}


def test_a_node_that_was_being_removed_is_not_waited_for_for_ever() -> None:
    assert resumed([node("c1", "deleting")], settled="c1").waiting
    assert resumed([node("c1", "off")], settled="c1").fallen == {"c1": TOO_LATE}


def test_suspended_nodes_are_done_when_they_are_off() -> None:
    nodes = [node("c1", "off"), node("c2", "ready")]
    standing = decide_standing(Kind.SUSPEND, nodes, ["c1"], [])
    assert (standing.done, dict(standing.waiting)) == (("c1",), {"c2": "ready"})


def test_who_still_waits_when_the_time_is_over_has_not_arrived() -> None:
    assert Standing((), {}, {"c1": "off"}).exit is Exit.FAILED
    assert Standing(("c2",), {}, {"c1": "off"}).exit is Exit.PARTLY
    assert Standing(("c2",), {}, {}).exit is Exit.DONE
