"""The control plane that the provider for OpenStack is tested against does what it is there for."""

from collections.abc import Iterator

import pytest
from keystoneauth1.exceptions import ClientException
from openstack.compute.v2.server import Server
from openstack.connection import Connection
from openstack.exceptions import ForbiddenException, HttpException, ResourceFailure

from tests.openstack.cloud import Cloud
from tests.openstack.plugin import MARKS, openstack_cloud

__all__ = ["openstack_cloud"]

pytestmark = [*MARKS, pytest.mark.bed]


@pytest.fixture
def cloud(openstack_cloud: Cloud) -> Iterator[Cloud]:
    yield openstack_cloud
    openstack_cloud.clean()


def create(cloud: Cloud, member: Connection, **more: object) -> Server:
    request = {
        "name": "node-1",
        "image_id": cloud.images["image-a"],
        "flavor_id": cloud.flavors["small"],
        "networks": [{"uuid": cloud.network_id}],
    }
    return member.compute.create_server(**{**request, **more})


@pytest.mark.parametrize("user", ["test", "appcred"])
def test_an_instance_comes_and_goes(cloud: Cloud, user: str) -> None:
    with cloud.connect(user) as member:
        server = create(cloud, member)
        member.compute.wait_for_server(server, interval=0.2, wait=60)
        member.compute.delete_server(server)
        member.compute.wait_for_delete(server, interval=0.2, wait=60)
    assert cloud.nova.count("POST", "/servers") == 1
    assert cloud.nova.count("DELETE", "/servers/[^/]+") == 1


def test_a_quota_is_kept(cloud: Cloud) -> None:
    cloud.set_quota(instances=0)
    with cloud.connect() as member, pytest.raises(ForbiddenException, match="Quota exceeded"):
        create(cloud, member)


def test_a_full_cloud_finds_no_valid_host(cloud: Cloud) -> None:
    with cloud.full(), cloud.connect() as member, pytest.raises(ResourceFailure):
        member.compute.wait_for_server(create(cloud, member), interval=0.2, wait=60)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_error_is_answered_once_and_nothing_done(cloud: Cloud, status: int) -> None:
    cloud.nova.fail("POST", "/servers", status=status, retry_after_s=0)
    with cloud.connect(compute_status_code_retries=0) as member:
        with pytest.raises(HttpException) as failed:
            create(cloud, member)
        assert failed.value.status_code == status
        assert not list(member.compute.servers())


@pytest.mark.parametrize("silent", [False, True])
def test_a_lost_reply_leaves_an_instance(cloud: Cloud, silent: bool) -> None:
    cloud.nova.lose_reply("POST", "/servers", silent=silent)
    with cloud.connect(api_timeout=3) as member:
        with pytest.raises(ClientException):
            create(cloud, member)
        assert [server.name for server in member.compute.servers()] == ["node-1"]
    assert [call.status for call in cloud.nova.calls("POST")] == [0]


def test_a_server_that_is_down_comes_back(cloud: Cloud) -> None:
    with cloud.connect() as member:
        with cloud.down("neutron"), pytest.raises(HttpException):
            create(cloud, member)
        member.compute.wait_for_server(create(cloud, member), interval=0.2, wait=60)


def test_a_server_that_hangs_performs_later_what_it_was_asked(cloud: Cloud) -> None:
    with cloud.connect(api_timeout=3) as member:
        with cloud.hung("nova"), pytest.raises(ClientException):
            create(cloud, member)
        cloud.await_instances(member, 1)


def test_an_instance_boots_from_a_volume(cloud: Cloud) -> None:
    cloud.start_volumes()
    volume = {
        "boot_index": 0,
        "uuid": cloud.images["image-a"],
        "source_type": "image",
        "destination_type": "volume",
        "volume_size": 1,
        "delete_on_termination": True,
    }
    with cloud.connect() as member:
        server = create(cloud, member, image_id="", block_device_mapping=[volume])
        member.compute.wait_for_server(server, interval=0.2, wait=60)
        assert [v.status for v in member.block_storage.volumes()] == ["in-use"]
