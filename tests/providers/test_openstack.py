"""The provider for OpenStack against a real one: as far as all are alike, and what only it has.

One file, so that one process runs it: there can be but one such cloud on a machine.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from openstack.connection import Connection
from openstack.network.v2.network import Network

from springtide.guard import TRIES, Guard
from springtide.model import Node, NodeState
from springtide.ports import (
    CloudError,
    Denied,
    Instance,
    Launch,
    Need,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)
from springtide.providers.cloud import Catalog
from springtide.providers.cloud import Cloud as CloudProvider
from springtide.providers.openstack.driver import OpenStackDriver
from springtide.service import Fate, fate
from springtide.spec import Image
from tests.openstack.cloud import Cloud
from tests.openstack.plugin import MARKS
from tests.providers.conformance import Conformance
from tests.providers.openstack_world import (
    SETTLE_S,
    Steady,
    catalog,
    driver,
    server_of,
    spec,
    world_of,
)
from tests.providers.world import BLUE, LIMIT_S, World, instances, running, until

pytestmark = MARKS


@pytest.mark.accepts("C30")
class TestOpenStack(Conformance):
    @pytest.fixture
    def world(self, openstack_cloud: Cloud) -> Iterator[World]:
        with world_of(openstack_cloud) as world:
            yield world


@pytest.fixture
def cloud(openstack_cloud: Cloud) -> Iterator[Cloud]:
    yield openstack_cloud
    openstack_cloud.clean()


@asynccontextmanager
async def opened(cloud: Cloud, /, **more: Any) -> AsyncIterator[CloudProvider]:
    provider = Steady(driver(cloud, **more))
    await provider.prepare(BLUE)
    try:
        yield provider
    finally:
        await provider.close()


def launch(node: str, **more: Any) -> Launch:
    return replace(Launch(BLUE, node, 1, "general", "base", "small"), **more)


def launches(*nodes: str) -> list[Launch]:
    return [launch(node) for node in nodes]


class NoPause(Random):
    """Backoff without its pauses."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


async def removed(provider: CloudProvider) -> None:
    while True:
        try:
            return await provider.remove(BLUE)
        except Transient:
            await asyncio.sleep(0.3)


# --- bulk, quota, room ---------------------------------------------------------------------


async def test_a_quota_that_has_room_for_some_is_used_up_and_the_rest_told(cloud: Cloud) -> None:
    cloud.set_quota(instances=2)
    async with opened(cloud) as provider:
        answers = await provider.create(launches("n0", "n1", "n2"))
        assert [type(answers[f"n{i}"]) for i in range(3)] == [Instance, Instance, QuotaExceeded]
        assert "quota" in str(answers["n2"])
        assert {one.node for one in await provider.list(BLUE)} == {"n0", "n1"}
    assert cloud.nova.count("POST", "/servers") == 1


@pytest.mark.accepts("C12")
async def test_a_full_cloud_gives_nodes_back_quickly_with_the_reason(cloud: Cloud) -> None:
    async with opened(cloud) as provider:
        with cloud.full():
            began = time.monotonic()
            answers = await provider.create(launches("n0", "n1"))
            took_s = time.monotonic() - began
        assert {type(one) for one in answers.values()} == {NoCapacity}
        assert "No valid host" in str(answers["n1"])
        assert took_s < SETTLE_S, "that long it would wait for servers that find no place"
        await until(provider, BLUE, lambda found: not found)


@pytest.mark.accepts("C12")
async def test_the_room_that_is_left_is_used_when_a_bulk_does_not_fit(cloud: Cloud) -> None:
    """The host has the memory for one such node."""
    huge = cloud.admin.compute.create_flavor(name="huge", vcpus=1, ram=700_000, disk=1)
    try:
        async with opened(cloud) as provider:
            answers = await provider.create([launch(node, flavor="huge") for node in ("n0", "n1")])
            assert [type(answers[node]) for node in ("n0", "n1")] == [Instance, NoCapacity]
            (left,) = await until(provider, BLUE, lambda found: len(found) == 1)
            assert (left.node, left.flavor) == ("n0", "huge")
    finally:
        cloud.admin.compute.delete_flavor(huge)


async def test_nodes_are_in_the_server_group_of_their_cluster(cloud: Cloud) -> None:
    async with opened(cloud, server_group="soft-anti-affinity") as provider:
        made = instances(await provider.create(launches("n0", "n1")))
        await provider.prepare(BLUE)
        with cloud.connect() as member:
            (group,) = member.compute.server_groups()
            assert (group.name, group.policy) == (f"springtide-{BLUE}", "soft-anti-affinity")
            assert set(group.member_ids) == {one.id for one in made}
            await removed(provider)
            assert not list(member.compute.server_groups())


