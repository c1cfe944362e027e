"""Images are made, listed and cleaned: by people's wish, while the cluster goes on.

The daemon has one Builds. An image is in the record before anything is made for it, and can be
used once it is ready. What a daemon leaves that ends meanwhile is removed when the next starts:
neither a builder stays nor half an image.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from springtide import images, orders
from springtide.configure.building import Recipe, Script
from springtide.engine import Refused
from springtide.model import MadeImage, Making
from springtide.people import People
from springtide.ports import CloudError, CloudImage, Provider, StoreError, Unavailable
from springtide.shots import Login, Shot
from springtide.spec import Cluster
from springtide.spec.images import LAYERED
from springtide.spool import BadRequest
from springtide.steps import Parts
from springtide.steps.work import insist, passing
from springtide.workshop import NotMadeError, Workshop

ENDED = "the daemon ended while it was made"
GOING = "its deletion was not finished: clean it again"
EXPECTED = (CloudError, NotMadeError, Unavailable, Refused, BadRequest)
"""Why images are not made."""
CLEAN_S = 120.0
"""So long a provider is asked again to remove what is left."""
KEEP_AGAIN_S = 10.0
"""After this the record is tried again, which may have been full."""
LOG_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What went, and why the rest stayed."""

    gone: tuple[MadeImage, ...]
    kept: Mapping[str, str]


