"""Nodes on Azure when it is full, slow, busy, forgetful or not what the file says."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import ClassVar

import pytest

from springtide.guard import Guard
from springtide.ports import (
    Check,
    Instance,
    InstanceState,
    Launch,
    Need,
    NoCapacity,
    Provider,
    Throttled,
    Transient,
)
from springtide.providers.azure.driver import AzureDriver
from springtide.providers.azure.waiting import Patience
from springtide.providers.cloud import Cloud
from tests.providers.servers import azure_cloud as azure
from tests.providers.servers.azure import serving
from tests.providers.servers.azure_cloud import AzureServer, Refusal
from tests.providers.servers.azure_world import KEY, block, client
from tests.providers.world import delete_until_gone, instances, nobody, running, until

LONG_S = 3600.0
"""Longer than any test takes."""
NEED = Need("general", 10, "base", ["small"], ["1"])


@pytest.fixture(scope="module")
def started() -> Iterator[AzureServer]:
    with serving() as server:
        yield server


@pytest.fixture
def server(started: AzureServer) -> Iterator[AzureServer]:
    started.reset()
    yield started
    assert started.unknown == []


@pytest.fixture
async def cloud(server: AzureServer, tmp_path: Path) -> AsyncIterator[Cloud]:
    opened = client(block(server, tmp_path), tmp_path)
    yield opened
    await opened.close()


def launches(*nodes: str, zone: str | None = None) -> list[Launch]:
    return [Launch("blue", node, 1, "general", "base", "small", zone) for node in nodes]


def driver(cloud: Cloud) -> AzureDriver:
    assert isinstance(cloud.driver, AzureDriver)
    return cloud.driver


# Capacity


@pytest.mark.accepts("C12")
async def test_a_node_that_gets_no_host_is_given_back_and_nothing_remains_of_it(
    server: AzureServer, cloud: Cloud
) -> None:
    full = Refusal(200, "ZonalAllocationFailed", "Allocation failed. No capacity in zone 1.")
    server.refusals = [(full, True)]
    answers = await cloud.create(launches("n0", "n1", "n2", zone="1"))
    assert len(instances(answers)) == 2
    (refused,) = [one for one in answers.values() if isinstance(one, NoCapacity)]
    assert "zone 1" in str(refused)
    await running(cloud, "blue", 2)
    other_zone = await cloud.create(launches("n0", "n1", "n2", zone="2"))
    assert len(instances(other_zone)) == 3


async def test_a_size_that_is_not_to_be_had_is_no_capacity(
    server: AzureServer, cloud: Cloud
) -> None:
    server.refusals = [(Refusal(409, "SkuNotAvailable", "not available in westeurope"), False)]
    assert isinstance((await cloud.create(launches("n0")))["n0"], NoCapacity)
    assert server.machines == {}


async def test_what_fails_after_the_wait_is_listed_as_broken(
    server: AzureServer, cloud: Cloud
) -> None:
    driver(cloud).patience = Patience(pause_s=0.01, limit_s=0.05)
    server.refusals = [(Refusal(200, "AllocationFailed", "full"), True)]
    server.allocate_s = LONG_S
    (made,) = instances(await cloud.create(launches("n0")))
    assert made.state is InstanceState.PENDING
    server.machine(made.id).allocated_at = 0
    (broken,) = await until(
        cloud, "blue", lambda found: found[0].state is not InstanceState.PENDING
    )
    assert (broken.id, broken.state) == (made.id, InstanceState.BROKEN)
    await delete_until_gone(cloud, "blue")


async def test_a_wait_that_is_throttled_loses_no_machine(server: AzureServer, cloud: Cloud) -> None:
    server.allocate_s = LONG_S
    creating = asyncio.create_task(cloud.create(launches("n0")))
    while not server.machines:
        assert not creating.done(), creating
        await asyncio.sleep(0.005)
    server.throttles = 3
    while server.throttles:
        assert not creating.done(), creating
        await asyncio.sleep(0.005)
    (one,) = server.machines.values()
    one.allocated_at = 0
    assert len(instances(await creating)) == 1


# Names as keys


async def test_a_new_client_whose_list_lags_makes_no_second_machine(
    server: AzureServer, cloud: Cloud, tmp_path: Path
) -> None:
    server.hide_s = LONG_S
    other = client(block(server, tmp_path), tmp_path)
    for each in (cloud, other):
        driver(each).patience = Patience(pause_s=0.01, limit_s=0.02)
    (made,) = instances(await cloud.create(launches("n0")))
    assert list(await other.list("blue")) == []
    (again,) = instances(await other.create(launches("n0")))
    await other.close()
    assert again.id == made.id
    assert len(server.machines) == 1


async def test_a_name_that_is_still_going_is_waited_for_though_no_list_shows_it(
    server: AzureServer, cloud: Cloud
) -> None:
    server.hide_s = server.delete_s = LONG_S
    driver(cloud).patience = Patience(pause_s=0.01, limit_s=0.02)
    (made,) = instances(await cloud.create(launches("n0")))
    assert await cloud.delete([made]) == {}
    going = (await cloud.create(launches("n0")))["n0"]
    assert isinstance(going, Transient)
    assert "still being deleted" in str(going)


async def test_what_is_going_is_not_deleted_again(server: AzureServer, cloud: Cloud) -> None:
    server.delete_s = LONG_S
    await cloud.create(launches("n0"))
    await cloud.delete(await running(cloud, "blue", 1))
    (going,) = await cloud.list("blue")
    assert going.state is InstanceState.DELETING
    before = len(server.calls)
    assert await cloud.delete([going]) == {}
    assert len(server.calls) == before


async def test_machines_say_whose_they_are_and_where(server: AzureServer, cloud: Cloud) -> None:
    began = time.time()
    await cloud.create(launches("n0", zone="2"))
    (one,) = await running(cloud, "blue", 1)
    assert (one.zone, one.image, one.flavor) == ("2", "base", "small")
    assert began - 1 < one.created_at < time.time() + 1
    body = server.machine(one.id).body
    assert body["tags"]["springtide-cluster"] == "blue"
    (interface,) = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    assert interface["tags"] == body["tags"]
    assert KEY in str(body["properties"]["osProfile"])


async def test_all_pages_are_read(server: AzureServer, cloud: Cloud) -> None:
    server.page = 2
    await cloud.create(launches(*(f"n{number}" for number in range(5))))
    found = await running(cloud, "blue", 5)
    assert len({one.address for one in found} - {None}) == 5
    assert len(await cloud.flavors()) == 3


# A busy cloud

Call = Callable[[Provider, Instance], Awaitable[object]]
CALLS: dict[str, Call] = {
    "list": lambda cloud, one: cloud.list("blue"),
    "delete": lambda cloud, one: _answer_of(cloud.delete([one])),
    "create": lambda cloud, one: _answer_of(cloud.create(launches("n9"))),
    "reboot": lambda cloud, one: _answer_of(cloud.reboot(launches("n0"))),
    "snapshot": lambda cloud, one: cloud.snapshot(one, "golden"),
    "images": lambda cloud, one: cloud.images("blue"),
    "flavors": lambda cloud, one: cloud.flavors(),
    "console": lambda cloud, one: cloud.console([one]),
    "remove": lambda cloud, one: cloud.remove("green"),
}


async def _answer_of(asked: Awaitable[object]) -> object:
    """Errors of single nodes are raised here."""
    answers = await asked
    assert isinstance(answers, dict)
    for one in answers.values():
        if isinstance(one, Exception):
            raise one
    return answers


@pytest.mark.accepts("C11")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_too_many_calls_are_told_at_once_by_every_call(
    server: AzureServer, cloud: Cloud, call: Call
) -> None:
    """The SDK tries nothing again: one refusal, one error."""
    await cloud.create(launches("n0"))
    (one,) = await running(cloud, "blue", 1)
    server.throttles = 1
    with pytest.raises(Throttled, match="wait 7 s"):
        await call(cloud, one)
    assert server.throttles == 0


class Hasty(Random):
    """No pauses: the tries are counted, not the seconds."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


