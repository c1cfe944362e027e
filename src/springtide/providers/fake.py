"""The provider in front of a FakeCloud: the client that a daemon holds in tests and simulation.

A daemon is killed by cancelling its tasks; `sever` then takes the world away from its client,
so that nothing it left behind can still act. Each call can be interrupted before its effect,
between the effects on two nodes, and between the effects and the reply, at any latency.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from springtide.ports import (
    Check,
    CloudError,
    CloudFlavor,
    CloudImage,
    Instance,
    Launch,
    Need,
    Rejected,
    Site,
    Transient,
)
from springtide.providers.fake_cloud import CONTROL_ADDRESS, FakeCloud
from springtide.providers.fake_faults import Faults

__all__ = ["FakeCloud", "FakeProvider", "Faults"]


class FakeProvider:
    """Implements `ports.Provider`."""

    def __init__(self, cloud: FakeCloud, *, in_place: bool = False) -> None:
        self.cloud = cloud
        self.in_place = in_place
        self._severed = False

    def sever(self) -> None:
        """From here on no call of this client has an effect, and none returns."""
        self._severed = True

    async def prepare(self, cluster: str) -> Site:
        await self._ask("prepare")
        site = self.cloud.sites.setdefault(cluster, Site(str(CONTROL_ADDRESS)))
        await self._reply("prepare")
        return site

    async def remove(self, cluster: str) -> None:
        """Waits once for the instances to go; the caller asks again for those that do not."""
        await self._ask("remove")
        for instance in self.cloud.alive(cluster):
            self.cloud.delete(instance.id)
            await self._pause(0)
        if self.cloud.alive(cluster):
            await self._pause(min(self.cloud.faults.delete_s, 60.0))
        if left := self.cloud.alive(cluster):
            raise Transient(f"{len(left)} instances of {cluster} are not gone yet: remove it again")
        self.cloud.sites.pop(cluster, None)
        await self._reply("remove")

    async def list(self, cluster: str) -> Sequence[Instance]:
        await self._ask("list")
        instances = self.cloud.listed(cluster)
        await self._reply("list")
        return instances

    async def create(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        return await self._for_each("create", self.cloud.launch, launches)

    def renews(self, markets: Sequence[str]) -> bool:
        return self.cloud.renews

    async def reboot(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        return await self._for_each("reboot", self.cloud.reboot, launches)

    async def rebuild(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        if not self.in_place:
            refusal = Rejected("this fake cloud makes another instance for another image")
            return {launch.node: refusal for launch in launches}
        return await self._for_each("rebuild", self.cloud.rebuild, launches)

    async def snapshot(self, instance: Instance, name: str) -> CloudImage:
        await self._ask("snapshot")
        image = self.cloud.snapshot(instance, name)
        await self._reply("snapshot")
        return image

    async def images(self, cluster: str) -> Sequence[CloudImage]:
        await self._ask("images")
        found = self.cloud.images(cluster)
        await self._reply("images")
        return found

    async def forget(self, image: CloudImage) -> None:
        await self._ask("forget")
        self.cloud.snapshots.pop(image.id, None)
        await self._reply("forget")

    async def flavors(self) -> Mapping[str, CloudFlavor]:
        return {}

    async def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        return ()

    async def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        refused: dict[str, CloudError] = {}
        try:
            await self._ask("delete")
            for instance in instances:
                refused |= self._delete(instance.id)
                await self._pause(0)
            await self._reply("delete")
        except CloudError as error:
            return {instance.id: error for instance in instances}
        return refused

    async def console(self, instances: Sequence[Instance]) -> Mapping[str, str]:
        await self._ask("console")
        alive = {instance.id for instance in self.cloud.alive()}
        told = self.cloud.said
        said = {
            one.id: told.get(one.node, f"{one.node} booted\n")
            for one in instances
            if one.id in alive
        }
        await self._reply("console")
        return said

    async def close(self) -> None:
        """Nothing is held open."""

    async def _for_each(
        self, kind: str, do: Callable[[Launch], Instance], launches: Sequence[Launch]
    ) -> Mapping[str, Instance | CloudError]:
        answers: dict[str, Instance | CloudError] = {}
        try:
            await self._ask(kind)
            for launch in launches:
                answers[launch.node] = self._answer(do, launch)
                await self._pause(0)
            await self._reply(kind)
        except CloudError as error:
            return {launch.node: error for launch in launches}
        return answers

    def _answer(self, do: Callable[[Launch], Instance], launch: Launch) -> Instance | CloudError:
        try:
            return do(launch)
        except CloudError as error:
            return error

    def _delete(self, id: str) -> dict[str, CloudError]:
        try:
            self.cloud.delete(id)
        except CloudError as error:
            return {id: error}
        return {}

    async def _ask(self, kind: str) -> None:
        await self._pause(self.cloud.faults.before_s)
        self.cloud.admit(kind)

    async def _reply(self, kind: str) -> None:
        await self._pause(self.cloud.faults.after_s)
        self.cloud.reply(kind)

    async def _pause(self, seconds: float) -> None:
        """Even zero seconds let others run, and so let a kill land here."""
        await asyncio.sleep(seconds)
        if self._severed:
            raise RuntimeError("severed")
