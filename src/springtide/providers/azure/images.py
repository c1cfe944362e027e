"""Images of nodes: a snapshot of the disk, and an image of the snapshot. The node runs on.

Azure's own way to an image of a machine generalizes the machine, which then never starts again.
"""

import time
from collections.abc import Sequence

from azure.mgmt.compute import ComputeManagementClient

from springtide.ports import CloudError, CloudImage, Instance, Transient
from springtide.providers.azure import bodies, names, shapes
from springtide.providers.azure.errors import is_gone, translated
from springtide.providers.azure.shapes import Json
from springtide.providers.cloud import tags
from springtide.spec.clouds import Azure


class Images:
    """Those of the block's resource group."""

    def __init__(self, client: ComputeManagementClient, wanted: Azure) -> None:
        self._client = client
        self._wanted = wanted
        self._group = wanted.resource_group

    def make(self, instance: Instance, name: str, pause_s: float) -> CloudImage:
        """Answers when the disk is copied; the image of it may come later."""
        called = names.image_name(instance.cluster, name)
        if (known := self._known(called)) is not None:
            return shapes.image(known)
        with translated(f"make image {name} of {instance.id}"):
            disk = self._disk(instance)
            arch = _arch(disk)
            own = _tags(instance.cluster, name, arch)
            source = self._snapshot(called, disk["id"], own, pause_s)
            body = bodies.image(source, disk["properties"], self._wanted.location, own)
            made = self._client.images.begin_create_or_update(
                self._group, called, body, polling=False
            )
            return shapes.image(made.result())

    def of(self, cluster: str) -> Sequence[CloudImage]:
        with translated(f"list the images of {self._group}"):
            found = list(self._client.images.list_by_resource_group(self._group))
        return [
            shapes.image(one)
            for one in found
            if shapes.tagged(one).get(tags.CLUSTER) == cluster
            and one["properties"].get("provisioningState") != "Deleting"
        ]

    def forget(self, image: CloudImage) -> None:
        """The copy of the disk that it was made of has the same name."""
        called = names.last(image.id)
        for kept in (self._client.images, self._client.snapshots):
            try:
                with translated(f"delete image {image.name}"):
                    kept.begin_delete(self._group, called, polling=False)
            except CloudError as error:
                if not is_gone(error):
                    raise

    def _known(self, called: str) -> Json | None:
        """None also if it is there and is no good: the same request mends it."""
        try:
            with translated(f"find image {called}"):
                found: Json = self._client.images.get(self._group, called)
        except CloudError as error:
            if is_gone(error):
                return None
            raise
        state = found["properties"].get("provisioningState")
        if state == "Deleting":
            raise Transient(f"an image {called} is still being deleted")
        return None if state == "Failed" else found

    def _disk(self, instance: Instance) -> Json:
        machine = self._client.virtual_machines.get(self._group, instance.id)
        id = machine["properties"]["storageProfile"]["osDisk"]["managedDisk"]["id"]
        found: Json = self._client.disks.get(self._group, names.last(id))
        return found

    def _snapshot(self, called: str, disk: str, own: dict[str, str], pause_s: float) -> str:
        copying = self._client.snapshots.begin_create_or_update(
            self._group,
            called,
            bodies.snapshot(disk, self._wanted.location, own),
            polling_interval=pause_s,
        )
        copying.wait(self._wanted.timeout)
        if not copying.done():
            raise Transient(f"Azure still copies the disk for image {own[tags.IMAGE]}")
        return str(copying.result()["id"])


def _arch(disk: Json) -> str:
    told = (disk["properties"].get("supportedCapabilities") or {}).get("architecture", "x64")
    return shapes.ARCHITECTURES.get(str(told), "x86_64")


def _tags(cluster: str, name: str, arch: str) -> dict[str, str]:
    return {
        tags.CLUSTER: cluster,
        tags.IMAGE: name,
        shapes.ARCH: arch,
        shapes.CREATED: f"{time.time():.0f}",
    }