@pytest.mark.accepts("C11")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_nine_refusals_are_borne_and_ten_are_not(
    server: AzureServer, cloud: Cloud, call: Call
) -> None:
    guard = Guard(cloud, Hasty())
    await cloud.create(launches("n0"))
    (one,) = await running(cloud, "blue", 1)
    server.throttles = 10
    with pytest.raises(Throttled, match="tried 10 times"):
        await call(guard, one)
    assert server.throttles == 0
    server.throttles = 9
    await call(guard, one)


async def test_a_launch_that_is_throttled_asks_for_no_more(
    server: AzureServer, cloud: Cloud
) -> None:
    nodes = [f"n{number}" for number in range(200)]
    server.refusals = [(Refusal(429, "TooManyRequests", "Too many requests."), False)] * 20
    answers = await cloud.create(launches(*nodes))
    assert isinstance(answers["n199"], Throttled)
    assert len(server.calls) < 60


class Identity(BaseHTTPRequestHandler):
    """Where a machine of Azure's is told tokens of its own."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        token = {"access_token": "of-the-machine", "expires_on": str(int(time.time() + LONG_S))}
        body = json.dumps(token | {"token_type": "Bearer", "resource": "r"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextmanager
def identity() -> Iterator[tuple[str, list[str]]]:
    """Its address, and what it is asked."""
    Identity.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Identity) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/token", Identity.asked
        finally:
            http.shutdown()
            thread.join(10)


async def test_without_a_credentials_file_the_machine_itself_signs_in(
    server: AzureServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked before the first call."""
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"):
        monkeypatch.delenv(name, raising=False)
    with identity() as (address, asked), nobody() as nowhere:
        monkeypatch.setenv("IDENTITY_ENDPOINT", address)
        monkeypatch.setenv("IDENTITY_HEADER", "header")
        wanted = block(server, tmp_path, credentials=None, endpoint=f"https://{nowhere}")
        opened = client(wanted, tmp_path)
        assert (asked, server.calls) == ([], [])
        with pytest.raises(Transient):
            await opened.list("blue")
        assert [path.partition("?")[0] for path in asked] == ["/token"]
        await opened.close()


