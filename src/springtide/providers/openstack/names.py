"""What OpenStack calls what the cluster file names: images, flavors, the network, a server group.

Asked for when they are needed and remembered; forgotten when Nova rejects a request made of them.
"""

from springtide.ports import Launch, Rejected
from springtide.providers.cloud import Catalog
from springtide.providers.openstack.api import COMPUTE, IMAGE, NETWORK, Api, Json
from springtide.providers.openstack.requests import Ids
from springtide.providers.openstack.shapes import Refs, one_of
from springtide.spec.clouds import OpenStack

GROUPS = "/os-server-groups"


class Names:
    """Of one project."""

    def __init__(self, wanted: OpenStack, catalog: Catalog, api: Api) -> None:
        self._wanted = wanted
        self._catalog = catalog
        self._api = api
        self._images: dict[str, str] = {}
        self._known: dict[str, str] = {}

    def of(self, launch: Launch) -> Ids:
        """All that a launch needs. Images are asked for each time: a name may have moved on."""
        wants_group = self._wanted.server_group is not None
        return Ids(
            image=self.image(launch),
            flavor=self._flavor(launch),
            network=self._network(),
            server_group=self.server_group(launch.cluster) if wants_group else None,
        )

    def image(self, launch: Launch) -> str:
        return self._image(self._catalog.image_id(launch))

    def refs(self) -> Refs:
        """What the file calls its images by, by Glance's id."""
        for ref in self._catalog.image_ids():
            if ref not in self._images:
                found = self._api.named(IMAGE, "/images", "images", ref)
                self._images[ref] = found["id"] if found else ref
        refs: dict[str, list[str]] = {}
        for ref, id in dict(self._images).items():
            refs.setdefault(id, []).append(ref)
        return refs

    def forget(self) -> None:
        self._known.clear()

    def server_group(self, cluster: str) -> str:
        """Found, or made."""
        name = group_name(cluster)
        if name not in self._known:
            found = self.find_server_group(cluster) or self._make_server_group(name)
            self._known[name] = found["id"]
        return self._known[name]

    def find_server_group(self, cluster: str) -> Json | None:
        groups: list[Json] = self._api.get(COMPUTE, GROUPS)["server_groups"]
        found = (one for one in groups if one["name"] == group_name(cluster))
        return next(found, None)

    def remove_server_group(self, cluster: str) -> None:
        while found := self.find_server_group(cluster):
            self._api.delete(COMPUTE, f"{GROUPS}/{found['id']}")
        self._known.pop(group_name(cluster), None)

    def _make_server_group(self, name: str) -> Json:
        body = {"server_group": {"name": name, "policy": self._wanted.server_group}}
        made: Json = self._api.post(COMPUTE, GROUPS, body)["server_group"]
        return made

    def _image(self, ref: str) -> str:
        found = one_of(self._api.named(IMAGE, "/images", "images", ref), f"image {ref}")
        self._images[ref] = str(found["id"])
        return self._images[ref]

    def _network(self) -> str:
        return self._remembered(NETWORK, "/networks", "networks", self._wanted.network)

    def _flavor(self, launch: Launch) -> str:
        """Nova finds flavors by id alone."""
        type = self._catalog.flavor_type(launch)
        if f"flavor {type}" not in self._known:
            flavors = list(self._api.pages(COMPUTE, "/flavors/detail", "flavors"))
            self._known |= {f"flavor {one['id']}": one["id"] for one in flavors}
            self._known |= {f"flavor {one['name']}": one["id"] for one in flavors}
        if f"flavor {type}" not in self._known:
            raise Rejected(f"{launch.node}: the project sees no flavor {type}")
        return self._known[f"flavor {type}"]

    def _remembered(self, service: str, path: str, key: str, ref: str) -> str:
        if f"{service} {ref}" not in self._known:
            found = one_of(self._api.named(service, path, key, ref), f"{service} {ref}")
            self._known[f"{service} {ref}"] = found["id"]
        return self._known[f"{service} {ref}"]


def group_name(cluster: str) -> str:
    return f"springtide-{cluster}"
