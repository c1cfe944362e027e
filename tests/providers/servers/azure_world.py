"""The provider of Azure in front of the server of `azure`: for its tests, and for `make bench`."""

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from springtide.ports import (
    CloudError,
    Denied,
    Instance,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Throttled,
)
from springtide.providers.azure import provider
from springtide.providers.azure.driver import AzureDriver
from springtide.providers.azure.waiting import Patience
from springtide.providers.cloud import Catalog, Cloud
from springtide.spec import Flavor, Image
from springtide.spec.clouds import Azure
from tests.providers.servers import azure_cloud as azure
from tests.providers.servers.azure_cloud import AzureServer, Refusal
from tests.providers.world import BLUE, CALL_S, World

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE2 admin@site"
CATALOG = Catalog(
    images={
        "base": Image(id=azure.URN),
        "other": Image(id=azure.OTHER.lstrip("/")),
        "gallery": Image(id=f"{azure.GALLERY.lstrip('/')}/versions/1.0.0"),
        "missing": Image(id="Nobody:knows:this:latest"),
    },
    flavors={
        "small": Flavor(type="Standard_D2s_v5", cpus=2, memory=7000),
        "arm": Flavor(type="Standard_D4ps_v5", cpus=4, memory=15000, arch="aarch64"),
    },
)
REFUSALS: dict[type[CloudError], tuple[Refusal, bool]] = {
    NoCapacity: (Refusal(200, "AllocationFailed", "Allocation failed. No capacity."), True),
    QuotaExceeded: (
        Refusal(
            409,
            "OperationNotAllowed",
            "Operation could not be completed as it results in exceeding approved "
            "standardDSv5Family Cores quota. Current Limit: 10, Current Usage: 10.",
        ),
        False,
    ),
    Denied: (Refusal(403, "AuthorizationFailed", "The client has no authorization."), False),
    Throttled: (Refusal(429, "TooManyRequests", "Too many requests."), False),
    Rejected: (Refusal(400, "InvalidParameter", "Required parameter is missing."), False),
}
SAYS = re.compile(r"^: says (.*)$", re.MULTILINE)


def block(server: AzureServer, directory: Path, **more: Any) -> Azure:
    """The provider block of a cluster file, and the files that it names."""
    credentials, key = directory / "azure.json", directory / "key.pub"
    if not credentials.exists():
        credentials.touch(mode=0o600)
        credentials.write_text(
            f'{{"tenantId": "t", "clientId": "c", "clientSecret": "{azure.TOKEN}"}}'
        )
        key.write_text(KEY)
    values: dict[str, Any] = {
        "subscription": azure.SUBSCRIPTION,
        "resource_group": azure.GROUP,
        "location": azure.LOCATION,
        "subnet": azure.SUBNET,
        "ssh_key": key,
        "credentials": credentials,
        "endpoint": server.address,
        "control_address": "10.0.0.5",
        "timeout": CALL_S,
    }
    return Azure(**(values | more))


def client(wanted: Azure, state: Path) -> Cloud:
    """As a daemon makes one, but with less patience: everything is quick here."""
    made = provider(wanted, CATALOG, state)
    assert isinstance(made.driver, AzureDriver)
    made.driver.patience = Patience(pause_s=0.02, limit_s=60.0)
    return made


@asynccontextmanager
async def azure_world(server: AzureServer, directory: Path) -> AsyncIterator[World]:
    """A subscription with nothing in it; its clients are closed at the end."""
    server.reset()
    wanted, opened = block(server, directory), list[Cloud]()

    def open(cluster: str) -> Cloud:
        opened.append(client(wanted, directory))
        return opened[-1]

    yield World(
        open=open,
        spoil=lambda launch: replace(launch, image="missing"),
        says=lambda node, word: f": says {word}\n",
        said=lambda node: said(server, node),
        kill=lambda one: kill(server, one),
        image="base",
        flavor="small",
        other_image="other",
        dates_boots=False,
        snapshots=True,
        refuse=lambda kind: server.refusals.append(REFUSALS[kind]),
        refusals=tuple(REFUSALS),
        lose_reply=lambda: setattr(server, "lose", 1),
        calls=lambda: len(server.calls),
        many=1000,
        throttle=lambda: setattr(server, "throttles", 1),
        unreached=lambda: client(wanted.but(endpoint="http://127.0.0.1:1"), directory),
    )
    for one in opened:
        await one.close()


def said(server: AzureServer, node: str) -> str | None:
    with server.lock:
        for one in server.living():
            tags = one.body["tags"]
            if (tags["springtide-cluster"], tags["springtide-node"]) == (BLUE, node):
                match = SAYS.search(one.user_data(time.time()))
                return match[1] if match else None
    return None


def kill(server: AzureServer, instance: Instance) -> None:
    with server.lock:
        server.machine(instance.id).power = "stopped"
