"""What every provider must do with images: rebuild or refuse to, snapshots. See `Conformance`."""

from dataclasses import replace

import pytest

from springtide.ports import Instance, Rejected
from tests.providers.world import (
    BLUE,
    GREEN,
    World,
    delete_until_gone,
    heard,
    instances,
    key,
    launch,
    prepared,
    running,
    saying,
)


class Images:
    """The contract of `rebuild`, `snapshot`, `images` and `forget`."""

    async def test_an_instance_is_rebuilt_in_place_or_another_one_is_made(
        self, world: World
    ) -> None:
        provider = await prepared(world, BLUE)
        first = instances(await provider.create([saying(world, "n0", "first")]))
        await running(provider, BLUE, 1)
        wanted = replace(saying(world, "n0", "second"), image=world.other_image or world.image)
        answer = (await provider.rebuild([wanted]))["n0"]
        if provider.in_place:
            assert isinstance(answer, Instance)
            assert key(answer)[:3] == key(first[0])[:3]
            (after,) = await running(provider, BLUE, 1)
            assert (after.id, after.image) == (first[0].id, wanted.image)
            await heard(world, "second", ["n0"])
            return
        assert isinstance(answer, Rejected)
        await delete_until_gone(provider, BLUE)
        (made,) = instances(await provider.create([replace(wanted, generation=2)]))
        (after,) = await running(provider, BLUE, 1)
        assert made.id == after.id != first[0].id
        assert after.image == wanted.image

    async def test_what_is_not_there_is_not_rebuilt(self, world: World) -> None:
        provider = await prepared(world, BLUE)
        answer = (await provider.rebuild([launch(world, BLUE, "n0")]))["n0"]
        assert isinstance(answer, Rejected)
        assert await provider.list(BLUE) == []

    async def test_an_image_of_an_instance_is_made_once_listed_and_forgotten(
        self, world: World
    ) -> None:
        provider = await prepared(world, BLUE)
        await provider.create([launch(world, BLUE, "n0")])
        (instance,) = await running(provider, BLUE, 1)
        assert await provider.images(BLUE) == [] or await provider.images(BLUE) == ()
        if not world.snapshots:
            with pytest.raises(Rejected):
                await provider.snapshot(instance, "golden-1")
            return
        image = await provider.snapshot(instance, "golden-1")
        again = await provider.snapshot(instance, "golden-1")
        assert (image.id, image.name, image.cluster) == (again.id, "golden-1", BLUE)
        assert [one.id for one in await provider.images(BLUE)] == [image.id]
        assert list(await provider.images(GREEN)) == []
        await provider.forget(image)
        await provider.forget(image)
        assert list(await provider.images(BLUE)) == []

    async def test_flavors_have_cpus_and_memory(self, world: World) -> None:
        for name, flavor in (await world.open(BLUE).flavors()).items():
            assert flavor.name == name
            assert flavor.cpus >= 1
            assert flavor.memory >= 1
