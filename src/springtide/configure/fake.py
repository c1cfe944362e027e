"""A configurator that has nothing to do, for fake clouds in tests and benchmarks."""

from collections.abc import Mapping
from dataclasses import dataclass

from springtide.model import Node
from springtide.ports import Site


@dataclass(frozen=True, slots=True)
class FakeConfigurator:
    """Its nodes need nothing, but may be given a text."""

    text: str = ""

    async def prepare(self, site: Site) -> None: ...

    async def publish(self, site: Site, addresses: Mapping[str, str]) -> None: ...

    async def install(self) -> None: ...

    async def tend(self, site: Site, addresses: Mapping[str, str]) -> None: ...

    async def stop(self, for_good: bool = True) -> None: ...

    def user_data(self, node: Node, site: Site) -> str:
        return self.text
