"""How an instance becomes a member of the cluster, and gets its software."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from springtide.model import Node
from springtide.ports.providers import Site


class NodeConfigurator(Protocol):
    """How a node becomes a member of the cluster."""

    async def prepare(self, site: Site) -> None:
        """Make the keys that nodes need at boot; twice changes nothing."""
        ...

    async def publish(self, site: Site, addresses: Mapping[str, str]) -> None:
        """Make these names, and no others, known to every node."""
        ...

    async def install(self) -> None:
        """Put the batch system's programs in place on the control host."""
        ...

    def user_data(self, node: Node, site: Site) -> str:
        """What the instance is told at its first boot; pure."""
        ...


class Configurator(NodeConfigurator, Protocol):
    """That, with what the control host serves its nodes beside the batch system.

    It runs since `prepare`; `prepare`, `publish` and `tend` raise Unavailable if it cannot.
    """

    async def tend(self, site: Site, addresses: Mapping[str, str]) -> None:
        """Start again what has died of it, and tell it of nodes that it missed."""
        ...

    async def stop(self, for_good: bool = True) -> None:
        """Stop serving: files and names are no longer needed, as all nodes are gone.

        Unless it is for good, names stay that a batch system needs which runs on.
        """
        ...


@dataclass(frozen=True, slots=True)
class Configured:
    """What became of nodes whose software was set up."""

    fallen: Mapping[str, str]
    """Those that it failed on, and why."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """How much was changed, by node."""


class Software(Protocol):
    """Sets up the software of nodes that run, over the network."""

    def serves(self, group: str) -> bool:
        """Whether nodes of this group are set up so."""
        ...

    async def make_keys(self) -> None:
        """Those that it logs in with; nodes wait for them as they boot."""
        ...

    async def kept_out(self, node: Node) -> str:
        """Why it could not log in there now, as far as can be known without trying; empty if it
        could."""
        ...

    async def prepare(self, site: Site, tell: Callable[[str, str], Awaitable[None]]) -> str:
        """Set up the control host itself, if that is wanted; answers what went wrong.

        `tell` gets the node, if it is about one, and how far it is.
        """
        ...

    async def configure(
        self,
        site: Site,
        nodes: Sequence[Node],
        addresses: Mapping[str, str],
        tell: Callable[[str, str], Awaitable[None]],
    ) -> Configured:
        """Set these nodes up; twice changes nothing. `addresses` are those of all nodes."""
        ...
