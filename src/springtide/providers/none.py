"""Machines that exist without us: nothing is made, nothing removed, the site is this machine."""

from collections.abc import Mapping, Sequence

from springtide.ports import CloudError, Instance, Launch, Rejected, Site


class NoProvider:
    """Implements `ports.Provider` for nodes on premises."""

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

    async def reboot(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        return _refused(launches, "cannot reboot it: do it by hand")

    async def console(self, instances: Sequence[Instance]) -> Mapping[str, str]:
        return {}

    async def close(self) -> None:
        """Nothing is held open."""


def _refused(launches: Sequence[Launch], what: str) -> Mapping[str, CloudError]:
    refusal = Rejected(f"its group has provider `none`, so Springtide {what}")
    return {launch.node: refusal for launch in launches}
