"""Operations on one node go in the order they came; on others they go at once."""

import asyncio

import pytest

from springtide.turns import Turns


async def _may_go(turns: Turns, operation: int) -> bool:
    try:
        async with asyncio.timeout(0.01):
            await turns.wait(operation)
    except TimeoutError:
        return False
    return True


async def test_operations_on_different_nodes_do_not_wait() -> None:
    turns = Turns()
    turns.join(1, ["c1"])
    turns.join(2, ["c2"])
    assert await _may_go(turns, 1)
    assert await _may_go(turns, 2)


async def test_an_operation_waits_until_it_is_first_everywhere() -> None:
    turns = Turns()
    turns.join(1, ["c1"])
    turns.join(2, ["c2"])
    turns.join(3, ["c1", "c2"])
    assert not await _may_go(turns, 3)
    turns.leave(1)
    assert not await _may_go(turns, 3)
    assert turns.holders(3) == {"c2": 2}
    turns.leave(2)
    assert await _may_go(turns, 3)


async def test_a_later_operation_does_not_overtake_one_that_waits() -> None:
    turns = Turns()
    turns.join(1, ["c1"])
    turns.join(2, ["c1", "c2"])
    turns.join(3, ["c2"])
    assert not await _may_go(turns, 3)
    assert turns.ahead("c2") == 3
    assert turns.ahead("c9") is None


async def test_one_that_gives_up_in_the_middle_lets_others_pass() -> None:
    turns = Turns()
    turns.join(1, ["c1"])
    turns.join(2, ["c1"])
    turns.join(3, ["c1"])
    turns.leave(2)
    assert not await _may_go(turns, 3)
    turns.leave(1)
    assert await _may_go(turns, 3)


@pytest.mark.parametrize("names", [[], ["c1"]])
async def test_a_free_claim_goes_at_once(names: list[str]) -> None:
    turns = Turns()
    turns.join(1, names)
    assert await _may_go(turns, 1)
