"""Operations that take their nodes in rounds: who is in this one, and when the next begins."""

from dataclasses import replace

from springtide.model import PLANS, Kind, Operation, OperationState

STEPS = len(PLANS[Kind.REBUILD])


def _operation(*names: str) -> Operation:
    return Operation(1, Kind.REBUILD, names, OperationState.RUNNING)


def _last_step(operation: Operation) -> Operation:
    return replace(operation, next_step=STEPS - 1)


def test_nodes_left_for_later_take_no_further_steps() -> None:
    after = _operation("a", "b", "c").past({}, ["c"])
    assert after.next_step == 1
    assert after.round == ("a", "b")
    assert after.left == ("a", "b", "c")


def test_after_the_last_step_those_left_begin_again_and_the_others_are_done() -> None:
    first = _last_step(_operation("a", "b", "c").past({}, ["c"]))
    second = first.past({}, [])
    assert second.next_step == 0
    assert second.done == ("a", "b")
    assert second.round == ("c",)
    end = _last_step(second).past({}, [])
    assert end.step is None


def test_without_anybody_left_for_later_it_ends_after_one_round() -> None:
    assert _last_step(_operation("a", "b")).past({}, []).step is None


def test_nodes_that_fall_are_in_no_round() -> None:
    first = _last_step(_operation("a", "b", "c").past({"a": "no image"}, ["c"]))
    second = first.past({"b": "late"}, [])
    assert second.done == ()
    assert second.round == ("c",)
    assert second.standing == ("c",)


def test_if_all_that_were_left_fall_it_ends() -> None:
    first = _last_step(_operation("a", "b").past({}, ["b"]))
    assert first.past({"b": "gone"}, []).step is None
