"""Images at Google: which one an id means now, snapshots, and what the cluster file calls them."""

import threading
import time
from collections.abc import Mapping, Sequence

from springtide.ports import CloudError, CloudImage, Instance, Rejected
from springtide.providers.cloud import Catalog
from springtide.providers.google import parse, render
from springtide.providers.google.errors import is_missing, is_taken
from springtide.providers.google.rest import Answer, Api, text_of

FAMILY_S = 300.0
"""What a family leads to is asked again after so long."""


class Images:
    """The images of a project, and those that the cluster file names."""

    def __init__(self, api: Api, catalog: Catalog) -> None:
        self._api = api
        self._catalog = catalog
        self._families: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def resolve(self, id: str) -> str:
        """The path of the image that an id of the file means now; raises Rejected if none."""
        path = parse.image_path(self._api.project, id)
        if not parse.family_of(path):
            return path
        with self._lock:
            known, until = self._families.get(path, ("", 0.0))
            if time.monotonic() >= until:
                link = text_of(self.look(path), "selfLink", path)
                known = parse.image_path(self._api.project, link)
                self._families[path] = known, time.monotonic() + FAMILY_S
        return known

    def look(self, path: str) -> Answer:
        """An image, or the newest of a family."""
        what = f"image {path}"
        try:
            return self._api.get(path, what)
        except CloudError as error:
            if is_missing(error):
                raise Rejected(
                    f"Google has no {what}, or does not show it to us: see `gcloud compute images "
                    "list`, and give the service account roles/compute.imageUser where it is"
                ) from error
            raise

    def names(self) -> Mapping[str, str]:
        """What the cluster file calls images now, by path. Images that are no more have none."""
        found: dict[str, str] = {}
        for id, name in self._catalog.image_ids().items():
            try:
                found[self.resolve(id)] = name
            except Rejected:
                continue
        return found

    def name(self, path: str | None, hint: object, known: Mapping[str, str]) -> str | None:
        """What the cluster file calls an image now; if nothing, its path."""
        image = self._catalog.images.get(str(hint))
        means = {self._resolved(id) for id in image.all_ids} if image is not None else set()
        if path in means or None in means:  # of what cannot be found out nothing is concluded
            return str(hint)
        return known.get(path, path) if path is not None else None

    def snapshot(self, instance: Instance, name: str) -> CloudImage:
        """Also of a running one: what it has not written to its disk by then is not in it."""
        at = f"global/images/{render.image_resource(instance.cluster, name)}"
        if found := self._there(at, instance.cluster):
            return found
        disk = self._boot_disk(instance)
        body = render.image(instance.cluster, name, disk)
        try:
            self._api.post("global/images", f"image {name}", body, forceCreate="true")
        except CloudError as error:
            if not is_taken(error):
                raise
        seen = self._there(at, instance.cluster)
        return seen or parse.image(instance.cluster, body, self._api.project)

    def listed(self, cluster: str) -> Sequence[CloudImage]:
        pages = self._api.pages(
            "global/images", f"images of {cluster}", filter=render.cluster_filter(cluster)
        )
        return [
            parse.image(cluster, seen, self._api.project)
            for page in pages
            for seen in page.get("items") or ()
            if seen.get("status") != "DELETING"
        ]

    def forget(self, image: CloudImage) -> None:
        path = parse.image_path(self._api.project, image.id)
        try:
            self._api.call("DELETE", path, f"image {image.name}")
        except CloudError as error:
            if not is_missing(error):
                raise

    def _resolved(self, id: str) -> str | None:
        try:
            return self.resolve(id)
        except Rejected:
            return None

    def _there(self, at: str, cluster: str) -> CloudImage | None:
        try:
            seen = self._api.get(at, f"image {at}")
        except CloudError as error:
            if is_missing(error):
                return None
            raise
        return parse.image(cluster, seen, self._api.project)

    def _boot_disk(self, instance: Instance) -> str:
        zone, name = instance.id.split("/")
        seen = self._api.get(f"zones/{zone}/instances/{name}", f"instance {name}")
        for disk in seen.get("disks") or ():
            if disk.get("boot") and disk.get("source"):
                return str(disk["source"])
        raise Rejected(f"{instance.node}: instance {name} has no boot disk to make an image of")
