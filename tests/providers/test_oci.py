"""Oracle's cloud: the contract of providers, over its real SDK and a server of ours."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from springtide.guard import TRIES, Guard
from springtide.ports import (
    CloudImage,
    Denied,
    Instance,
    Launch,
    NoCapacity,
    Provider,
    Rejected,
    Throttled,
    Transient,
)
from tests.providers.conformance import Conformance
from tests.providers.servers.oci import REFUSALS, OciServer, Place, open_place, serving
from tests.providers.servers.oci_cloud import (
    ARM_IMAGE,
    DOMAINS,
    OTHER_SUBNET,
    Json,
    Refusal,
    full,
)
from tests.providers.servers.oci_machine import METADATA
from tests.providers.world import (
    BLUE,
    GREEN,
    LIMIT_S,
    World,
    delete_until_gone,
    instances,
    nobody,
    running,
    until,
)

N0 = Launch(BLUE, "n0", 1, "general", "linux", "small")


@pytest.fixture(scope="module")
def server() -> Iterator[OciServer]:
    with serving() as server:
        yield server


@pytest.fixture
async def place(
    server: OciServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    """What takes this cloud a moment may take a busy machine long."""
    monkeypatch.setattr("springtide.providers.oci.driver.PATIENCE_S", LIMIT_S)
    async with open_place(server, tmp_path) as place:
        yield place


@pytest.mark.accepts("C30")
class TestOci(Conformance):
    @pytest.fixture
    async def world(self, place: Place) -> World:
        return place.world()


async def created(provider: Provider, launch: Launch) -> Any:
    return (await provider.create([launch]))[launch.node]


def requested(place: Place, node: str = "n0") -> Json:
    """What the cloud was asked for, for the only instance of a node."""
    (machine,) = place.cloud.nodes(BLUE, node)
    return machine.body


def asked(place: Place, what: str) -> int:
    return len([call for call in place.cloud.calls if call.endswith(what)])


# --- none twice ------------------------------------------------------------------------------


async def test_a_launch_that_is_not_listed_yet_is_not_made_again_by_another_client(
    place: Place,
) -> None:
    place.cloud.lag_s = 600.0
    first = await created(place.open(), N0)
    again = await created(place.open(), N0)
    assert (first.id, len(place.cloud.machines)) == (again.id, 1)


async def test_a_lost_reply_and_a_late_list_make_no_second_one_for_another_client(
    place: Place,
) -> None:
    place.cloud.lag_s, place.cloud.lost = 600.0, 1
    assert isinstance(await created(place.open(), N0), Transient)
    assert isinstance(await created(place.open(), N0), Instance)
    assert len(place.cloud.machines) == 1


async def test_what_oci_gives_up_by_itself_is_gone_and_says_so_if_it_is_asked_for_again(
    place: Place,
) -> None:
    provider = place.open()
    made = await created(provider, N0)
    await running(provider, BLUE, 1)
    place.cloud.lose(made.id)
    assert await provider.list(BLUE) == []
    answer = await created(place.open(), N0)
    assert isinstance(answer, NoCapacity)
    assert made.id in str(answer)
    assert isinstance(await created(place.open(), replace(N0, generation=2)), Instance)


async def test_what_is_gone_is_not_listed_though_oci_lists_it_for_hours(place: Place) -> None:
    provider = place.open()
    await created(provider, N0)
    await delete_until_gone(provider, BLUE)
    assert [one.state for one in place.cloud.machines.values()] == ["TERMINATED"]


@pytest.mark.accepts("C2")
async def test_two_clusters_share_a_compartment_and_their_names_and_nothing_else(
    place: Place,
) -> None:
    blue, green = place.open(), place.open()
    for cluster, provider in ((BLUE, blue), (GREEN, green)):
        await created(provider, replace(N0, cluster=cluster))
    greens = await running(green, GREEN, 1)
    await running(blue, BLUE, 1)
    await delete_until_gone(blue, BLUE)
    await blue.remove(BLUE)
    assert await green.list(GREEN) == greens


# --- requests --------------------------------------------------------------------------------


@pytest.mark.accepts("N6")
async def test_flavor_image_zone_market_and_options_reach_the_cloud(place: Place) -> None:
    key = place.config.parent / "key.pub"
    key.write_text("ssh-ed25519 AAAA admin\n")
    options = {"faultDomain": "FAULT-DOMAIN-1", "agentConfig": {"isMonitoringDisabled": True}}
    provider = place.open(options=options, disk="120G", ssh_key=key, subnets={"AD-2": OTHER_SUBNET})
    launch = replace(N0, zone="2", market="preemptible", image="newer")
    assert (await created(provider, launch)).zone == "2"
    (one,) = await running(provider, BLUE, 1)
    assert (one.image, one.flavor, one.zone) == ("newer", "small", "2")
    assert one.address is not None
    body = requested(place)
    assert body["availabilityDomain"] == DOMAINS[1]
    assert body["createVnicDetails"]["subnetId"] == OTHER_SUBNET
    assert body["sourceDetails"]["bootVolumeSizeInGBs"] == 120
    assert body["metadata"]["ssh_authorized_keys"] == "ssh-ed25519 AAAA admin"
    assert body["preemptibleInstanceConfig"]["preemptionAction"]["type"] == "TERMINATE"
    assert body.items() >= options.items()


@pytest.mark.accepts("C7")
async def test_a_flexible_shape_is_launched_with_its_size(place: Place) -> None:
    await created(place.open(), N0)
    assert requested(place)["shape"] == "VM.Standard.E4.Flex"
    assert requested(place)["shapeConfig"] == {"ocpus": 4.0, "memoryInGBs": 64.0}


@pytest.mark.accepts("C8")
async def test_an_architecture_leads_to_its_image(place: Place) -> None:
    provider = place.open()
    await created(provider, replace(N0, flavor="arm"))
    assert requested(place)["imageId"] == ARM_IMAGE
    assert {one.image for one in await running(provider, BLUE, 1)} == {"linux"}


async def test_an_unknown_zone_is_refused_with_the_known_ones(place: Place) -> None:
    answer = await created(place.open(), replace(N0, zone="9"))
    assert isinstance(answer, Rejected)
    assert all(domain in str(answer) for domain in DOMAINS)
    assert asked(place, "/instances") == 1


@pytest.mark.accepts("C6")
async def test_flavors_tell_what_nodes_of_the_file_have(place: Place) -> None:
    found = await place.open().flavors()
    flex, arm = found["VM.Standard.E4.Flex.4.64"], found["VM.Standard.A1.Flex.4.24"]
    assert (flex.cpus, flex.memory, flex.threads, flex.arch) == (8, 65536, 2, "x86_64")
    assert (arm.cpus, arm.memory, arm.threads, arm.arch) == (4, 24576, 1, "aarch64")
    assert found["VM.GPU3.2"].gpus == 2
    assert "VM.Standard.E4.Flex" not in found


# --- calls -----------------------------------------------------------------------------------


async def test_addresses_are_asked_for_by_the_page_and_only_while_some_are_new(
    place: Place,
) -> None:
    place.cloud.page = 4
    provider = place.open()
    await provider.create([replace(N0, node=f"n{i}") for i in range(10)])
    listed = await running(provider, BLUE, 10)
    assert {one.address for one in listed} == {one.address for one in place.cloud.machines.values()}
    place.cloud.calls.clear()
    assert await provider.list(BLUE) == listed
    assert place.cloud.calls == ["GET /20160918/instances"] * 3
    place.cloud.calls.clear()
    assert await place.open().list(BLUE) == listed
    assert len(place.cloud.calls) == 3 + 3 + 5


async def test_what_is_going_is_not_asked_to_go_again(place: Place) -> None:
    provider = place.open()
    await created(provider, N0)
    await running(provider, BLUE, 1)
    await provider.delete(await provider.list(BLUE))
    for one in place.cloud.machines.values():
        one.turn("TERMINATING")
    going = await provider.list(BLUE)
    place.cloud.calls.clear()
    assert await provider.delete(going) == {}
    assert place.cloud.calls == []


async def test_an_instance_that_we_may_not_delete_is_not_taken_for_gone(place: Place) -> None:
    provider = place.open()
    made = await created(provider, N0)
    place.cloud.protected.add(made.id)
    refused = await provider.delete([made])
    assert {id: type(error) for id, error in refused.items()} == {made.id: Denied}
    assert len(await running(provider, BLUE, 1)) == 1


async def test_the_console_is_its_end(place: Place) -> None:
    provider = place.open()
    await created(provider, N0)
    (one,) = await running(provider, BLUE, 1)
    (text,) = (await provider.console([one])).values()
    assert text.endswith(f"{BLUE}-n0 login: (boot 1)\n")


async def test_the_console_of_what_has_not_begun_is_empty(place: Place) -> None:
    provider = place.open()
    made = await created(provider, N0)
    place.cloud.machines[made.id].turn("PROVISIONING")
    assert await provider.console([made]) == {made.id: ""}


async def test_an_image_is_ready_once_oci_has_made_it(place: Place) -> None:
    provider = place.open()
    await created(provider, replace(N0, flavor="arm"))
    (one,) = await running(provider, BLUE, 1)
    place.cloud.image_s = 600.0
    image = await provider.snapshot(one, "golden")
    assert (image.ready, image.arch) == (False, "aarch64")
    place.cloud.images[image.id].turn("AVAILABLE")
    assert [(known.id, known.ready) for known in await provider.images(BLUE)] == [(image.id, True)]


# --- refusals --------------------------------------------------------------------------------


class Hurried(Random):
    """Waits as short as it may."""

    def uniform(self, a: float, b: float) -> float:
        return a


Act = Callable[[Provider, Instance], Awaitable[object]]
ACTS: dict[str, Act] = {
    "list": lambda provider, one: provider.list(BLUE),
    "create": lambda provider, one: created(provider, replace(N0, node="n1")),
    "delete": lambda provider, one: provider.delete([one]),
    "reboot": lambda provider, one: provider.reboot([N0]),
    "snapshot": lambda provider, one: provider.snapshot(one, "golden"),
    "images": lambda provider, one: provider.images(BLUE),
    "forget": lambda provider, one: provider.forget(CloudImage("gone", "golden")),
    "flavors": lambda provider, one: provider.flavors(),
    "console": lambda provider, one: provider.console([one]),
    "remove": lambda provider, one: provider.remove(GREEN),
}


async def outcome(act: Act, provider: Provider, one: Instance) -> object:
    """The answer, or the error that is the answer to one node or to all."""
    try:
        answer = await act(provider, one)
    except Throttled as error:
        return error
    errors = (
        [each for each in answer.values() if isinstance(each, Throttled)]
        if isinstance(answer, dict)
        else []
    )
    return errors[0] if errors else answer


@pytest.mark.accepts("C11")
@pytest.mark.parametrize("name", ACTS)
async def test_any_call_that_is_throttled_nine_times_works_and_ten_times_fails_with_the_reason(
    place: Place, name: str
) -> None:
    guarded = Guard(place.open(), Hurried())
    await created(guarded, N0)
    (one,) = await running(guarded, BLUE, 1)
    place.cloud.throttled = TRIES
    failed = await outcome(ACTS[name], guarded, one)
    assert isinstance(failed, Throttled)
    assert "429 TooManyRequests" in str(failed)
    assert "tried 10 times" in str(failed)
    assert place.cloud.throttled == 0
    place.cloud.throttled = TRIES - 1
    worked = await outcome(ACTS[name], guarded, one)
    assert not isinstance(worked, Throttled)
    assert place.cloud.throttled == 0


@pytest.mark.accepts("C11")
async def test_a_launch_itself_that_is_throttled_nine_times_is_made_once(place: Place) -> None:
    guarded = Guard(place.open(), Hurried())
    place.cloud.refusals = [REFUSALS[Throttled]() for _ in range(TRIES - 1)]
    assert isinstance(await created(guarded, N0), Instance)
    assert (asked(place, "POST /20160918/instances"), len(place.cloud.machines)) == (TRIES, 1)


@pytest.mark.accepts("C12")
async def test_a_full_domain_is_told_at_once_and_the_next_choice_is_made(place: Place) -> None:
    guarded = Guard(place.open(), Hurried())
    place.cloud.refusals = [full()]
    answer = await created(guarded, replace(N0, zone="1"))
    assert isinstance(answer, NoCapacity)
    assert "Out of host capacity" in str(answer)
    assert asked(place, "POST /20160918/instances") == 1
    assert isinstance(await created(guarded, replace(N0, zone="2")), Instance)
    assert requested(place)["availabilityDomain"] == DOMAINS[1]


async def test_a_limit_of_the_tenancy_stops_the_launches_beyond_it(place: Place) -> None:
    place.cloud.limits["standard-e4-core-count"] = 8
    answers = await place.open().create([replace(N0, node=f"n{i}") for i in range(3)])
    assert len(instances(answers)) == 2
    (refused,) = (one for one in answers.values() if not isinstance(one, Instance))
    assert "raise the limit" in str(refused)


async def test_the_sdk_tries_nothing_again_by_itself(place: Place) -> None:
    place.cloud.refusals = [Refusal(500, "InternalError", "Internal error occurred")] * 2
    assert isinstance(await created(place.open(), N0), Transient)
    assert asked(place, "POST /20160918/instances") == 1


async def test_a_key_that_oci_does_not_know_is_denied_and_stays_secret(place: Place) -> None:
    pem = place.config.parent / "key.pem"
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    pem.write_bytes(other)
    provider = place.open()
    with pytest.raises(Denied, match="401 NotAuthenticated") as error:
        await provider.list(BLUE)
    secret = other.decode().splitlines()[3]
    assert secret not in f"{error.value}{error.value!r}{provider!r}"


async def test_a_key_that_is_none_is_told_before_any_call(place: Place) -> None:
    (place.config.parent / "key.pem").write_text("secret nonsense")
    with pytest.raises(Denied, match=r"key\.pem cannot be used as a key") as error:
        place.open()
    assert "secret" not in str(error.value)


async def test_a_public_key_that_is_not_there_is_told_before_any_call(place: Place) -> None:
    with pytest.raises(Denied, match="`ssh_key` names a public key"):
        place.open(ssh_key=place.config.parent / "none.pub")


async def test_a_service_that_does_not_answer_is_given_up(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Transient, match="no answer"):
            await place.open(endpoint=endpoint, timeout=0.2).list(BLUE)


async def test_a_reboot_of_what_is_busy_waits_a_moment(place: Place) -> None:
    provider = place.open()
    made = await created(provider, N0)
    place.cloud.machines[made.id].turn("PROVISIONING", "RUNNING", pause_s=0.2)
    assert isinstance((await provider.reboot([N0]))["n0"], Instance)
    await until(provider, BLUE, lambda found: place.cloud.machines[made.id].boots == 2)


# --- the rights of this machine --------------------------------------------------------------


async def test_the_machine_itself_can_be_who_asks(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any file; making the provider calls nobody."""
    monkeypatch.setenv("OCI_METADATA_BASE_URL", f"{place.server.endpoint}{METADATA.rstrip('/')}")
    provider = place.open(auth="instance", credentials=None)
    assert place.cloud.calls == []
    assert isinstance(await created(provider, N0), Instance)
    assert len(await running(provider, BLUE, 1)) == 1
    checks = await provider.check(BLUE, [])
    assert not [one for one in checks if one.name.startswith("file") or one.ok is False]


async def test_a_machine_that_is_none_of_oci_is_told_so(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nobody() as address:
        monkeypatch.setenv("OCI_METADATA_BASE_URL", f"http://{address}")
        with pytest.raises(Transient, match="only on an instance of OCI"):
            await place.open(auth="instance", credentials=None).list(BLUE)