@dataclass(slots=True)
class Builds:
    """Makes images, one of a family at a time."""

    parts: Parts
    people: People
    login: Login
    doing: dict[str, str] = field(default_factory=dict)
    """What is being done for an image, by its label."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def spec(self) -> Cluster:
        return self.parts.spec

    @property
    def made(self) -> Sequence[MadeImage]:
        return self.parts.gallery.made

    async def start(self) -> None:
        """Remove what the last daemon left; providers may take their time over that."""
        left = [one for one in self.made if one.state is Making.BUILDING]
        self._begin([self._recover(one) for one in left])

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, works: Sequence[Coroutine[Any, Any, None]]) -> None:
        for work in works:
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.parts.record.complain("making an image broke off", repr(error))

    # --- building ------------------------------------------------------------------------

    async def plan_build(self, family: str, by: str = "") -> list[tuple[MadeImage, images.Site]]:
        """The images that a build would make, one for each architecture."""
        orders.refuse_unfit(self.parts, family)
        build = self.spec.images[family].build
        assert build is not None
        sites = images.sites(self.spec, family)
        number = await orders.next_number(self.parts, family, [site.group for site in sites])
        return [
            (
                MadeImage(
                    family=family,
                    number=number,
                    arch=site.arch,
                    group=site.group,
                    provider=self.spec.provider_of(site.group).kind,
                    made_from=self.parts.wanted_image(site.group, build.base),
                    made_by=by,
                    created_at=self.parts.record.now(),
                    builder=images.builder_name(family, number, site.arch),
                ),
                site,
            )
            for site in sites
        ]

    async def build(self, family: str, by: str, more: Sequence[Script] = ()) -> list[MadeImage]:
        """On disk when this returns; made soon after."""
        async with self._asking:
            planned = await self.plan_build(family, by)
            scripts = [*await asyncio.to_thread(orders.scripts_of, self.spec, family), *more]
            ordered = [image for image, _ in planned]
            await self._order(ordered, "image build asked", f"{ordered[0].name} by {by}")
            self.parts.gallery.builders.update(image.builder for image in ordered)
        self._begin([self._build(image, site, scripts) for image, site in planned])
        return ordered

    async def _order(self, ordered: Sequence[MadeImage], what: str, detail: str) -> None:
        """On disk before anything is made. If the record fails halfway, nothing is: what is there
        already must not pass for an image under way, which others of its family wait for."""
        kept: list[MadeImage] = []
        try:
            for image in ordered:
                await self._keep(image)
                kept.append(image)
            await self.parts.record.note(what, detail=detail)
        except Exception as error:
            self._begin([self._end(image, Making.FAILED, str(error)) for image in kept])
            raise

    async def _build(self, image: MadeImage, site: images.Site, scripts: Sequence[Script]) -> None:
        shared = [one.path for one in self.spec.shared]
        recipe = Recipe(image.family, image.name, image.arch, image.label, scripts, shared)
        shop = Workshop(self.parts, image, self._saying(image))
        try:
            made = await shop.build(site, recipe)
        except Exception as error:
            await self._failed(replace(image, log=shop.log[-LOG_BYTES:]), self._told(image, error))
        else:
            await self._ready(replace(image, id=made.id, log=shop.log[-LOG_BYTES:]))
        finally:
            self.doing.pop(image.label, None)
            self.parts.gallery.builders.discard(image.builder)

    # --- of a node -----------------------------------------------------------------------

    async def plan_snapshot(self, node: str, family: str | None, by: str = "") -> MadeImage:
        (name,) = self.people.deployed([node])
        orders.refuse_node(self.parts, name)
        record = self.parts.record.nodes[name]
        group, chosen = record.group, family or orders.family_of(self.spec, record.group)
        orders.refuse_second(self.made, chosen)
        kind = self.spec.provider_of(group).kind
        flavor = self.spec.flavors.get(record.flavor or "")
        return MadeImage(
            family=chosen,
            number=await orders.next_number(self.parts, chosen, [group]),
            arch=flavor.arch if flavor else min(images.archs_of(self.spec, group)),
            group=group,
            provider=kind,
            made_from=name,
            made_by=by,
            created_at=self.parts.record.now(),
        )

    def is_disturbed(self, image: MadeImage) -> bool:
        """Whether the node has to leave service and is made anew: its disk must be at rest."""
        return image.group in self.spec.remote

    async def snapshot(self, node: str, family: str | None, by: str) -> MadeImage:
        async with self._asking:
            image = await self.plan_snapshot(node, family, by)
            await self._order([image], "image asked", f"{image.name} of {node} by {by}")
        self._begin([self._snapshot(image)])
        return image

    async def _snapshot(self, image: MadeImage) -> None:
        shot = Shot(self.parts, self.people, image, self._saying(image), self.login)
        try:
            taken = await (shot.of_remote() if self.is_disturbed(image) else shot.of_container())
        except Exception as error:
            await self._failed(image, self._told(image, error))
        else:
            await self._ready(replace(image, id=taken.id))
        finally:
            self.doing.pop(image.label, None)

    # --- how it ends ---------------------------------------------------------------------

    def _saying(self, image: MadeImage) -> partial[None]:
        return partial(self.doing.__setitem__, image.label)

    async def _keep(self, image: MadeImage) -> None:
        await self.parts.gallery.keep(self.parts.record.store, image)

    async def _end(self, image: MadeImage, state: Making, detail: str = "") -> None:
        """Tried until the record can be written: an image that seems under way for ever would
        keep its family from being made."""
        while True:
            try:
                return await self._keep(replace(image, state=state, detail=detail))
            except StoreError as error:
                self.parts.record.complain("the end of an image not kept", f"{image.name}: {error}")
            await asyncio.sleep(KEEP_AGAIN_S)

    async def _ready(self, image: MadeImage) -> None:
        await self._end(image, Making.READY)
        await self.parts.record.note("image made", detail=f"{image.name}, {image.arch}: {image.id}")
        await self.parts.holding.mended()

    def _told(self, image: MadeImage, error: Exception) -> str:
        """What nobody expected is in the log as well."""
        if isinstance(error, EXPECTED):
            return str(error)
        self.parts.record.complain("image not made", f"{image.name}: {error!r}")
        return f"something unexpected happened: {error!r}"

    async def _failed(self, image: MadeImage, why: str) -> None:
        await self._remove_half(image)
        await self._end(image, Making.FAILED, why)
        await self.parts.record.note("image not made", detail=f"{image.name}, {image.arch}: {why}")

    async def _recover(self, image: MadeImage) -> None:
        """The builder first: it may cost money. What cannot be removed now the reconciler finds."""
        with suppress(*EXPECTED):
            await Workshop(self.parts, image).clear(CLEAN_S)
        await self._failed(image, ENDED)

    async def _remove_half(self, image: MadeImage) -> None:
        try:
            if half := await self._found(image):
                await insist(partial(self._provider(image).forget, half), CLEAN_S)
        except Exception as error:
            self.parts.record.complain("half an image may be left", f"{image.label}: {error!r}")

    async def _found(self, image: MadeImage) -> CloudImage | None:
        provider = self._provider(image)
        listed = await insist(partial(provider.images, self.spec.cluster), CLEAN_S)
        return next((one for one in listed if one.name == image.label), None)

    def _provider(self, image: MadeImage) -> Provider:
        return self.parts.providers.get(image.group, self.parts.home)

    # --- cleaning ------------------------------------------------------------------------

    async def plan_clean(self, family: str | None, keep: int | None) -> images.Cleaning:
        if family is not None and all(family not in (one.family, one.name) for one in self.made):
            raise BadRequest(f"no image or family {family!r} was made; see `tide image list`")
        nodes = self.parts.record.nodes.values()
        below = await self._below()
        return images.decide_clean(self.spec, self.made, nodes, family, keep, below)

    async def _below(self) -> dict[str, Sequence[str]]:
        """What images stand on, of those that are not whole."""
        layered = (self._provider(one) for one in self.made if one.provider in LAYERED)
        providers = {id(one): one for one in layered}
        listed = [await one.images(self.spec.cluster) for one in providers.values()]
        return {one.name: one.below for found in listed for one in found}

    async def clean(self, family: str | None, keep: int | None, by: str) -> Cleaned:
        """The newest of what goes first: others may lie below it."""
        async with self._asking:
            plan = await self.plan_clean(family, keep)
            gone, kept = [], dict(plan.kept)
            for image in sorted(plan.going, key=lambda one: one.created_at, reverse=True):
                try:
                    await self._forget(image)
                    gone.append(image)
                except CloudError as error:
                    kept[image.name] = str(error)
        told = ", ".join(dict.fromkeys(one.name for one in gone))
        if gone:
            await self.parts.record.note("images deleted", detail=f"{told} by {by}")
        return Cleaned(tuple(gone), kept)

    async def _forget(self, image: MadeImage) -> None:
        """Nobody is to get it from here on. What may be half gone is never offered again."""
        await self._keep(replace(image, state=Making.FAILED, detail=GOING))
        try:
            if found := await self._found(image):
                await self._provider(image).forget(found)
        except CloudError as error:
            if not passing(error):
                await self._keep(image)
            raise
        await orders.remember_number(self.parts, image)
        await self.parts.gallery.drop(self.parts.record.store, image)