async def test_a_cloud_that_does_not_answer_is_not_waited_for_for_ever(
    server: AzureServer, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        slow = client(block(server, tmp_path, endpoint=address, timeout=0.2), tmp_path)
        began = time.monotonic()
        with pytest.raises(Transient):
            await slow.list("blue")
        assert time.monotonic() - began < 60
        await slow.close()


# The site


async def test_an_interface_without_a_machine_goes_with_the_site(
    server: AzureServer, cloud: Cloud
) -> None:
    for cluster in ("blue", "green"):
        id = f"{azure.SCOPE}/providers/Microsoft.Network/networkInterfaces/{cluster}-nic"
        server.interfaces_left[f"{cluster}-nic"] = {
            "id": id,
            "tags": {"Springtide-Cluster": cluster},
            "properties": {},
        }
    await cloud.remove("blue")
    assert list(server.interfaces_left) == ["green-nic"]


async def test_an_image_is_made_while_the_node_runs_and_nodes_are_made_of_it(
    server: AzureServer, cloud: Cloud
) -> None:
    await cloud.create(launches("n0"))
    (one,) = await running(cloud, "blue", 1)
    began = time.time()
    image = await cloud.snapshot(one, "golden")
    assert [each.state for each in await cloud.list("blue")] == [InstanceState.RUNNING]
    assert (image.ready, image.arch) == (True, "x86_64")
    assert began - 1 < image.created_at < time.time() + 1
    made = server.made["images"][image.id.rsplit("/", 1)[-1]]["properties"]
    assert made["hyperVGeneration"] == "V2"
    assert made["storageProfile"]["osDisk"]["osState"] == "Generalized"
    await cloud.forget(image)
    assert server.made["snapshots"] == {}


async def test_flavors_are_told_with_their_architecture_threads_and_gpus(cloud: Cloud) -> None:
    found = await cloud.flavors()
    small, arm = found["Standard_D2s_v5"], found["Standard_D4ps_v5"]
    assert (small.cpus, small.memory, small.arch, small.threads) == (2, 8192, "x86_64", 2)
    assert (arm.arch, arm.threads, arm.price) == ("aarch64", 1, None)
    assert found["Standard_NC24ads_A100_v4"].gpus == 1


# Checks


def failed(checks: object) -> dict[str, Check]:
    assert isinstance(checks, list)
    return {one.name: one for one in checks if not one.ok}


async def test_a_file_that_fits_passes_all_checks(server: AzureServer, cloud: Cloud) -> None:
    before = len(server.calls)
    assert failed(await cloud.check("blue", [NEED])) == {}
    assert all(call.startswith("GET") for call in server.calls[before:])


@pytest.mark.accepts("A25")
async def test_credentials_that_others_can_read_are_complained_about(
    server: AzureServer, cloud: Cloud, tmp_path: Path
) -> None:
    (tmp_path / "azure.json").chmod(0o640)
    found = failed(await cloud.check("blue", [NEED]))["credentials file"]
    assert found.todo == f"chmod 600 {tmp_path / 'azure.json'}"


async def test_wrong_credentials_are_told_without_showing_them(
    server: AzureServer, tmp_path: Path
) -> None:
    wanted = block(server, tmp_path)
    (tmp_path / "azure.json").write_text(
        '{"tenantId": "t", "clientId": "c", "clientSecret": "hidden-one"}'
    )
    other = client(wanted, tmp_path)
    found = failed(await other.check("blue", [NEED]))
    await other.close()
    assert "InvalidAuthenticationToken" in found["credentials"].text
    assert "hidden-one" not in str(found)


async def test_what_the_file_has_wrong_is_told_with_what_to_do(
    server: AzureServer, tmp_path: Path
) -> None:
    wrong = client(block(server, tmp_path, subnet=f"{azure.SUBNET}-gone"), tmp_path)
    server.rights = [{"actions": ["*/read"], "notActions": []}]
    needs = [
        replace(NEED, zones=["3"]),
        replace(NEED, image="missing"),
        replace(NEED, flavors=["arm"]),
    ]
    found = failed(await wrong.check("blue", needs))
    await wrong.close()
    assert found.keys() == {"rights", "subnet", "image missing", "image base", "flavor small"}
    assert "virtualMachines/write" in found["rights"].text
    assert "zone 3" in found["flavor small"].text
    assert found["image base"].todo == "name an image for aarch64 in images.base.id"


async def test_an_image_of_a_gallery_is_found_and_its_architecture_held_against_the_flavor(
    cloud: Cloud,
) -> None:
    fits = replace(NEED, image="gallery", flavors=["arm"])
    assert failed(await cloud.check("blue", [fits])) == {}
    assert failed(await cloud.check("blue", [replace(NEED, image="gallery")])).keys() == {
        "image gallery"
    }


async def test_a_size_that_the_account_may_not_use_is_told(
    server: AzureServer, cloud: Cloud
) -> None:
    limit = {"type": "Location", "reasonCode": "NotAvailableForSubscription"}
    server.skus[0] = {**server.skus[0], "restrictions": [limit]}
    found = failed(await cloud.check("blue", [NEED]))
    assert "NotAvailableForSubscription" in found["flavor small"].text
    gone = server.skus.pop(0)
    found = failed(await cloud.check("blue", [NEED]))
    assert f"no machines of size {gone['name']}" in found["flavor small"].text


async def test_quotas_count_what_others_use_and_our_own_nodes_once(
    server: AzureServer, cloud: Cloud
) -> None:
    server.limits["standardDSv5Family"] = 28
    assert failed(await cloud.check("blue", [NEED])) == {}
    await cloud.create(launches("n0", "n1"))
    await running(cloud, "blue", 2)
    assert failed(await cloud.check("blue", [NEED])) == {}
    server.others_cores = 9
    found = failed(await cloud.check("blue", [NEED]))["quota standardDSv5Family"]
    assert "13 of 28 are used, 16 more" in found.text
    assert found.todo == "ask for 1 more in the portal, Quotas"


async def test_spot_nodes_have_a_quota_of_their_own(server: AzureServer, cloud: Cloud) -> None:
    server.limits |= {"standardDSv5Family": 0, "lowPriorityCores": 20}
    found = failed(await cloud.check("blue", [replace(NEED, markets=["spot"])]))
    assert found.keys() == {"quota lowPriorityCores"}
