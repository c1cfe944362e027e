"""The real OpenStack of the tests as a `World`; `make bench` opens it too."""

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from springtide.ports import (
    CloudError,
    Denied,
    Instance,
    Launch,
    NoCapacity,
    Provider,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)
from springtide.providers.cloud import Catalog
from springtide.providers.cloud import Cloud as CloudProvider
from springtide.providers.openstack.driver import OpenStackDriver
from springtide.providers.openstack.identity import member_of
from springtide.spec import Flavor, Image
from springtide.spec.clouds import OpenStack
from tests.openstack import conf
from tests.openstack.cloud import Cloud
from tests.openstack.plugin import standing_cloud
from tests.providers.world import BLUE, World

SETTLE_S = 100.0
"""Many work on this machine at once."""
LOOK_S = 0.1
MANY, PAGE = 5, 4
CHANGED = "the list changed while it was read"
ABSENT = "00000000-0000-0000-0000-000000000000"
REFUSALS = (NoCapacity, QuotaExceeded, Denied, Throttled, Rejected)


class Steady(CloudProvider):
    """Tests have small pages, and look while servers go, with which a page may have ended."""

    async def list(self, cluster: str) -> Sequence[Instance]:
        """Once more if it changed while it was read, as the daemon does."""
        while True:
            try:
                return await super().list(cluster)
            except Transient as error:
                if CHANGED not in str(error):
                    raise


class Restored(Steady):
    """Nova's quota and hosts are as before after the next launch, whatever became of it."""

    undo: list[Callable[[], object]]

    async def list(self, cluster: str) -> Sequence[Instance]:
        """Tests look all the time, which takes it from what they wait for."""
        await asyncio.sleep(LOOK_S)
        return await super().list(cluster)

    async def create(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        try:
            return await super().create(launches)
        finally:
            while self.undo:
                self.undo.pop()()


def catalog(cloud: Cloud) -> Catalog:
    """One image by its name, the other by its id."""
    images = {
        "base": Image(id="image-a"),
        "other": Image(id=cloud.images["image-b"]),
        "absent": Image(id=ABSENT),
    }
    flavors = {
        "small": Flavor(cpus=1, memory=240),
        "big": Flavor(type="large", cpus=2, memory=1700),
        "huge": Flavor(cpus=1, memory=1000),
        "absent": Flavor(cpus=1, memory=100),
    }
    return Catalog(images, flavors)


def spec(clouds: Path, /, **more: Any) -> OpenStack:
    return OpenStack.model_validate(
        {
            "cloud": "test",
            "credentials": str(clouds),
            "network": "network-1",
            "control_address": "10.10.0.1",
            "timeout": 30.0,
            **more,
        }
    )


def driver(cloud: Cloud, /, **more: Any) -> OpenStackDriver:
    made = OpenStackDriver(spec(cloud.clouds_yaml, **more), catalog(cloud), SETTLE_S)
    made.api.page = PAGE
    return made


def server_of(cloud: Cloud, instance: Instance) -> dict[str, Any]:
    """All that an administrator sees of it."""
    answer = cloud.admin.compute.get(f"/servers/{instance.id}", microversion="2.93")
    return dict(answer.json()["server"])


def user_data_of(cloud: Cloud, cluster: str, node: str) -> str:
    query = {"all_tenants": "1"}
    answer = cloud.admin.compute.get("/servers/detail", params=query, microversion="2.93")
    for server in answer.json()["servers"]:
        ours = server["metadata"].get("springtide-cluster") == cluster
        if ours and member_of(server)[0] == node:
            return b64decode(server["OS-EXT-SRV-ATTR:user_data"]).decode()
    return ""


@contextmanager
def world_of(cloud: Cloud) -> Iterator[World]:
    """It is empty again at the end, and its providers are closed."""
    undo: list[Callable[[], object]] = []
    drivers: list[OpenStackDriver] = []

    def open_it(cluster: str) -> Provider:
        made = Restored(driver(cloud))
        made.undo = undo
        drivers.append(made.driver)  # type: ignore[arg-type]
        return made

    try:
        yield World(
            open=open_it,
            spoil=lambda launch: replace(launch, image="absent"),
            says=lambda node, word: f"# says {word}.\n",
            said=lambda node: _word(user_data_of(cloud, BLUE, node)),
            kill=lambda one: cloud.admin.compute.stop_server(one.id),
            image="base",
            flavor="small",
            other_image="other",
            changes_user_data=False,
            dates_boots=False,
            snapshots=True,
            refuse=lambda kind: _refuse(cloud, kind, undo),
            refusals=REFUSALS,
            lose_reply=lambda: cloud.nova.lose_reply("POST", "/servers"),
            calls=lambda: _calls(cloud),
            several=1,
            many=MANY,
            batch=MANY,
            throttle=lambda: cloud.nova.fail("*", ".*", status=429),
            unreached=lambda: _unreached(cloud, drivers),
        )
    finally:
        for one in drivers:
            one.close()
        cloud.clean()


def _calls(cloud: Cloud) -> int:
    """Without the looks: the longer Nova takes, the more of them there are."""
    return cloud.nova.count() - cloud.nova.count("GET", "/servers/detail")


def _unreached(cloud: Cloud, drivers: list[OpenStackDriver]) -> Provider:
    """Signing in is asked for where nobody listens."""
    clouds = cloud.clouds_yaml.with_name("unreached.yaml")
    clouds.write_text(cloud.clouds_yaml.read_text().replace(conf.AUTH_URL, "http://127.0.0.1:1/v3"))
    clouds.chmod(0o600)
    drivers.append(OpenStackDriver(spec(clouds, timeout=5.0), catalog(cloud), SETTLE_S))
    return CloudProvider(drivers[-1])


@asynccontextmanager
async def opened_world() -> AsyncIterator[World]:
    """All of it, from nothing."""
    with standing_cloud() as cloud, world_of(cloud) as world:
        yield world


def _word(user_data: str) -> str | None:
    _, says, after = user_data.rpartition("# says ")
    return after.partition(".")[0] if says else None


def _refuse(cloud: Cloud, kind: type[CloudError], undo: list[Callable[[], object]]) -> None:
    """No room and no quota are Nova's own; the rest is what a front end answers."""
    if kind is NoCapacity:
        cloud.disable_compute()
        undo.append(cloud.enable_compute)
    elif kind is QuotaExceeded:
        cloud.set_quota(instances=0)
        undo.append(cloud.reset_quota)
    else:
        status = {Denied: 403, Throttled: 429, Rejected: 400}[kind]
        cloud.nova.fail("POST", "/servers", status=status)
