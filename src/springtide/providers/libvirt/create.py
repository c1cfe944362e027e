"""Machines made for nodes: a disk on top of an image, a seed, an address of their own.

A machine is listed from when it runs until all that it had is gone: its definition goes last.
"""

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt

from springtide.ports import (
    Check,
    CloudError,
    CloudImage,
    Instance,
    InstanceState,
    Launch,
    Need,
    Rejected,
    Site,
)
from springtide.providers.cloud import Catalog
from springtide.providers.cloud.catalog import unbuilt
from springtide.providers.libvirt import checks, host_key, images, marks, seed
from springtide.providers.libvirt.domain import Paths, render_domain
from springtide.providers.libvirt.host import Host, cut_off, found, mark_of, put_mark
from springtide.providers.libvirt.marks import Mark
from springtide.providers.libvirt.network import mac_of
from springtide.providers.libvirt.storage import Disks
from springtide.spec.clouds import Libvirt

CONSOLE_BYTES = 16 << 10
AT_ONCE = 8
"""So many machines are deleted at the same time."""
ENDINGS = ("qcow2", "iso", "console")
ENDING = r"(?:qcow2|iso|console(?:\.\d+)?)"
UNDEFINE = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
)


class Created(Host):
    """Implements `providers.cloud.Driver`."""

    in_place = True

    def __init__(self, wanted: Libvirt, catalog: Catalog) -> None:
        super().__init__(wanted, catalog)
        self.disks = Disks(wanted.disks)

    def prepare(self, cluster: str) -> Site:
        self.disks.pool(self.connection.get(), build=True)
        return self.site()

    def remove(self, cluster: str) -> None:
        """Also what was left by launches that broke off; images stay."""
        connection = self.connection.get()
        ours = re.compile(rf"{re.escape(cluster)}\.(.+)\.\d+\.{ENDING}")
        left = [match for match in map(ours.fullmatch, self.disks.names(connection)) if match]
        for match in left:
            self.disks.delete(connection, match[0])
        for node in {match[1] for match in left}:
            self.network.release(connection, mac_of(cluster, node))
        for directory in {self.wanted.disks, *self._image_directories()}:
            Disks(directory).forget_pool(connection)

    def list(self, cluster: str) -> Sequence[Instance]:
        there = self.marked(cluster)
        seen = ((mark, marks.decide_state(state, why, mark)) for mark, state, why in there)
        return [self.instance(mark, state, mark.address) for mark, state in seen if state]

    def launch(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        return {launch.node: self._make(launch) for launch in launches}

    def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="libvirt-delete") as pool:
            answers = dict(pool.map(self._refused, instances))
        self._sweep({id for id, error in answers.items() if error is None})
        return {id: error for id, error in answers.items() if error is not None}

    def renews(self, markets: Sequence[str]) -> bool:
        return True

    def reboot(self, instance: Instance, launch: Launch) -> Instance:
        with self.alone(launch.node) as connection:
            domain, mark = self._stopped(connection, instance)
            return self._started_again(connection, domain, mark, launch)

    def rebuild(self, instance: Instance, launch: Launch) -> Instance:
        """From the image of the launch; its flavor is fixed by its definition."""
        with self.alone(launch.node) as connection:
            image = self._image_path(launch)
            domain, mark = self._stopped(connection, instance)
            self._clone(connection, mark.id, image)
            mark = replace(mark, image=launch.image, disk=image)
            mark, launch = self._with_host_key(mark, launch)
            return self._started_again(connection, domain, mark, launch)

    def console(self, instance: Instance) -> str:
        name = f"{instance.id}.console"
        text = self.disks.end_of(self.connection.get(), name, CONSOLE_BYTES)
        return text.decode(errors="replace")

    def snapshot(self, instance: Instance, name: str) -> CloudImage:
        with self.alone(instance.node) as connection:
            return images.made(connection, self.disks, instance, name)

    def images(self, cluster: str) -> Sequence[CloudImage]:
        return images.listed(self.connection.get(), self.disks, cluster)

    def forget(self, image: CloudImage) -> None:
        if users := [mark.id for mark, *_ in self.all_marked() if mark.disk == image.id]:
            raise Rejected(
                f"image {image.name} is what {len(users)} machines have below their disks, such "
                f"as {users[0]}: delete or rebuild them first"
            )
        images.forgotten(self.connection.get(), self.disks, image)

    def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        return checks.of_created(self, self.disks, needs)

    def _make(self, launch: Launch) -> Instance:
        with self.alone(launch.node) as connection:
            flavor, image = self.catalog.flavor(launch), self._image_path(launch)
            mac = mac_of(launch.cluster, launch.node)
            address = self.network.bind(connection, mac)
            mark = marks.made_for(launch, time.time(), image, mac, address)
            mark, launch = self._with_host_key(mark, launch)
            paths = self._paths(mark.id)
            try:
                definition = render_domain(mark, flavor, self.wanted, paths)
                self._clone(connection, mark.id, image)
                self.disks.write(connection, f"{mark.id}.console", b"")
                self._write_seed(connection, mark, launch)
                # Started first and defined then: none is listed that was never started.
                connection.createXML(definition, 0)
                connection.defineXML(definition)
            except (CloudError, libvirt.libvirtError):
                self._clear_away(connection, mark)
                raise
            return self.instance(mark, InstanceState.RUNNING, mark.address)

    def _with_host_key(self, mark: Mark, launch: Launch) -> tuple[Mark, Launch]:
        """For a new disk; one that is only started again has its key."""
        if not self.wanted.host_keys:
            return mark, launch
        key = host_key.fresh(mark.node)
        told = replace(launch, user_data=key.script() + launch.user_data)
        return replace(mark, host_key=key.public), told

    def _sweep(self, gone: set[str]) -> None:
        """Consoles that grew long were put aside, under names that libvirt has not told."""
        connection = self.connection.get()
        ours = re.compile(rf"(.+)\.{ENDING}")
        for name in self.disks.names(connection):
            if (match := ours.fullmatch(name)) and match[1] in gone:
                self.disks.delete(connection, name)

    def _clear_away(self, connection: Any, mark: Mark) -> None:
        """Unless it runs after all; what cannot be cleared now is when the node is made again."""
        try:
            if found(connection, mark.id) is None:
                self._remove_files(connection, mark)
        except (CloudError, libvirt.libvirtError):
            return

    def _refused(self, instance: Instance) -> tuple[str, CloudError | None]:
        try:
            self._unmake(instance)
        except CloudError as error:
            return instance.id, error
        return instance.id, None

    def _unmake(self, instance: Instance) -> None:
        with self.alone(instance.node) as connection:
            domain = found(connection, instance.id)
            mark = mark_of(domain) if domain is not None else None
            if mark is None or not mark.is_of(instance):
                return
            _keep_definition(connection, domain)
            if not mark.going_at:
                put_mark(domain, replace(mark, going_at=time.time()))
            cut_off(domain)
            self._remove_files(connection, mark)
            domain.undefineFlags(UNDEFINE)

    def _remove_files(self, connection: Any, mark: Mark) -> None:
        for ending in ENDINGS:
            self.disks.delete(connection, f"{mark.id}.{ending}")
        self.network.release(connection, mark.mac)

    def _stopped(self, connection: Any, instance: Instance) -> tuple[Any, Mark]:
        """The machine of this instance, off, to be started again."""
        domain = found(connection, instance.id)
        mark = mark_of(domain) if domain is not None else None
        if mark is None or mark.going_at:
            raise Rejected(f"{instance.node} is being deleted: create it instead")
        _keep_definition(connection, domain)
        cut_off(domain)
        return domain, mark

    def _started_again(self, connection: Any, domain: Any, mark: Mark, launch: Launch) -> Instance:
        after = mark.rebooted(time.time())
        self._write_seed(connection, after, launch)
        put_mark(domain, after)
        domain.create()
        return self.instance(after, InstanceState.RUNNING, after.address)

    def _write_seed(self, connection: Any, mark: Mark, launch: Launch) -> None:
        content = seed.written(seed.render_files(mark, launch))
        self.disks.write(connection, f"{mark.id}.iso", content)

    def _clone(self, connection: Any, id: str, image: str) -> None:
        self.disks.clone(connection, f"{id}.qcow2", image, self.wanted.disk)

    def _paths(self, id: str) -> Paths:
        return Paths(*(self.disks.path(f"{id}.{ending}") for ending in ENDINGS))

    def _image_directories(self) -> set[Path]:
        return {image.path.parent for image in self.catalog.images.values() if image.path}

    def _image_path(self, launch: Launch) -> str:
        image = self.catalog.images.get(launch.image)
        if image is not None and image.build is not None:
            raise Rejected(unbuilt(launch))
        if image is None or image.path is None:
            known = ", ".join(sorted(n for n, one in self.catalog.images.items() if one.path))
            raise Rejected(
                f"{launch.node}: image {launch.image} is not in the cluster file, or has no path; "
                f"known: {known}"
            )
        return str(image.path)


def _keep_definition(connection: Any, domain: Any) -> None:
    """One that we did not come to define would be gone from the list with its files still there."""
    if not domain.isPersistent():
        connection.defineXML(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE))