# --- ports, addresses, hosts, options --------------------------------------------------------


@contextmanager
def own_network(member: Connection) -> Iterator[Network]:
    """Addresses are chosen only by who owns the network."""
    network = member.network.create_network(name="own")
    try:
        member.network.create_subnet(network_id=network.id, ip_version=4, cidr="10.20.0.0/24")
        yield network
    finally:
        member.network.delete_network(network)


async def test_nodes_get_the_ports_and_addresses_of_the_file(cloud: Cloud) -> None:
    with cloud.connect() as member, own_network(member) as network:
        fixed = [{"ip_address": "10.20.0.8"}]
        port = member.network.create_port(network_id=network.id, fixed_ips=fixed)
        own = {"network": "own", "addresses": {"n0": "10.20.0.7"}, "ports": {"n1": port.id}}
        try:
            async with opened(cloud, **own) as provider:
                await provider.create(launches("n0", "n1", "n2", "n3"))
                found = await running(provider, BLUE, 4)
                assert [one.address for one in found][:2] == ["10.20.0.7", "10.20.0.8"]
                assert len({one.address for one in found}) == 4
                assert cloud.nova.count("POST", "/servers") == 3
        finally:
            cloud.clean()
            assert member.network.get_port(port.id).device_id == ""
            member.network.delete_port(port)


@pytest.mark.accepts("A18")
async def test_nodes_are_pinned_to_hosts_by_who_may(cloud: Cloud) -> None:
    hosts = {"n0": "compute-1", "n1": "compute-99"}
    async with opened(cloud, cloud="admin", hosts=hosts) as provider:
        try:
            answers = await provider.create(launches("n0", "n1"))
            (made,) = instances({"n0": answers["n0"]})
            await until(provider, BLUE, lambda found: found[0].address is not None)
            assert server_of(cloud, made)["OS-EXT-SRV-ATTR:hypervisor_hostname"] == "compute-1"
            assert isinstance(answers["n1"], Rejected)
            assert "compute-99" in str(answers["n1"])
        finally:
            await removed(provider)
    async with opened(cloud, hosts=hosts) as provider:
        answer = (await provider.create(launches("n0")))["n0"]
        assert isinstance(answer, Denied)
        checks = {one.name: one for one in await provider.check(BLUE, [])}
        assert "requested_destination" in checks["cloud rights"].text


@pytest.mark.accepts("N6")
async def test_a_node_has_its_flavor_image_drive_key_zone_and_options(cloud: Cloud) -> None:
    more = {"key": "ops", "security_groups": ["default"], "options": {"description": "ours"}}
    with cloud.connect() as member:
        member.compute.create_keypair(name="ops")
        try:
            async with opened(cloud, **more) as provider:
                wanted = launch("n0", flavor="big", image="other", zone="nova")
                (made,) = instances(await provider.create([wanted]))
                await running(provider, BLUE, 1)
                shown = server_of(cloud, made)
                need = Need("general", 1, "base", ["small"])
                checks = await provider.check(BLUE, [need])
        finally:
            member.compute.delete_keypair("ops")
    assert (made.flavor, made.image, made.zone) == ("big", "other", "nova")
    assert shown["flavor"]["original_name"] == "large"
    assert (shown["key_name"], shown["description"]) == ("ops", "ours")
    assert shown["config_drive"] == "True"
    assert shown["image"]["id"] == cloud.images["image-b"]
    assert [one for one in checks if one.ok is False] == []


# --- images ----------------------------------------------------------------------------------


def in_service(instance: Instance) -> Node:
    return Node(
        instance.node,
        "general",
        state=NodeState.READY,
        generation=instance.generation,
        instance=instance.id,
        image=instance.image,
        flavor=instance.flavor,
    )


@pytest.mark.accepts("A16")
async def test_another_image_in_the_file_recreates_nothing_by_itself(cloud: Cloud) -> None:
    async with opened(cloud) as provider:
        await provider.create(launches("n0", "n1"))
        before = await running(provider, BLUE, 2)
    was = catalog(cloud)
    now = Catalog(
        {**was.images, "base": Image(id="image-b"), "old": Image(id="image-a")}, was.flavors
    )
    other = CloudProvider(OpenStackDriver(spec(cloud.clouds_yaml), now))
    cloud.nova.forget()
    try:
        await other.prepare(BLUE)
        after = await other.list(BLUE)
        assert [one.id for one in after] == [one.id for one in before]
        assert {one.image for one in after} == {"old"}
        assert fate(in_service(before[0]), after[0], "old", ["small"], True) is Fate.REBOOT
        assert cloud.nova.count("POST") == cloud.nova.count("DELETE") == 0
    finally:
        await other.close()


