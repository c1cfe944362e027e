"""One image, built: a machine is made from the base, works through its recipe, and becomes it.

`builds` has one for each image. Whatever happens, the machine goes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from springtide.configure.building import Recipe, decide_outcome, render_build
from springtide.images import Site
from springtide.model import MadeImage
from springtide.ports import (
    CloudError,
    CloudImage,
    Instance,
    InstanceState,
    Launch,
    NoCapacity,
    Provider,
)
from springtide.record import whole
from springtide.steps import Parts
from springtide.steps.bootlogs import consoles_of
from springtide.steps.work import insist

LIMIT_S = 4 * 3600.0
"""A build may take so long, and so may its image take to be ready."""
GONE_S = 600.0
STOP_S = 20.0
"""So long a daemon that stops waits for the machine's deletion to be taken."""
UNSEEN_S = 60.0
"""A list may lag behind so long; a machine or image that is in none for longer is gone."""
REST_S = 120.0
"""So long a machine that is done may take to switch itself off."""
FIRST_LOOK_S = 0.1
LONGEST_LOOK_S = 10.0


class NotMadeError(Exception):
    """It could not be made, for a reason that is not the provider's."""


def _nobody(text: str) -> None:
    """Hears nothing."""


def looks() -> Iterator[float]:
    """Pauses between looks: short at first, for containers take a second."""
    pause_s = FIRST_LOOK_S
    while True:
        yield pause_s
        pause_s = min(1.5 * pause_s, LONGEST_LOOK_S)


@dataclass(slots=True)
class Watch:
    """What was heard of a machine, and since when it is off, look by look."""

    provider: Provider
    said: str = ""
    """The end of it, when there last was any: some tell nothing when they are off."""
    _off_at: float | None = None

    async def look(self, found: Instance) -> float | None:
        """For how long it is off, None if it is not."""
        self.said = (await consoles_of(self.provider, [found])).get(found.id) or self.said
        now = asyncio.get_running_loop().time()
        if found.state is not InstanceState.STOPPED:
            self._off_at = None
        elif self._off_at is None:
            self._off_at = now
        return None if self._off_at is None else now - self._off_at


