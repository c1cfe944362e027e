"""What the cloud of the tests has in it, and who may use it: made once, when it is prepared."""

from typing import Any

import openstack
from openstack.connection import Connection
from openstack.identity.v3._proxy import Proxy as IdentityProxy

from tests.openstack import conf

IMAGES = ("image-a", "image-b")
FLAVORS = {"small": (1, 512), "large": (2, 2048)}
NETWORK = "network-1"
SUBNET = "10.10.0.0/20"
MEMBER = "member"
PROJECT = "test"

CATALOG = (
    ("placement", "placement", f"http://{conf.HOST}:{conf.PLACEMENT}"),
    ("image", "glance", f"http://{conf.HOST}:{conf.GLANCE}"),
    ("network", "neutron", f"http://{conf.HOST}:{conf.NEUTRON}"),
    ("compute", "nova", f"http://{conf.HOST}:{conf.NOVA}/v2.1"),
)
VOLUMES = ("block-storage", "cinder", f"http://{conf.HOST}:{conf.CINDER}/v3")
"""In the catalog only once it runs: Nova asks a Cinder that is there before each hard reboot."""


def auth_of(user: str, project: str) -> dict[str, str]:
    return {
        "auth_url": conf.AUTH_URL,
        "username": user,
        "password": conf.SECRET,
        "project_name": project,
        "user_domain_id": "default",
        "project_domain_id": "default",
    }


def connect_as(user: str, project: str, **options: Any) -> Connection:
    """Closed by its taker."""
    auth = auth_of(user, project)
    return openstack.connect(load_yaml_config=False, auth=auth, region_name="RegionOne", **options)


def admin(**options: Any) -> Connection:
    return connect_as("admin", "admin", **options)


def identity_of(cloud: Connection) -> IdentityProxy:
    assert isinstance(cloud.identity, IdentityProxy), "Keystone speaks version 3"
    return cloud.identity


def fill() -> None:
    """Nova is asked where it really listens: there is no proxy yet."""
    behind = f"http://{conf.HOST}:{conf.NOVA_BEHIND}/v2.1"
    with admin(compute_endpoint_override=behind) as cloud:
        _add_people(cloud)
        _add_catalog(cloud)
    with admin(compute_endpoint_override=behind) as cloud:
        _add_images(cloud)
        for name, (cpus, memory_mb) in FLAVORS.items():
            cloud.compute.create_flavor(name=name, vcpus=cpus, ram=memory_mb, disk=1)
        network = cloud.network.create_network(name=NETWORK, is_shared=True)
        cloud.network.create_subnet(
            name=f"{NETWORK}-subnet", network_id=network.id, ip_version=4, cidr=SUBNET
        )


def _add_people(cloud: Connection) -> None:
    _add_user(cloud, "svc", "service", ("admin", "service"))
    _add_user(cloud, MEMBER, PROJECT, ("member",))


def _add_user(cloud: Connection, name: str, project_name: str, roles: tuple[str, ...]) -> None:
    identity = identity_of(cloud)
    project = identity.create_project(name=project_name, domain_id="default")
    user = identity.create_user(
        name=name, password=conf.SECRET, default_project_id=project.id, domain_id="default"
    )
    for role_name in roles:
        role = identity.find_role(role_name) or identity.create_role(name=role_name)
        identity.assign_project_role_to_user(project, user, role)


def _add_catalog(cloud: Connection) -> None:
    for service in CATALOG:
        add_service(cloud, *service)


def add_service(cloud: Connection, kind: str, name: str, url: str) -> None:
    """Who signs in from now on sees it."""
    identity = identity_of(cloud)
    service = identity.create_service(type=kind, name=name)
    identity.create_endpoint(
        service_id=service.id, interface="public", url=url, region_id="RegionOne"
    )


def _add_images(cloud: Connection) -> None:
    """Nova's fake driver never reads them."""
    for name in IMAGES:
        cloud.image.create_image(
            name,
            data=name.encode(),
            disk_format="raw",
            container_format="bare",
            visibility="public",
        )