@pytest.mark.accepts("A17")
async def test_a_node_that_boots_from_a_volume_is_not_rebuilt_every_time(cloud: Cloud) -> None:
    cloud.start_volumes()
    async with opened(cloud, volume="1G") as provider:
        assert provider.in_place
        await provider.create(launches("n0"))
        (one,) = await running(provider, BLUE, 1)
        assert server_of(cloud, one)["image"] == ""
        assert one.image == "base"
        assert fate(in_service(one), one, "base", ["small"], True) is Fate.REBOOT
        assert await provider.delete([one]) == {}
        await until(provider, BLUE, lambda found: not found)
        with cloud.connect() as member:
            end = time.monotonic() + LIMIT_S
            while list(member.block_storage.volumes(details=False)):
                assert time.monotonic() < end
                await asyncio.sleep(0.3)


# --- credentials, faults, checks -----------------------------------------------------------------


async def test_an_application_credential_is_enough(cloud: Cloud) -> None:
    async with opened(cloud, cloud="appcred") as provider:
        await provider.create(launches("n0"))
        (one,) = await running(provider, BLUE, 1)
        assert await provider.delete([one]) == {}
        await until(provider, BLUE, lambda found: not found)


@pytest.mark.accepts("C11")
async def test_any_call_that_is_throttled_is_made_again_and_given_up_with_the_reason(
    cloud: Cloud,
) -> None:
    async with opened(cloud) as provider:
        guard = Guard(provider, NoPause())
        cloud.nova.fail("*", ".*", status=429, times=TRIES - 1)
        assert list(await guard.list(BLUE)) == []
        cloud.nova.fail("POST", "/servers", status=429, times=TRIES - 1)
        (made,) = instances(await guard.create(launches("n0")))
        cloud.nova.fail("DELETE", ".*", status=429, times=TRIES - 1)
        assert await guard.delete([made]) == {}
        cloud.nova.forget()
        cloud.nova.fail("GET", "/servers/detail", status=429, times=TRIES)
        with pytest.raises(Throttled, match=f"tried {TRIES} times"):
            await guard.list(BLUE)
        assert cloud.nova.count("GET", "/servers/detail") == TRIES


async def test_a_launch_that_timed_out_is_found_when_it_has_been_made_after_all(
    cloud: Cloud,
) -> None:
    async with opened(cloud, timeout=15.0) as provider:
        cloud.nova.lose_reply("POST", "/servers", silent=True)
        lost = (await provider.create(launches("n0")))["n0"]
        assert isinstance(lost, Transient)
        (made,) = await until(provider, BLUE, lambda found: len(found) == 1)
        assert instances(await provider.create(launches("n0")))[0].id == made.id


async def test_a_launch_that_is_performed_late_is_not_asked_for_again_meanwhile(
    cloud: Cloud,
) -> None:
    async with opened(cloud, timeout=15.0) as provider:
        wanted = launches("n0", "n1")
        with cloud.nova.held("POST", "/servers"):
            for _ in range(3):
                answers = await provider.create(wanted)
                assert {type(one) for one in answers.values()} == {Transient}
                assert "not known yet" in str(answers["n0"])
            assert await provider.list(BLUE) == []
        made = await until(provider, BLUE, lambda found: len(found) == 2)
        adopted = instances(await provider.create(wanted))
        assert [one.id for one in adopted] == [one.id for one in made]
        # Its servers are to be seen before Nova has answered, when it is counted.
        await until(provider, BLUE, lambda _: cloud.nova.count("POST", "/servers") > 0)
        assert cloud.nova.count("POST", "/servers") == 1


async def test_what_the_project_cannot_do_is_told_with_what_to_do(cloud: Cloud) -> None:
    cloud.set_quota(instances=5, cores=100)
    more = {"key": "nobody", "security_groups": ["none"], "addresses": {"n9": "192.0.2.9"}}
    async with opened(cloud, **more) as provider:
        need = Need("general", 6, "absent", ["small", "absent"], ["mars"])
        checks = await provider.check(BLUE, [need])
    wrong = {one.name: one for one in checks if one.ok is False}
    assert wrong.keys() == {
        "cloud flavor absent",
        "cloud image absent",
        "cloud addresses",
        "cloud key",
        "cloud security groups",
        "cloud zones",
        "cloud quota of instances",
    }
    assert all(one.todo for one in wrong.values())


async def test_a_network_that_is_not_there_is_rejected_and_told(cloud: Cloud) -> None:
    async with opened(cloud, network="nowhere") as provider:
        answer: Instance | CloudError = (await provider.create(launches("n0")))["n0"]
        assert isinstance(answer, Rejected)
        assert "nowhere" in str(answer)
        checks = {one.name: one.ok for one in await provider.check(BLUE, [])}
        assert checks["cloud network"] is False
