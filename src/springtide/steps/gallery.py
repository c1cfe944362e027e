"""The images that were made here, in memory: what catalogs of providers know besides the file.

The daemon has one; builds change it. Steps ask it which image a node is to have.
"""

from collections.abc import Iterable
from pathlib import Path

from springtide import images
from springtide.model import MadeImage
from springtide.ports import Store
from springtide.spec import Cluster, Image


class Gallery:
    """Also who is at work on an image: nobody else touches those instances."""

    def __init__(self) -> None:
        self.made: list[MadeImage] = []
        self.known: dict[str, Image] = {}
        """As the cluster file would name them. Providers hold on to it, so it changes in place."""
        self.paths: dict[str, Path] = {}
        """Those of them that are directories or files here; the same."""
        self.builders: set[str] = set()
        """Instances that images are made of, and that are nobody's nodes."""
        self.claimed: set[str] = set()
        """Nodes that an image is being made of."""

    async def load(self, store: Store) -> None:
        self._use(await store.images())

    async def keep(self, store: Store, image: MadeImage) -> None:
        await store.keep_image(image)
        await self.load(store)

    async def drop(self, store: Store, image: MadeImage) -> None:
        await store.drop_image(image)
        await self.load(store)

    def resolve(self, spec: Cluster, name: str, group: str) -> str:
        """What somebody means who names an image for nodes of a group: of a family, the newest."""
        return images.resolve(spec, self.made, name, group)

    def is_image(self, spec: Cluster, name: str) -> bool:
        return name in spec.images or name in self.known

    def _use(self, made: Iterable[MadeImage]) -> None:
        self.made = list(made)
        found = images.known(self.made)
        for name in self.known.keys() - found.keys():
            del self.known[name]
            self.paths.pop(name, None)
        self.known.update(found)
        self.paths.update({name: one.path for name, one in found.items() if one.path})
