"""A small Google, and the provider on it, for tests and for the bench."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from springtide.ports import (
    CloudError,
    Denied,
    Launch,
    NoCapacity,
    Provider,
    QuotaExceeded,
    Rejected,
    Throttled,
)
from springtide.providers.cloud import Catalog
from springtide.providers.google import provider
from springtide.spec import Flavor, Image
from springtide.spec.clouds import Google
from tests.providers.servers.google import Server, serving
from tests.providers.servers.google_calls import QUOTA, STOCKOUT
from tests.providers.servers.google_state import PROJECT, SUBNETWORK, ZONES
from tests.providers.world import BLUE, CALL_S, World

FAMILY = "family/debian-12"
CATALOG = Catalog(
    images={
        "base": Image(id=f"projects/{PROJECT}/global/images/{FAMILY}"),
        "other": Image(id="rocky-9-v1"),
        "arm": Image(id={"aarch64": "global/images/debian-12-arm"}),
        "none": Image(id="no-such-image"),
    },
    flavors={
        "small": Flavor(type="n2-standard-4", cpus=4, memory=15000),
        "e2-standard-2": Flavor(cpus=2, memory=7000),
        "arm": Flavor(type="t2a-standard-4", cpus=4, memory=15000, arch="aarch64"),
        "huge": Flavor(type="n9-mega-1000", cpus=1000, memory=1000),
    },
)


@dataclass
class Place:
    """A server, and the providers that were opened on it."""

    server: Server
    opened: list[Provider] = field(default_factory=list)

    def open(self, **settings: Any) -> Provider:
        wanted = {
            "project": PROJECT,
            "zone": ZONES[0],
            "subnetwork": SUBNETWORK,
            "endpoint": self.server.endpoint,
            "control_address": "10.0.0.1",
            "timeout": CALL_S,
        }
        made = provider(Google(**{**wanted, **settings}), CATALOG, Path("/nowhere"))
        self.opened.append(made)
        return made

    def said(self, node: str) -> str | None:
        """The word in the script that the node's instance booted with."""
        with self.server.state.lock:
            machines = [*self.server.state.machines.items()]
        scripts = [one.script for (_, name), one in machines if name.startswith(f"{BLUE}-{node}-")]
        words = re.findall(r"^echo 'word (.*)'$", scripts[-1], re.M) if scripts else []
        return words[-1] if words else None

    def refuse(self, kind: type[CloudError]) -> None:
        match kind.__name__:
            case "NoCapacity":
                self.server.state.failing = [STOCKOUT]
            case "QuotaExceeded":
                self.server.state.failing = [QUOTA]
            case "Denied":
                self.server.refuse("instances.bulkInsert", 403, "forbidden")
            case "Throttled":
                self.server.refuse("instances.bulkInsert", 403, "rateLimitExceeded")
            case _:
                self.server.refuse("instances.bulkInsert", 400, "invalid")


def world_of(place: Place) -> World:
    server = place.server
    return World(
        open=lambda cluster: place.open(),
        spoil=lambda launch: replace(launch, flavor="huge"),
        says=lambda node, word: f"echo 'word {word}'\n",
        said=place.said,
        kill=lambda instance: server.state.stop(instance.id),
        image="base",
        flavor="small",
        other_image="other",
        dates_boots=False,
        snapshots=True,
        refuse=place.refuse,
        refusals=(NoCapacity, QuotaExceeded, Denied, Throttled, Rejected),
        lose_reply=lambda: server.lost.append("instances.bulkInsert"),
        calls=lambda: len(server.calls),
        many=1000,
        batch=1000,
        throttle=lambda: server.refuse("*", 429, "rateLimitExceeded"),
        unreached=lambda: place.open(endpoint="http://127.0.0.1:1"),
    )


@asynccontextmanager
async def google_place() -> AsyncIterator[Place]:
    with serving() as server:
        place = Place(server)
        try:
            yield place
        finally:
            for each in place.opened:
                await each.close()


@asynccontextmanager
async def google_world() -> AsyncIterator[World]:
    """For the bench."""
    async with google_place() as place:
        yield world_of(place)


def spot(launch: Launch) -> Launch:
    return replace(launch, market="spot")
