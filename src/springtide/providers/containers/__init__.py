"""Nodes as containers of this machine: the embedded default, which needs no cloud.

The daemon makes one `Containers` for a cluster. A node is a set of Linux namespaces with its
own address on the cluster's bridge, over an overlay of its image. It is found again by the
files in `directory`, where each intent is written before its effect:

    site.json           the bridge and its subnet
    addresses/ADDRESS   a symbolic link to the name of the node that has the address
    instances/NODE/     one instance: intent, process, mounts, boot script, boot.log
    frozen/NODE         there while it stands still for an image
    images/NAME/        what an instance had written, as a layer over its image; or elsewhere

A node whose boot script fails ends, and is listed as broken; one whose script succeeds goes
on until it is deleted.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ipaddress import IPv4Network
from os.path import realpath
from pathlib import Path
from shutil import rmtree
from typing import TypeVar

from springtide import threads
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
from springtide.providers.containers import (
    addresses,
    forgotten,
    freeze,
    layers,
    links,
    remains,
    site,
)
from springtide.providers.containers.console import read_consoles
from springtide.providers.containers.erase import erase, sweep_gone
from springtide.providers.containers.errors import require_root, translated
from springtide.providers.containers.instances import Intent, homes, observe_all
from springtide.providers.containers.make import make
from springtide.providers.containers.mounts import Mount, Tree, refuse_option, refuse_tree
from springtide.providers.containers.reboot import reboot
from springtide.providers.containers.site import Ground

__all__ = ["Containers", "Mount"]

HOST_IMAGE = "host"
"""This machine's own root."""
BATCH = 32
"""Instances that one thread deletes together; each takes two descriptors."""

_T = TypeVar("_T")


