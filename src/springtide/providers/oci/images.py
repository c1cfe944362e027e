"""Custom images that are made from instances, and carry the cluster's tag."""

from collections.abc import Callable, Sequence
from typing import Any

from springtide.ports import CloudError, CloudImage, Instance, Rejected
from springtide.providers.cloud import Catalog, tags
from springtide.providers.oci.account import Account
from springtide.providers.oci.errors import NOT_FOUND, calling, status_of
from springtide.providers.oci.launches import token
from springtide.spec.clouds import Oci

ARCH = "springtide-arch"
"""OCI does not say of a custom image which one it is."""
DELETED = "DELETED"


class OciImages:
    """The part of the driver that deals with images."""

    def __init__(
        self, wanted: Oci, catalog: Catalog, account: Account, pages: Callable[..., Sequence[Any]]
    ) -> None:
        self._wanted = wanted
        self._catalog = catalog
        self._account = account
        self._pages = pages

    def snapshot(self, instance: Instance, name: str) -> CloudImage:
        """OCI stops the instance meanwhile. The same name again is the same image."""
        for image in self.images(instance.cluster):
            if image.name == name:
                return image
        flavor = self._catalog.flavors.get(instance.flavor or "")
        marks = {tags.CLUSTER: instance.cluster, ARCH: flavor.arch if flavor else "x86_64"}
        request = {
            "compartmentId": self._wanted.compartment,
            "instanceId": instance.id,
            "displayName": name,
            "freeformTags": marks,
        }
        with calling(f"making image {name} of {instance.node}"):
            made = self._account.compute.create_image(
                request, opc_retry_token=token("image", instance.cluster, instance.id, name)
            ).data
        if made.lifecycle_state == DELETED:
            raise Rejected(f"image {name} was made and deleted today: take another name")
        return parse_image(made)

    def images(self, cluster: str) -> Sequence[CloudImage]:
        with calling("listing images"):
            listed = self._pages(self._account.compute.list_images, self._wanted.compartment)
        return [parse_image(one) for one in listed if _is_ours(one, cluster)]

    def forget(self, image: CloudImage) -> None:
        try:
            with calling(f"deleting image {image.name}"):
                self._account.compute.delete_image(image.id)
        except CloudError as error:
            if status_of(error) != NOT_FOUND:
                raise


def _is_ours(listed: Any, cluster: str) -> bool:
    marks = listed.freeform_tags or {}
    return marks.get(tags.CLUSTER) == cluster and listed.lifecycle_state != DELETED


def parse_image(listed: Any) -> CloudImage:
    marks = listed.freeform_tags or {}
    return CloudImage(
        id=listed.id,
        name=listed.display_name,
        cluster=marks.get(tags.CLUSTER, ""),
        created_at=listed.time_created.timestamp(),
        ready=listed.lifecycle_state == "AVAILABLE",
        arch=marks.get(ARCH, "x86_64"),
    )
