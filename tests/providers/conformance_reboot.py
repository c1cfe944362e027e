"""What every provider must do when asked to reboot. `Conformance` holds these tests."""

import asyncio
from dataclasses import replace

from springtide.ports import Instance, InstanceState, Rejected, Transient
from tests.providers.world import (
    BLUE,
    World,
    born,
    cancelled_after,
    heard,
    instances,
    key,
    launch,
    prepared,
    running,
    saying,
    until,
)


def booted_later(world: World, after: Instance, before: Instance) -> bool:
    """As far as the provider tells."""
    return after.booted_at > before.booted_at or not world.dates_boots


class Reboots:
    """The contract of `ports.Provider.reboot`."""

    async def test_a_reboot_keeps_the_instance_and_runs_the_new_user_data(
        self, world: World
    ) -> None:
        provider = await prepared(world, BLUE)
        await provider.create([saying(world, "n0", "first"), saying(world, "n1", "first")])
        before = await running(provider, BLUE, 2)
        await heard(world, "first", ["n0", "n1"])
        (made,) = instances(await provider.reboot([saying(world, "n0", "second")]))
        assert key(made) == key(before[0])
        assert provider.renews(()) == world.changes_user_data
        await heard(world, "second" if world.changes_user_data else "first", ["n0"])
        after, other = await running(provider, BLUE, 2)
        assert booted_later(world, after, before[0])
        assert before[0].booted_at == before[0].created_at
        assert replace(after, booted_at=before[0].booted_at) == before[0]
        assert (other, world.said("n1")) == (before[1], "first")

    async def test_a_node_that_is_not_there_is_not_rebooted_and_the_others_are(
        self, world: World
    ) -> None:
        provider = await prepared(world, BLUE)
        await provider.create([launch(world, BLUE, "n0"), launch(world, BLUE, "n1")])
        before = await running(provider, BLUE, 2)
        nodes = {"n0": 1, "n1": 2, "n2": 1}
        answers = await provider.reboot([launch(world, BLUE, *one) for one in nodes.items()])
        assert [type(answers[node]) for node in nodes] == [Instance, Rejected, Rejected]
        assert "n2" in str(answers["n2"])
        after = await running(provider, BLUE, 2)
        assert [one.id for one in after] == [one.id for one in before]
        assert booted_later(world, after[0], before[0])
        assert after[1] == before[1]

    async def test_a_dead_instance_is_rebooted(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        await provider.create([launch(world, BLUE, "n0")])
        (before,) = await running(provider, BLUE, 1)
        world.kill(before)
        dead = (InstanceState.BROKEN, InstanceState.STOPPED)
        await until(provider, BLUE, lambda found: found[0].state in dead)
        (made,) = instances(await provider.reboot([saying(world, "n0", "again")]))
        assert key(made) == key(before)
        if world.changes_user_data:
            await heard(world, "again", ["n0"])
        await running(provider, BLUE, 1)

    async def test_every_reboot_is_another(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        wanted = [launch(world, BLUE, "n0")]
        await provider.create(wanted)
        (before,) = await running(provider, BLUE, 1)
        answers = await asyncio.gather(*(provider.reboot(wanted) for _ in range(3)))
        assert {key(one) for answer in answers for one in instances(answer)} == {key(before)}
        (once,) = await running(provider, BLUE, 1)
        (made,) = instances(await provider.reboot(wanted))
        assert booted_later(world, made, once)
        assert booted_later(world, once, before)
        assert len(await running(provider, BLUE, 1)) == 1

    async def test_a_rebooted_instance_can_be_deleted(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        wanted = [launch(world, BLUE, "n0")]
        await provider.create(wanted)
        await running(provider, BLUE, 1)
        made = instances(await provider.reboot(wanted))
        assert await provider.delete(made) == {}
        await until(provider, BLUE, lambda found: not found)
        assert isinstance((await provider.reboot(wanted))["n0"], Rejected)
        assert await provider.list(BLUE) == []

    async def test_an_instance_can_be_deleted_while_it_reboots(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        for generation, pause_s in enumerate((0.0, 0.004, 0.02), start=1):
            number = min(4, world.several)
            wanted = [launch(world, BLUE, f"n{i}", generation) for i in range(number)]
            made = instances(await provider.create(wanted))
            rebooting = asyncio.create_task(provider.reboot(wanted))
            await asyncio.wait([rebooting], timeout=pause_s)
            assert await provider.delete(made) == {}
            for answer in (await rebooting).values():
                assert isinstance(answer, Instance | Transient | Rejected)
            await until(provider, BLUE, lambda found: not found)

    async def test_a_cancelled_reboot_is_completed_by_the_next(self, world: World) -> None:
        """Wherever it is interrupted: none is lost, none is doubled, all run the new."""
        provider = await prepared(world, BLUE)
        nodes = [f"n{i}" for i in range(world.several)]
        made = instances(await provider.create([launch(world, BLUE, node) for node in nodes]))
        for pause_s in (0.0, 0.001, 0.01, 0.03):
            await cancelled_after(
                pause_s, provider.reboot([saying(world, node, "cut") for node in nodes])
            )
            word = f"after {pause_s}"
            again = instances(await provider.reboot([saying(world, node, word) for node in nodes]))
            assert [born(one) for one in again] == [born(one) for one in made]
            if world.changes_user_data:
                await heard(world, word, nodes)
            assert len(await running(provider, BLUE, len(nodes))) == len(nodes)
