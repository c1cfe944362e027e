"""A Slurm of somebody else's behind `ports.BatchSystem`. The daemon makes one for each cluster
that is attached; what it knows of nodes and jobs is the same as of a Slurm of our own.
"""

from collections.abc import Iterable

from springtide.batch.slurm import Slurm
from springtide.batch.slurm_attachment import Attachment
from springtide.ports import Site
from springtide.spec import Cluster


class AttachedSlurm(Slurm):
    """A Slurm that is there without us, for the daemon."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._attachment = Attachment(cluster)

    async def prepare(self, site: Site) -> None:
        """Have it know our nodes, before there are any; raises Waiting."""
        await self._in_thread(self._attachment.load)

    async def reload(self, site: Site) -> str:
        return await self._in_thread(self._attachment.reload)

    async def close(self) -> None:
        await self._in_thread(self._attachment.close)

    async def stop(self) -> None:
        """Not ours to stop."""

    async def reboot(self, nodes: Iterable[str], reason: str) -> None:
        """A RebootProgram of theirs would run on our nodes, and not rebuild them."""
        await self._in_thread(self._attachment.require_reboots)
        await super().reboot(nodes, reason)
