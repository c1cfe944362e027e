"""Nodes as containers of this machine: the embedded default, which needs no cloud.

The daemon makes one `Containers` for a cluster. A node is a set of Linux namespaces with its
own address on the cluster's bridge, over an overlay of its image. It is found again by the
files in `directory`, where each intent is written before its effect:

    site.json           the bridge and its subnet
    addresses/ADDRESS   a symbolic link to the name of the node that has the address
    instances/NODE/     one instance: intent, process, mounts, boot script, boot.log

A node whose boot script fails ends, and is listed as broken; one whose script succeeds goes
on until it is deleted.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path
from shutil import rmtree
from typing import TypeVar

from springtide.ports import CloudError, Instance, Launch, Rejected, Site
from springtide.providers.containers import addresses, links, site
from springtide.providers.containers.erase import erase, sweep_gone
from springtide.providers.containers.errors import require_root, translated
from springtide.providers.containers.instances import homes, observe_all
from springtide.providers.containers.make import make
from springtide.providers.containers.mounts import Mount, Tree, refuse_option, refuse_tree
from springtide.providers.containers.site import Ground

__all__ = ["Containers", "Mount"]

HOST_IMAGE = "host"
"""This machine's own root."""
BATCH = 32
"""Instances that one thread deletes together; each takes two descriptors."""

_T = TypeVar("_T")


class Containers:
    """Implements `ports.Provider` for the one cluster of `directory`."""

    def __init__(
        self,
        directory: Path,
        images: Mapping[str, Path],
        mounts: Sequence[Mount],
        hidden: Sequence[Path],
        subnet: IPv4Network | None,
        threads: int = 4,
    ) -> None:
        self._directory = directory.resolve()
        self._images = {HOST_IMAGE: Path("/")} | dict(images)
        self._mounts = mounts
        self._hidden = [*hidden, self._directory]
        self._subnet = subnet
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="containers")

    async def prepare(self, cluster: str) -> Site:
        return await self._run(self._prepare, cluster)

    async def remove(self, cluster: str) -> None:
        ground = await self._run(site.read_ground, self._directory)
        if ground is None or ground.cluster != cluster:
            return
        refused = await self.delete(await self.list(cluster))
        for error in refused.values():
            raise error
        await self._run(self._remove, cluster)

    async def list(self, cluster: str) -> Sequence[Instance]:
        return await self._run(self._list, cluster)

    async def create(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        answers = await asyncio.gather(*(self._run(self._attempt, one) for one in launches))
        return {launch.node: answer for launch, answer in zip(launches, answers, strict=True)}

    async def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        batches = [instances[at : at + BATCH] for at in range(0, len(instances), BATCH)]
        refused = await asyncio.gather(*(self._run(self._delete, batch) for batch in batches))
        return {id: error for some in refused for id, error in some.items()}

    async def close(self) -> None:
        """What is running in threads ends first; it takes no longer than its own limits."""
        await asyncio.to_thread(self._pool.shutdown)

    # In the provider's own threads

    def _run(self, do: Callable[..., _T], *arguments: object) -> Awaitable[_T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, do, *arguments)

    def _prepare(self, cluster: str) -> Site:
        require_root()
        refuse_option(self._directory)
        with translated(f"site of {cluster}"):
            ground = site.prepare(self._directory, cluster, self._subnet)
            for path in (homes(self._directory), addresses.links_in(self._directory)):
                path.mkdir(mode=0o700, exist_ok=True)
            sweep_gone(self._directory)
        return ground.site

    def _remove(self, cluster: str) -> None:
        require_root()
        with translated(f"site of {cluster}"):
            for path in (homes(self._directory), addresses.links_in(self._directory)):
                rmtree(path, ignore_errors=True)
            site.remove(self._directory, cluster)
        with suppress(OSError):
            self._directory.rmdir()

    def _list(self, cluster: str) -> Sequence[Instance]:
        with translated(f"instances of {cluster}"):
            return observe_all(self._directory, cluster, time.time())

    def _attempt(self, launch: Launch) -> Instance | CloudError:
        try:
            with translated(launch.node):
                require_root()
                tree = self._tree(launch)
                return make(self._directory, self._ground(launch.cluster), tree, launch)
        except CloudError as error:
            return error

    def _delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        try:
            require_root()
        except CloudError as error:
            return {instance.id: error for instance in instances}
        refused = erase(self._directory, instances)
        sweep_gone(self._directory)
        return refused

    def _tree(self, launch: Launch) -> Tree:
        image = self._images.get(launch.image)
        if image is None:
            known = ", ".join(sorted(self._images))
            raise Rejected(f"{launch.node}: image {launch.image} is not defined; known: {known}")
        tree = Tree(image, self._mounts, self._hidden)
        refuse_tree(tree)
        return tree

    def _ground(self, cluster: str) -> Ground:
        """The site, with its bridge made again if the machine was rebooted."""
        ground = site.read_ground(self._directory)
        if ground is None:
            raise Rejected(f"cluster {cluster} has no site on this machine: deploy it first")
        site.refuse_other(ground, cluster, self._subnet)
        if not links.exists(ground.bridge):
            return site.prepare(self._directory, cluster, self._subnet)
        return ground
