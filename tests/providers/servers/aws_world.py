"""A world of AWS for tests and benchmarks: a server, a cluster file's names, ways to harm it."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
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
from springtide.providers.aws import provider
from springtide.providers.aws.shapes import member
from springtide.providers.cloud import Catalog
from springtide.spec import Flavor, Image
from springtide.spec.clouds import Aws
from tests.providers.servers.aws import Server, serving
from tests.providers.servers.aws_ec2 import REGION
from tests.providers.world import BLUE, CALL_S, World

REFUSALS: Mapping[type[CloudError], tuple[str, int]] = {
    NoCapacity: ("InsufficientInstanceCapacity", 500),
    QuotaExceeded: ("VcpuLimitExceeded", 400),
    Denied: ("UnauthorizedOperation", 403),
    Throttled: ("RequestLimitExceeded", 503),
    Rejected: ("InvalidParameterValue", 400),
}
SECRET = "wJalrXUtnFEMI-not-a-real-one"
SMALL, LARGE = "c5.large", "c5.xlarge"


@dataclass
class Account:
    """What tests set up in the server's account."""

    server: Server
    directory: Path
    providers: list[Provider] = field(default_factory=list)

    def __post_init__(self) -> None:
        backend = self.server.ec2.backend
        self.images = {
            name: backend.register_image(name, f"{name} of the site").id
            for name in ("base", "other")
        }
        for image in self.images.values():
            backend.amis[image].root_device_name = "/dev/xvda"
        found = [one for zones in backend.subnets.values() for one in zones.values()]
        self.subnets = {one.availability_zone: one.id for one in found}
        self.credentials = self.directory / "credentials"
        self.credentials.write_text(
            f"[default]\naws_access_key_id = AKIATEST\naws_secret_access_key = {SECRET}\n"
        )
        self.credentials.chmod(0o600)

    @property
    def zones(self) -> list[str]:
        return sorted(self.subnets)

    def catalog(self) -> Catalog:
        flavors = {
            "small": Flavor(type=SMALL, cpus=2, memory="3G"),
            "any": Flavor(type=f"{SMALL}|{LARGE}", cpus=2, memory="3G"),
        }
        images = {name: Image(id=id) for name, id in self.images.items()}
        return Catalog(images, flavors)

    def spec(self, **keys: Any) -> Aws:
        zone = self.zones[0]
        wanted: dict[str, Any] = {
            "region": REGION,
            "endpoint": self.server.endpoint,
            "credentials": str(self.credentials),
            "subnets": {zone: self.subnets[zone]},
            "control_address": "10.1.2.3",
            "timeout": CALL_S,
        }
        return Aws(**(wanted | keys))

    def open(self, **keys: Any) -> Provider:
        made = provider(self.spec(**keys), self.catalog(), self.directory)
        self.providers.append(made)
        return made

    def word_of(self, node: str) -> str | None:
        """What a node of BLUE said when it booted last."""
        for one in self.server.ec2.living():
            raw = {"Tags": one.get_tags(), "AmiLaunchIndex": one.ami_launch_index}
            labels = {tag["key"]: tag["value"] for tag in one.get_tags()}
            raw["Tags"] = [{"Key": key, "Value": value} for key, value in labels.items()]
            if labels.get("springtide-cluster") == BLUE and (member(raw) or ("",))[0] == node:
                said = self.server.ec2.booted.get(one.id, "")
                return said.rpartition("say ")[2].strip() or None
        return None


@contextmanager
def account_of(server: Server, directory: Path) -> Iterator[Account]:
    """A fresh account; the server is asked for nothing that it does not know."""
    server.reset()
    yield Account(server, directory)
    assert server.unknown == []


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[World]:
    """A world with a server of its own."""
    with serving() as server, account_of(server, directory) as account:
        try:
            yield world_of(account)
        finally:
            for one in account.providers:
                await one.close()


def world_of(account: Account, **keys: Any) -> World:
    server = account.server

    def refuse(kind: type[CloudError]) -> None:
        code, status = REFUSALS[kind]
        server.refuse(code, status=status)

    def spoil(launch: Launch) -> Launch:
        return replace(launch, image="nowhere")

    return World(
        open=lambda cluster: account.open(**keys),
        spoil=spoil,
        says=lambda node, word: f"say {word}\n",
        said=account.word_of,
        kill=lambda one: server.ec2.die(one.id),
        image="base",
        flavor="small",
        other_image="other",
        dates_boots=False,
        snapshots=True,
        refuse=refuse,
        refusals=tuple(REFUSALS),
        lose_reply=server.lose_reply,
        calls=server.calls.total,
        many=1000,
        batch=100,
        throttle=lambda: server.refuse("RequestLimitExceeded", None, 503),
        unreached=lambda: account.open(**(keys | {"endpoint": "http://127.0.0.1:1"})),
    )
