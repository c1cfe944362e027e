"""`cloud.Driver` of OpenStack: what each call of a provider asks of Nova and Glance."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from springtide.ports import (
    Check,
    CloudError,
    CloudFlavor,
    CloudImage,
    Instance,
    InstanceState,
    Launch,
    Need,
    Site,
    Transient,
)
from springtide.providers.cloud import Catalog, tags
from springtide.providers.cloud.driver import Answers
from springtide.providers.cloud.here import own_address
from springtide.providers.openstack import requests
from springtide.providers.openstack.api import (
    COMPUTE,
    IMAGE,
    REBUILDS_VOLUMES,
    Api,
    Json,
    read_region,
)
from springtide.providers.openstack.checks import Checks
from springtide.providers.openstack.errors import Busy, Missing
from springtide.providers.openstack.launching import SETTLE_S, Launching
from springtide.providers.openstack.names import Names
from springtide.providers.openstack.shapes import parse_flavor, parse_image, parse_server
from springtide.spec.clouds import OpenStack

BATCH = 100
THREADS = 8
"""Calls for single servers, side by side: Nova deletes them one by one."""
CONSOLE_LINES = 300
LOOK_S = 0.5


class OpenStackDriver:
    """One project."""

    batch = BATCH

    def __init__(self, wanted: OpenStack, catalog: Catalog, settle_s: float = SETTLE_S) -> None:
        self.wanted = wanted
        self.catalog = catalog
        self.api = Api(read_region(wanted))
        self.in_place = wanted.volume is None
        """Servers that boot from volumes are rebuilt only where Nova is found new enough."""
        self._names = Names(wanted, catalog, self.api)
        self._settle_s = settle_s
        self._launching = Launching(wanted, catalog, self.api, self._names, settle_s)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="openstack")

    def prepare(self, cluster: str) -> Site:
        self._learn()
        if self.wanted.server_group:
            self._names.server_group(cluster)
        return Site(str(self.wanted.control_address or own_address()))

    def remove(self, cluster: str) -> None:
        self._names.remove_server_group(cluster)

    def list(self, cluster: str) -> Sequence[Instance]:
        self._learn()
        refs = self._names.refs()
        found = [parse_server(one, self.catalog, refs) for one in self._servers(cluster)]
        self._launching.doubts.settle(found)
        return found

    def launch(self, launches: Sequence[Launch]) -> Answers:
        """Nodes with something of their own are made one by one, side by side."""
        alone = [[one] for one in launches if requests.has_its_own(self.wanted, one.node)]
        bulk = [one for one in launches if not requests.has_its_own(self.wanted, one.node)]
        making = self._pool.map(self._launching.launch, alone)
        answers: dict[str, Instance | CloudError] = self._launching.launch(bulk) if bulk else {}
        for made in making:
            answers |= made
        return answers

    def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        staying = [one for one in instances if one.state is not InstanceState.DELETING]
        errors = self._pool.map(self._delete, staying)
        return {one.id: error for one, error in zip(staying, errors, strict=True) if error}

    def renews(self, markets: Sequence[str]) -> bool:
        return False

    def reboot(self, instance: Instance, launch: Launch) -> Instance:
        """A hard one: it works for whatever is stopped or broken too."""
        self._act(instance, {"reboot": {"type": "HARD"}})
        return replace(instance, state=InstanceState.PENDING)

    def rebuild(self, instance: Instance, launch: Launch) -> Instance:
        image = self._names.image(launch)
        metadata = self._server(instance)["metadata"]
        answer = self._act(instance, requests.rebuild(launch, image, metadata))
        rebuilt = parse_server(answer["server"], self.catalog, self._names.refs())
        return replace(rebuilt, state=InstanceState.PENDING)

    def console(self, instance: Instance) -> str:
        """Some hosts keep none, and one that is not running has none."""
        path, body = _action(instance), {"os-getConsoleOutput": {"length": CONSOLE_LINES}}
        try:
            return str(self.api.post(COMPUTE, path, body).get("output") or "")
        except (Missing, Busy):
            return ""

    def snapshot(self, instance: Instance, name: str) -> CloudImage:
        for image in self.images(instance.cluster):
            if image.name == name:
                return image
        answer = self._act(instance, requests.snapshot(name, instance.cluster))
        return parse_image(self.api.get(IMAGE, f"/images/{answer['image_id']}"))

    def images(self, cluster: str) -> Sequence[CloudImage]:
        found = self.api.pages(IMAGE, "/images", "images", **{tags.CLUSTER: cluster})
        images = [parse_image(one) for one in found if one.get("status") not in _GONE]
        return [one for one in images if one.cluster == cluster]

    def forget(self, image: CloudImage) -> None:
        self.api.delete(IMAGE, f"/images/{image.id}")

    def flavors(self) -> Mapping[str, CloudFlavor]:
        found = self.api.pages(COMPUTE, "/flavors/detail", "flavors")
        return {one["name"]: parse_flavor(one) for one in found}

    def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        return Checks(self.wanted, self.catalog, self.api).all(
            needs, lambda: self._servers(cluster)
        )

    def close(self) -> None:
        self._pool.shutdown()
        self.api.close()

    def _learn(self) -> None:
        """What this Nova can do; asks it once."""
        self.in_place = self.wanted.volume is None or self.api.version >= REBUILDS_VOLUMES

    def _servers(self, cluster: str) -> Sequence[Json]:
        """Nova lets members not filter by metadata, so this reads all of the project.

        Of a cell that is down it shows servers without it: whose they are cannot be said.
        """
        found = list(self.api.pages(COMPUTE, "/servers/detail", "servers"))
        if unknown := [one["id"] for one in found if "metadata" not in one]:
            raise Transient(
                f"Nova cannot tell now about {len(unknown)} servers: a cell of it is down"
            )
        return [one for one in found if one["metadata"].get(tags.CLUSTER) == cluster]

    def _server(self, instance: Instance) -> Json:
        server: Json = self.api.get(COMPUTE, f"/servers/{instance.id}")["server"]
        return server

    def _delete(self, instance: Instance) -> CloudError | None:
        try:
            self.api.delete(COMPUTE, f"/servers/{instance.id}")
        except CloudError as error:
            return error
        return None

    def _act(self, instance: Instance, body: Json) -> Json:
        """One that is busy is waited for, and asked once more."""
        try:
            return self.api.post(COMPUTE, _action(instance), body)
        except Busy:
            self._await_idle(instance)
            return self.api.post(COMPUTE, _action(instance), body)

    def _await_idle(self, instance: Instance) -> None:
        end = time.monotonic() + self._settle_s
        while _is_busy(self._server(instance)) and time.monotonic() < end:
            time.sleep(LOOK_S)


_GONE = frozenset({"deleted", "pending_delete"})


def _action(instance: Instance) -> str:
    return f"/servers/{instance.id}/action"


def _is_busy(server: Json) -> bool:
    return bool(server.get("OS-EXT-STS:task_state")) or server["status"] == "BUILD"
