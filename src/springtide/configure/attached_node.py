"""A node of a Slurm that is there without us. `ports.NodeConfigurator`, around a SlurmNode.

That Slurm's key and slurm.conf are not ours to make. And no node is made for it before it knows
our nodes: it could not register.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from springtide.configure.slurm_node import SlurmNode
from springtide.model import Node
from springtide.ports import Site


@dataclass(frozen=True, slots=True)
class AttachedNode:
    """What is the same for all nodes of Slurm is left to `node`."""

    node: SlurmNode
    attach: Callable[[Site], Awaitable[object]]
    """Has that Slurm know our nodes, or raises Unavailable."""

    async def prepare(self, site: Site) -> None:
        """Programs first: that Slurm may call them as soon as it knows our nodes."""
        await self.install()
        await self.attach(site)

    async def install(self) -> None:
        await self.node.install()

    async def publish(self, site: Site, addresses: Mapping[str, str]) -> None:
        await self.node.publish(site, addresses)

    def user_data(self, node: Node, site: Site) -> str:
        return self.node.user_data(node, site)
