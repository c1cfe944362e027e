"""`ports.Configurator` around that of nodes: with servers that nodes need on the control host."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from springtide.model import Node
from springtide.ports import NodeConfigurator, Site, Unavailable


class Serves(Protocol):
    """Something that is served; all of it blocks."""

    def serve(self, site: Site, addresses: Mapping[str, str] | None) -> None:
        """For nodes at these addresses; None is for those of before. Raises Unavailable."""
        ...

    def stop(self, for_good: bool = True) -> None:
        """Stop it; what does not run is fine."""
        ...


class Served:
    """All else is left to `nodes`."""

    def __init__(self, nodes: NodeConfigurator, parts: Sequence[Serves]) -> None:
        self._nodes = nodes
        self._parts = parts
        self._turns = asyncio.Lock()
        """Served in the order of asking: the last to ask knows most."""

    async def prepare(self, site: Site) -> None:
        await self._nodes.prepare(site)
        await self._serve(site, None)

    async def tend(self, site: Site, addresses: Mapping[str, str]) -> None:
        await self._serve(site, addresses)

    async def publish(self, site: Site, addresses: Mapping[str, str]) -> None:
        await self._nodes.publish(site, addresses)
        await self._serve(site, addresses)

    async def _serve(self, site: Site, addresses: Mapping[str, str] | None) -> None:
        await self._each([partial(part.serve, site, addresses) for part in self._parts])

    async def _each(self, works: Iterable[Callable[[], None]]) -> None:
        """Whoever asked may leave; the next still waits until the thread is through."""
        await asyncio.shield(asyncio.ensure_future(self._in_turn(works)))

    async def _in_turn(self, works: Iterable[Callable[[], None]]) -> None:
        async with self._turns:
            await asyncio.to_thread(do_all, works)

    async def install(self) -> None:
        await self._nodes.install()

    def user_data(self, node: Node, site: Site) -> str:
        return self._nodes.user_data(node, site)

    async def stop(self, for_good: bool = True) -> None:
        await self._each([partial(part.stop, for_good) for part in self._parts])


def do_all(works: Iterable[Callable[[], None]]) -> None:
    """All of it, whatever fails; raises Unavailable with all that was said."""
    said: list[str] = []
    for work in works:
        try:
            work()
        except Unavailable as error:
            said.append(str(error))
        except OSError as error:
            said.append(_words(error))
    if said:
        raise Unavailable("; ".join(said))


def _words(error: OSError) -> str:
    if error.filename is None:
        return str(error)
    return f"cannot write {error.filename}: {error.strerror}; make room, or let root write it"