@dataclass(slots=True)
class Workshop:
    """Where it is made."""

    parts: Parts
    image: MadeImage
    say: Callable[[str], None] = _nobody
    log: str = ""
    """The end of what the machine said."""

    @property
    def provider(self) -> Provider:
        return self.parts.providers.get(self.image.group, self.parts.home)

    @property
    def cluster(self) -> str:
        return self.parts.spec.cluster

    async def build(self, site: Site, recipe: Recipe) -> CloudImage:
        try:
            return await self._built_and_cleared(site, recipe)
        except asyncio.CancelledError:
            await whole(self._let_go())
            raise

    async def _built_and_cleared(self, site: Site, recipe: Recipe) -> CloudImage:
        """What cannot be removed now the reconciler finds."""
        made: CloudImage | Exception
        try:
            made = await self._built(site, recipe)
        except Exception as error:
            made = error
        with suppress(CloudError):
            await self.clear(GONE_S)
        if isinstance(made, Exception):
            raise made
        return made

    async def _built(self, site: Site, recipe: Recipe) -> CloudImage:
        self.say("making the machine that it is built on")
        instance = await self._make(site, recipe)
        self.say("running its scripts")
        instance = await self._work(instance)
        return await take(self, instance)

    async def _let_go(self) -> None:
        """The daemon stops and cannot wait: the next one sees to what is left."""
        with suppress(CloudError, TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self.clear(0)

    async def _make(self, site: Site, recipe: Recipe) -> Instance:
        """Where there is room."""
        group = self.parts.spec.groups[site.group]
        places = [(flavor, zone) for flavor in site.flavors for zone in group.zones or (None,)]
        user_data = render_build(recipe, site.group in self.parts.spec.remote)
        error: CloudError = NoCapacity("there is no place to build it")
        for flavor, zone in places:
            launch = Launch(
                cluster=self.cluster,
                node=self.image.builder,
                generation=1,
                group=site.group,
                image=self.image.made_from,
                flavor=flavor,
                zone=zone,
                user_data=user_data,
            )
            answer = (await whole(self._create(launch)))[launch.node]
            if isinstance(answer, Instance):
                return answer
            error = answer
            if not isinstance(answer, NoCapacity):
                break
        raise error

    async def _create(self, launch: Launch) -> dict[str, Instance | CloudError]:
        return dict(await self.provider.create([launch]))

    async def _work(self, instance: Instance) -> Instance:
        """Until it is done: until it has said so and, if its disk is its own, is off."""
        loop, watch = asyncio.get_running_loop(), Watch(self.provider)
        end, remote = loop.time() + LIMIT_S, self.image.group in self.parts.spec.remote
        seen_at = loop.time()
        for pause_s in looks():
            found = await self.find(GONE_S)
            if found is None and loop.time() < seen_at + UNSEEN_S:
                await asyncio.sleep(pause_s)
                continue
            if found is None:
                raise NotMadeError("the machine that it was built on is gone")
            seen_at = loop.time()
            off_s = await watch.look(found)
            self.log = watch.said
            running = found.state in (InstanceState.RUNNING, InstanceState.PENDING)
            why = decide_outcome(self.image.label, self.log, running, off_s, remote)
            if why:
                raise NotMadeError(why)
            if why is not None:
                return await at_rest(partial(self.find, GONE_S), found) if remote else found
            if loop.time() > end:
                raise NotMadeError(f"it took longer than {LIMIT_S / 3600:.0f} hours")
            await asyncio.sleep(pause_s)
        raise AssertionError("looks never end")

    async def find(self, limit_s: float) -> Instance | None:
        listed = await insist(partial(self.provider.list, self.cluster), limit_s)
        return next((one for one in listed if one.node == self.image.builder), None)

    async def clear(self, limit_s: float) -> None:
        """Delete the machine until it is gone, but once at least."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        for pause_s in looks():
            found = await self.find(limit_s) if self.image.builder else None
            if found is None:
                return
            if found.state is not InstanceState.DELETING:
                await self.provider.delete([found])
            if loop.time() + pause_s > end:
                return
            await asyncio.sleep(pause_s)


async def at_rest(find: Callable[[], Awaitable[Instance | None]], found: Instance) -> Instance:
    """A machine that is done, once it is off. What one that stays up had to write is written."""
    loop = asyncio.get_running_loop()
    end = loop.time() + REST_S
    for pause_s in looks():
        if found.state is InstanceState.STOPPED or loop.time() > end:
            return found
        await asyncio.sleep(pause_s)
        found = await find() or found
    raise AssertionError("looks never end")


async def take(shop: Workshop, instance: Instance) -> CloudImage:
    """An image of an instance, once it is ready."""
    shop.say("taking the image")
    loop, label = asyncio.get_running_loop(), shop.image.label
    seen_at = loop.time()
    end = seen_at + LIMIT_S
    image: CloudImage | None = await shop.provider.snapshot(instance, label)
    for pause_s in looks():
        if image is not None and image.ready:
            return image
        if image is not None and image.failed:
            raise NotMadeError("the cloud could not make the image: see there why, and try again")
        seen_at = loop.time() if image else seen_at
        if loop.time() > seen_at + UNSEEN_S:
            raise NotMadeError("its image is gone before it was ready")
        if loop.time() > end:
            raise NotMadeError(f"its image was not ready after {LIMIT_S / 3600:.0f} hours")
        shop.say("waiting until the image is ready")
        await asyncio.sleep(pause_s)
        listed = await insist(partial(shop.provider.images, shop.cluster), GONE_S)
        image = next((one for one in listed if one.name == label), None)
    raise AssertionError("looks never end")
