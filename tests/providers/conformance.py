"""What every provider must do, as tests. A provider's own test module subclasses `Conformance`
and gives a fixture `world`; time is the event loop's, so a virtual clock will do.

    class TestFake(Conformance):
        @pytest.fixture
        async def world(self): ...
            yield World(open=…, spoil=…, …)
"""

import asyncio
from dataclasses import replace

from springtide.ports import InstanceState, Rejected, Transient
from tests.providers.conformance_images import Images
from tests.providers.conformance_reboot import Reboots
from tests.providers.conformance_refusals import Refusals
from tests.providers.world import (
    BLUE,
    GREEN,
    World,
    born,
    cancelled_after,
    delete_until_gone,
    instances,
    launch,
    prepared,
    remove_until_gone,
    running,
    until,
)


class Conformance(Reboots, Images, Refusals):
    """The contract of `ports.Provider`."""

    async def test_each_node_gets_an_instance_of_its_own(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        launches = [launch(world, BLUE, f"n{i}") for i in range(4)]
        made = instances(await provider.create(launches))
        assert {one.node for one in made} == {"n0", "n1", "n2", "n3"}
        assert {(one.cluster, one.generation) for one in made} == {(BLUE, 1)}
        assert len({one.id for one in made}) == 4
        listed = await running(provider, BLUE, 4)
        assert {one.id for one in listed} == {one.id for one in made}
        assert {(one.image, one.flavor) for one in listed} == {(world.image, world.flavor)}

    async def test_addresses_are_unique(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        await provider.create([launch(world, BLUE, f"n{i}") for i in range(5)])
        addresses = {one.address for one in await running(provider, BLUE, 5)}
        assert None not in addresses
        assert len(addresses) == 5

    async def test_one_refused_node_does_not_stop_the_others(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        launches = [launch(world, BLUE, f"n{i}") for i in range(4)]
        launches[2] = world.spoil(launches[2])
        answers = await provider.create(launches)
        assert isinstance(answers["n2"], Rejected)
        assert str(answers["n2"])
        assert len(instances(answers)) == 3
        assert {one.node for one in await running(provider, BLUE, 3)} == {"n0", "n1", "n3"}

    async def test_no_launches_make_no_instances(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        assert await provider.create([]) == {}
        assert await provider.reboot([]) == {}
        assert await provider.delete([]) == {}
        assert await provider.list(BLUE) == []

    async def test_the_same_launch_again_makes_no_second_one(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        wanted = [launch(world, BLUE, "n0"), launch(world, BLUE, "n1")]
        first = instances(await provider.create(wanted))
        again = instances(await provider.create(wanted))
        assert [born(one) for one in first] == [born(one) for one in again]
        assert len(await running(provider, BLUE, 2)) == 2

    async def test_the_same_launch_at_once_makes_no_second_one(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        wanted = [launch(world, BLUE, "n0")]
        answers = await asyncio.gather(*(provider.create(wanted) for _ in range(4)))
        assert len({born(one) for answer in answers for one in instances(answer)}) == 1
        assert len(await running(provider, BLUE, 1)) == 1

    async def test_another_client_finds_the_instances(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        made = instances(await provider.create([launch(world, BLUE, "n0")]))
        await provider.close()
        other = world.open(BLUE)
        assert [born(one) for one in await running(other, BLUE, 1)] == [born(one) for one in made]
        assert instances(await other.create([launch(world, BLUE, "n0")]))[0].id == made[0].id
        await delete_until_gone(other, BLUE)
        await other.close()

    async def test_deleted_instances_go_and_the_others_stay(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        await provider.create([launch(world, BLUE, f"n{i}") for i in range(3)])
        listed = await running(provider, BLUE, 3)
        going = [one for one in listed if one.node != "n1"]
        assert await provider.delete(going) == {}
        (left,) = await until(provider, BLUE, lambda found: len(found) == 1)
        assert (left.node, left.state) == ("n1", InstanceState.RUNNING)

    async def test_deleting_twice_is_fine(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        made = instances(await provider.create([launch(world, BLUE, "n0")]))
        assert await provider.delete(made) == {}
        assert await provider.delete(made) == {}
        await delete_until_gone(provider, BLUE)
        assert await provider.delete(made) == {}

    async def test_deleting_what_never_was_is_fine(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        made = instances(await provider.create([launch(world, BLUE, "n0")]))
        ghost = replace(made[0], id=f"{BLUE}.ghost.1", node="ghost")
        assert await provider.delete([ghost]) == {}
        assert len(await running(provider, BLUE, 1)) == 1

    async def test_a_new_generation_waits_until_the_old_instance_is_gone(
        self, world: World
    ) -> None:
        provider = await prepared(world, BLUE)
        old = instances(await provider.create([launch(world, BLUE, "n0", 1)]))
        answer = (await provider.create([launch(world, BLUE, "n0", 2)]))["n0"]
        assert isinstance(answer, Transient)
        assert "still" in str(answer)
        await delete_until_gone(provider, BLUE)
        new = instances(await provider.create([launch(world, BLUE, "n0", 2)]))
        assert new[0].generation == 2
        assert new[0].id != old[0].id

    async def test_a_late_delete_of_the_old_generation_spares_the_new(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        old = instances(await provider.create([launch(world, BLUE, "n0", 1)]))
        await delete_until_gone(provider, BLUE)
        new = instances(await provider.create([launch(world, BLUE, "n0", 2)]))
        assert await provider.delete(old) == {}
        assert [one.id for one in await running(provider, BLUE, 1)] == [new[0].id]

    async def test_clusters_with_the_same_node_names_do_not_touch_each_other(
        self, world: World
    ) -> None:
        blue, green = await prepared(world, BLUE), await prepared(world, GREEN)
        await blue.create([launch(world, BLUE, "n0"), launch(world, BLUE, "n1")])
        await green.create([launch(world, GREEN, "n0"), launch(world, GREEN, "n1")])
        greens = await running(green, GREEN, 2)
        assert {one.cluster for one in await running(blue, BLUE, 2)} == {BLUE}
        await delete_until_gone(blue, BLUE)
        assert await green.list(GREEN) == greens
        await blue.remove(BLUE)
        assert await green.list(GREEN) == greens

    async def test_preparing_twice_changes_nothing(self, world: World) -> None:
        provider = world.open(BLUE)
        site = await provider.prepare(BLUE)
        assert site.control_address
        await provider.create([launch(world, BLUE, "n0")])
        before = await running(provider, BLUE, 1)
        assert await provider.prepare(BLUE) == site
        assert await provider.list(BLUE) == before

    async def test_removing_the_site_removes_what_is_on_it(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        await provider.create([launch(world, BLUE, f"n{i}") for i in range(3)])
        await remove_until_gone(provider, BLUE)
        assert await provider.list(BLUE) == []
        await provider.remove(BLUE)

    async def test_a_removed_site_can_be_prepared_again(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        await provider.remove(BLUE)
        await provider.prepare(BLUE)
        await provider.create([launch(world, BLUE, "n0")])
        await running(provider, BLUE, 1)

    async def test_removing_a_site_that_never_was_is_fine(self, world: World) -> None:
        await world.open(BLUE).remove(BLUE)

    async def test_the_console_is_told_of_the_living_and_of_the_dead_and_of_no_others(
        self, world: World
    ) -> None:
        provider = await prepared(world, BLUE)
        await provider.create([launch(world, BLUE, "n0"), launch(world, BLUE, "n1")])
        there = await running(provider, BLUE, 2)
        world.kill(there[1])
        dead = InstanceState.BROKEN, InstanceState.STOPPED
        await until(provider, BLUE, lambda found: found[1].state in dead)
        ghost = replace(there[0], id=f"{BLUE}.ghost.1", node="ghost")
        said = await provider.console([*there, ghost])
        assert said.keys() == {one.id for one in there}
        assert all(len(text.encode()) <= 16 << 10 for text in said.values())
        assert await provider.console([ghost]) == {}
        assert await provider.console([]) == {}
        await delete_until_gone(provider, BLUE)
        assert await provider.console(there) == {}

    async def test_a_cancelled_create_is_completed_by_the_next(self, world: World) -> None:
        """Wherever it is interrupted: no instance is lost, none is made twice."""
        provider = await prepared(world, BLUE)
        for generation, pause_s in enumerate((0.0, 0.001, 0.01, 0.03), start=1):
            launches = [launch(world, BLUE, f"n{i}", generation) for i in range(world.several)]
            await cancelled_after(pause_s, provider.create(launches))
            made = instances(await provider.create(launches))
            assert len(made) == world.several
            listed = await running(provider, BLUE, world.several)
            assert {one.id for one in listed} == {one.id for one in made}
            await delete_until_gone(provider, BLUE)

    async def test_a_cancelled_delete_is_completed_by_the_next(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        for generation, pause_s in enumerate((0.0, 0.001, 0.01), start=1):
            launches = [launch(world, BLUE, f"n{i}", generation) for i in range(world.several)]
            made = instances(await provider.create(launches))
            await cancelled_after(pause_s, provider.delete(made))
            await delete_until_gone(provider, BLUE)
