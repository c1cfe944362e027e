"""What Azure has besides machines: statuses, interfaces, sizes, quotas, rights. Only looks.

Interfaces belong to another service of Azure whose SDK is larger than all else together; one
list of them and one deletion need no more than the client that is there.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from azure.core.rest import HttpRequest
from azure.mgmt.compute import ComputeManagementClient

from springtide.ports import CloudError, Transient
from springtide.providers.azure import names, shapes
from springtide.providers.azure.bodies import NETWORK_API
from springtide.providers.azure.errors import is_gone, translated
from springtide.providers.azure.shapes import Json, Status
from springtide.spec.clouds import Azure

RIGHTS_API = "2022-04-01"
GALLERY_API = "2023-07-03"
IMAGE_API = "2024-07-01"
PARTS_OF_GALLERY_IMAGE = 11
"""/subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/galleries/L/images/I, split."""


class Resources:
    """Those of the block's resource group and location."""

    def __init__(self, client: ComputeManagementClient, wanted: Azure) -> None:
        self._client = client
        self._wanted = wanted
        self.scope = f"/subscriptions/{wanted.subscription}/resourceGroups/{wanted.resource_group}"

    def statuses(self) -> dict[str, Status]:
        """By the names of machines in lower case; one list tells it of the whole subscription."""
        inside = f"{self.scope}/".lower()
        with translated("list what machines do"):
            return {
                machine["name"].lower(): shapes.parse_status(machine)
                for machine in self._client.virtual_machines.list_all(status_only="true")
                if machine["id"].lower().startswith(inside)
            }

    def interfaces(self) -> Iterator[Json]:
        path = f"{self.scope}/providers/Microsoft.Network/networkInterfaces"
        yield from self._pages(path, NETWORK_API, "list network interfaces")

    def addresses(self) -> dict[str, str]:
        return shapes.addresses(self.interfaces())

    def delete_interface(self, id: str) -> None:
        try:
            self._ask("DELETE", f"{id}?api-version={NETWORK_API}", f"delete {names.last(id)}")
        except CloudError as error:
            if not is_gone(error):
                raise

    def subnet(self) -> Json:
        id = names.resource_id(self._wanted.subnet)
        return self.get(id, NETWORK_API)

    def sizes(self) -> Sequence[Json]:
        """Of machines, here."""
        location = self._wanted.location
        with translated(f"list the sizes of {location}"):
            found = self._client.resource_skus.list(filter=f"location eq '{location}'")
            return [sku for sku in found if sku.get("resourceType") == "virtualMachines"]

    def usages(self) -> Sequence[Json]:
        with translated(f"tell the quotas of {self._wanted.location}"):
            return list(self._client.usage.list(self._wanted.location))

    def rights(self) -> list[Json]:
        path = f"{self.scope}/providers/Microsoft.Authorization/permissions"
        return list(self._pages(path, RIGHTS_API, "tell our rights"))

    def image_arch(self, id: str) -> str | None:
        """The architecture of an image that exists; None if Azure does not tell it."""
        reference = names.image_reference(id)
        found = self._offered(reference) if "publisher" in reference else self._made(reference)
        arch = (found.get("properties") or {}).get("architecture")
        return shapes.ARCHITECTURES.get(str(arch)) if arch else None

    def _offered(self, image: dict[str, str]) -> Json:
        offers, version = self._client.virtual_machine_images, image["version"]
        where = self._wanted.location, image["publisher"], image["offer"], image["sku"]
        with translated(f"find image {':'.join(image.values())} in {self._wanted.location}"):
            if version == "latest":
                version = offers.list(*where, top=1, orderby="name desc")[0]["name"]
            found: Json = offers.get(*where, version)
        return found

    def _made(self, image: dict[str, str]) -> Json:
        """Of a version of a gallery's image, its image is asked, which knows more."""
        id = image["id"]
        if "/galleries/" not in id.lower():
            return self.get(id, IMAGE_API)
        return self.get("/".join(id.split("/")[:PARTS_OF_GALLERY_IMAGE]), GALLERY_API)

    def get(self, id: str, api: str) -> Json:
        return self._ask("GET", f"{id}?api-version={api}", f"find {names.last(id)}")

    def _pages(self, path: str, api: str, what: str) -> Iterator[Json]:
        link: str | None = f"{path}?api-version={api}"
        while link:
            page = self._ask("GET", link, what)
            yield from page["value"]
            link = page.get("nextLink")

    def _ask(self, method: str, link: str, what: str) -> Json:
        with translated(what):
            answer = self._client.send_request(HttpRequest(method, link))
            answer.raise_for_status()
        try:
            found: Any = answer.json() if answer.content else {}
        except ValueError as error:
            raise Transient(f"Azure did not {what}: its answer is no JSON") from error
        return found if isinstance(found, dict) else {}