class Containers:
    """Implements `ports.Provider` for the one cluster of `directory`."""

    in_place = False

    def __init__(
        self,
        directory: Path,
        images: Mapping[str, Path],
        mounts: Sequence[Mount],
        hidden: Sequence[Path],
        subnet: IPv4Network | None,
        threads: int = 4,
        made: Path | None = None,
        nodes: Sequence[str] = (),
    ) -> None:
        """`images` may come to have more; `made` is where those are that are made here. `nodes` are
        all that the cluster has here: each of them keeps its address."""
        self._nodes = nodes
        self._plan: tuple[IPv4Network | None, Mapping[str, str]] = (None, {})
        self._directory = directory.resolve()
        self._images = images
        self._made = (made or self._directory / "images").resolve()
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
        return await self._for_each(self._make, launches)

    async def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        batches = [instances[at : at + BATCH] for at in range(0, len(instances), BATCH)]
        refused = await threads.together(self._run(self._delete, batch) for batch in batches)
        return {id: error for some in refused for id, error in some.items()}

    def renews(self, markets: Sequence[str]) -> bool:
        return True

    async def reboot(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        return await self._for_each(self._reboot, launches)

    async def rebuild(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        refusal = Rejected("a container with another image is another container")
        return {launch.node: refusal for launch in launches}

    async def snapshot(self, instance: Instance, name: str) -> CloudImage:
        return await self._run(self._snapshot, instance, name)

    async def images(self, cluster: str) -> Sequence[CloudImage]:
        return await self._run(layers.found, self._made, cluster)

    async def forget(self, image: CloudImage) -> None:
        await self._run(self._forget, image)

    async def flavors(self) -> Mapping[str, CloudFlavor]:
        return {}

    async def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        """`tide check` looks at this machine itself."""
        return ()

    async def console(self, instances: Sequence[Instance]) -> Mapping[str, str]:
        return await self._run(read_consoles, self._directory, instances)

    async def close(self) -> None:
        """What is running in threads ends first; it takes no longer than its own limits."""
        await asyncio.to_thread(self._pool.shutdown)

    async def _for_each(
        self, do: Callable[[Launch], Intent], launches: Sequence[Launch]
    ) -> Mapping[str, Instance | CloudError]:
        answers = await threads.together(self._run(self._attempt, do, one) for one in launches)
        return {launch.node: answer for launch, answer in zip(launches, answers, strict=True)}

    # In the provider's own threads

    async def _run(self, do: Callable[..., _T], *arguments: object) -> _T:
        return await threads.run(self._pool, do, *arguments)

    def _prepare(self, cluster: str) -> Site:
        require_root()
        refuse_option(self._directory)
        with translated(f"site of {cluster}"):
            ground = site.prepare(self._directory, cluster, self._subnet)
            for path in (homes(self._directory), addresses.links_in(self._directory)):
                path.mkdir(mode=0o700, exist_ok=True)
            sweep_gone(self._directory)
            layers.sweep(self._made)
            remains.free_forgotten(self._directory)
            remains.replug(self._directory, ground)
        return ground.site

    def _remove(self, cluster: str) -> None:
        require_root()
        with translated(f"site of {cluster}"):
            ours = (homes, addresses.links_in, freeze.notes)
            for path in (where(self._directory) for where in ours):
                rmtree(path, ignore_errors=True)
            forgotten.end(cluster)
            site.remove(self._directory, cluster)
        for path in (self._made, self._directory):
            with suppress(OSError):
                path.rmdir()

    def _snapshot(self, instance: Instance, name: str) -> CloudImage:
        with translated(f"an image of {instance.node}"):
            require_root()
            return layers.snapshot(self._directory, self._made, instance, name)

    def _forget(self, image: CloudImage) -> None:
        with translated(f"image {image.name}"):
            require_root()
            layers.forget(self._directory, self._made, image)

    def _list(self, cluster: str) -> Sequence[Instance]:
        with translated(f"instances of {cluster}"):
            freeze.thaw_left(self._directory)
            images = self._paths()
            found = observe_all(self._directory, cluster, time.time())
            return [one.shown(images) for one in found]

    def _attempt(self, do: Callable[[Launch], Intent], launch: Launch) -> Instance | CloudError:
        try:
            with translated(launch.node):
                require_root()
                return do(launch).shown(self._paths())
        except CloudError as error:
            return error

    def _make(self, launch: Launch) -> Intent:
        tree = self._tree(self._path(launch.node, launch.image))
        ground = self._ground(launch.cluster)
        return make(self._directory, ground, tree, launch, self._planned(ground.subnet))

    def _planned(self, subnet: IPv4Network) -> Mapping[str, str]:
        if self._plan[0] != subnet:
            self._plan = (subnet, addresses.planned(subnet, self._nodes))
        return self._plan[1]

    def _reboot(self, launch: Launch) -> Intent:
        ground = self._ground(launch.cluster)
        return reboot(self._directory, ground, self._same_tree, launch)

    def _delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        try:
            require_root()
        except CloudError as error:
            return {instance.id: error for instance in instances}
        refused = erase(self._directory, instances)
        sweep_gone(self._directory)
        return refused

    def _paths(self) -> Mapping[str, Path]:
        """Where the names of images lead now: to link a name elsewhere is to change the image."""
        named = {HOST_IMAGE: Path("/")} | dict(self._images)
        return {name: Path(realpath(path)) for name, path in named.items()}

    def _path(self, node: str, image: str) -> Path:
        path = self._paths().get(image)
        if path is None:
            known = ", ".join(sorted({HOST_IMAGE, *self._images}))
            raise Rejected(
                f"{node}: image {image} is not defined, or of a family of which none was built "
                f"yet (`tide image build {image}`); known: {known}"
            )
        return path

    def _tree(self, image: Path) -> Tree:
        made_of = layers.layers_of(self._made, image)
        tree = Tree(image, self._mounts, self._hidden, made_of)
        refuse_tree(tree)
        return tree

    def _same_tree(self, intent: Intent) -> Tree:
        """With the image it was made from, whatever the image's name means now."""
        instance = intent.instance
        return self._tree(intent.image_path or self._path(instance.node, instance.image or ""))

    def _ground(self, cluster: str) -> Ground:
        """The site, with its bridge made again if the machine was rebooted."""
        ground = site.read_ground(self._directory)
        if ground is None:
            raise Rejected(f"cluster {cluster} has no site on this machine: deploy it first")
        site.refuse_other(ground, cluster, self._subnet)
        if not links.exists(ground.bridge):
            ground = site.prepare(self._directory, cluster, self._subnet)
            remains.replug(self._directory, ground)
        return ground
