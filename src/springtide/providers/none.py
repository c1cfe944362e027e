"""Machines that exist without us: nothing is made, nothing removed, the site is this machine."""

from collections.abc import Mapping, Sequence

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
)


class NoProvider:
    """Implements `ports.Provider` for nodes on premises."""

    in_place = False

    async def prepare(self, cluster: str) -> Site:
        return Site("127.0.0.1")

    async def remove(self, cluster: str) -> None:
        """Nothing was made."""

    async def list(self, cluster: str) -> Sequence[Instance]:
        return ()

    async def create(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        return _refused(launches, "makes no instances for it")

    async def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        return {}

    def renews(self, markets: Sequence[str]) -> bool:
        return False

    async def reboot(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        return _refused(launches, "cannot reboot it: do it by hand")

    async def rebuild(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        return _refused(launches, "cannot rebuild it: do it by hand")

    async def snapshot(self, instance: Instance, name: str) -> CloudImage:
        raise Rejected("machines with provider `none` are not Springtide's to make images of")

    async def images(self, cluster: str) -> Sequence[CloudImage]:
        return ()

    async def forget(self, image: CloudImage) -> None:
        """There are none."""

    async def flavors(self) -> Mapping[str, CloudFlavor]:
        return {}

    async def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        return ()

    async def console(self, instances: Sequence[Instance]) -> Mapping[str, str]:
        return {}

    async def close(self) -> None:
        """Nothing is held open."""


def _refused(launches: Sequence[Launch], what: str) -> Mapping[str, CloudError]:
    refusal = Rejected(f"its group has provider `none`, so Springtide {what}")
    return {launch.node: refusal for launch in launches}
