"""What every provider must do when its cloud refuses, falters or is asked for much."""

import pytest

from springtide.ports import (
    CloudError,
    Denied,
    Instance,
    NoCapacity,
    Provider,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)
from tests.providers.world import (
    BLUE,
    World,
    delete_until_gone,
    instances,
    launch,
    prepared,
    running,
    until,
)

CLASSES = (NoCapacity, QuotaExceeded, Denied, Throttled, Rejected)
FEW_CALLS = 30
"""Beyond a call for each batch: looking before, pages of lists, looking where they are."""


class Refusals:
    """The errors of a cloud as classes of ours, lost replies, and the cost of many."""

    @pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
    async def test_a_refusal_becomes_its_class_and_nothing_is_made(
        self, world: World, kind: type[CloudError]
    ) -> None:
        if world.refuse is None or kind not in world.refusals:
            pytest.skip("this cloud does not refuse launches so")
        provider = await prepared(world, BLUE)
        world.refuse(kind)
        answer = (await _create_one(provider, world))["n0"]
        assert type(answer) is kind, answer
        assert str(answer)
        assert "Traceback" not in str(answer)
        await until(provider, BLUE, lambda found: not found)
        (made,) = instances(await provider.create([launch(world, BLUE, "n0")]))
        assert [one.id for one in await running(provider, BLUE, 1)] == [made.id]

    async def test_a_cloud_that_nobody_reaches_may_be_reached_later(self, world: World) -> None:
        """A broken line is no refusal: nothing may be given up for it."""
        if world.unreached is None:
            pytest.skip("there is nothing between it and us that could break")
        there = await prepared(world, BLUE)
        made = instances(await there.create([launch(world, BLUE, "n0")]))
        provider = world.unreached()
        with pytest.raises(Transient):
            await provider.list(BLUE)
        with pytest.raises(Transient):
            await provider.create([launch(world, BLUE, "n1")])
        refused = await provider.delete(made)
        assert [type(error) for error in refused.values()] == [Transient]
        assert [one.id for one in await running(there, BLUE, 1)] == [made[0].id]

    async def test_a_throttled_list_is_an_error_and_never_an_empty_list(self, world: World) -> None:
        if world.throttle is None:
            pytest.skip("this cloud throttles nothing")
        provider = await prepared(world, BLUE)
        await provider.create([launch(world, BLUE, "n0")])
        await running(provider, BLUE, 1)
        world.throttle()
        with pytest.raises(Throttled):
            await provider.list(BLUE)
        assert len(await provider.list(BLUE)) == 1

    async def test_a_lost_reply_makes_no_second_instance(self, world: World) -> None:
        if world.lose_reply is None:
            pytest.skip("nothing can be lost between it and us")
        provider = await prepared(world, BLUE)
        wanted = [launch(world, BLUE, f"n{i}") for i in range(3)]
        world.lose_reply()
        lost = await provider.create(wanted)
        assert {type(one) for one in lost.values()} <= {Transient, Instance}
        assert any(isinstance(one, Transient) for one in lost.values())
        answers = await provider.create(wanted)
        while any(isinstance(one, Transient) for one in answers.values()):  # as the daemon does
            answers = await provider.create(wanted)
        made = instances(answers)
        assert len(made) == 3
        listed = await running(provider, BLUE, 3)
        assert {one.id for one in listed} == {one.id for one in made}

    async def test_many_cost_calls_by_the_batch_and_are_listed_on_all_pages(
        self, world: World
    ) -> None:
        if world.calls is None or not world.many:
            pytest.skip("its calls are this machine's own")
        provider = await prepared(world, BLUE)
        nodes = [f"n{i:04}" for i in range(world.many)]
        before = world.calls()
        answers = await provider.create([launch(world, BLUE, node) for node in nodes])
        asked = world.calls() - before
        assert {str(one) for one in answers.values() if isinstance(one, CloudError)} == set()
        made = instances(answers)
        assert [one.node for one in made] == nodes
        assert asked <= world.many / world.batch + FEW_CALLS
        listed = await running(provider, BLUE, world.many)
        assert [one.node for one in listed] == nodes
        assert len({one.id for one in listed}) == len({one.address for one in listed}) == world.many
        before = world.calls()
        assert await provider.delete(listed) == {}
        assert world.calls() - before <= world.many + FEW_CALLS
        await delete_until_gone(provider, BLUE)


async def _create_one(provider: Provider, world: World) -> dict[str, Instance | CloudError]:
    return dict(await provider.create([launch(world, BLUE, "n0")]))
