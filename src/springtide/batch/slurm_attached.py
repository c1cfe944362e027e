"""A Slurm of somebody else's behind `ports.BatchSystem`. The daemon makes one for each cluster
that is attached; what it knows of nodes and jobs is the same as of a Slurm of our own.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from springtide.batch.slurm import Slurm
from springtide.batch.slurm_attachment import Attachment
from springtide.batch.slurm_return import decide_returned, may_have_returned
from springtide.nodeset import fold
from springtide.ports import BatchNode, Site, Unavailable
from springtide.spec import Cluster


class AttachedSlurm(Slurm):
    """A Slurm that is there without us, for the daemon."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._attachment = Attachment(cluster)
        self._ours = frozenset(cluster.managed)

    @property
    def reboots(self) -> bool:  # type: ignore[override] # one of ours always does
        return self._attachment.reboots

    async def nodes(self, names: Iterable[str] | None = None) -> Mapping[str, BatchNode]:
        """Those of ours that have come back are in service again when they are asked for."""
        if names is None:
            return await super().nodes()
        wanted = frozenset(names)
        seen = await super().nodes(wanted)
        down = [name for name in may_have_returned(seen.values()) if name in self._ours]
        return await super().nodes(wanted) if await self._give_back_to_service(down) else seen

    async def _give_back_to_service(self, down: Collection[str]) -> bool:
        """Whether any was; somebody else may have been faster, which is as good."""
        if not down:
            return False
        command = ["scontrol", "-o", "show", "node", fold(down)]
        text = await self._in_thread(lambda: self._commands.run(command).stdout)
        returned = decide_returned(text)
        with suppress(Unavailable):
            await self._update([node.name for node in returned], "state=resume")
            for node in returned:
                if node.drained is not None:
                    await self._update([node.name], "state=drain", f"reason={node.drained}")
        return bool(returned)

    async def standing(self) -> str:
        """Not ours to run."""
        return ""

    def _silent(self) -> str:
        gone = self._attachment.gone()
        return f"{gone}; run `tide attach`" if gone else ""

    async def prepare(self, site: Site) -> None:
        """Have it know our nodes, before there are any; raises Waiting."""
        await self._in_thread(self._attachment.load)

    async def reload(self, site: Site) -> str:
        return await self._in_thread(self._attachment.reload)

    async def close(self) -> None:
        await self._in_thread(self._attachment.close)

    async def open(self) -> None:
        await self._in_thread(self._attachment.open)

    async def reopen(self) -> None:
        await self._in_thread(self._attachment.reopen)

    async def stop(self, for_good: bool = True) -> None:
        """Not ours to stop."""

    def _configuration(self) -> str:
        return self._attachment.taken

    async def submit_rebuilds(self, nodes: Iterable[str], command: str | None) -> Mapping[str, str]:
        """Jobs that rebuild have their nodes rebooted."""
        if command is None:
            await self._in_thread(self._attachment.require_reboots)
        return await super().submit_rebuilds(nodes, command)

    async def reboot(self, nodes: Iterable[str], reason: str) -> None:
        """A RebootProgram of theirs would run on our nodes, and not rebuild them."""
        await self._in_thread(self._attachment.require_reboots)
        await super().reboot(nodes, reason)
