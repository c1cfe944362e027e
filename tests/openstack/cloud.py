"""The standing cloud as tests see it: how to reach it, and what can be done to it."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openstack.compute.v2.server import Server
from openstack.compute.v2.service import Service
from openstack.config import OpenStackConfig
from openstack.connection import Connection
from openstack.exceptions import HttpException

from tests.openstack import conf, contents
from tests.openstack.control_plane import WORKERS, Servers
from tests.openstack.proxy import Proxy

GONE_S = 90.0


@dataclass(slots=True)
class Cloud:
    """`clouds_yaml` knows the clouds `test` (a member's password), `appcred` (the same member by
    an application credential) and `admin`; `nova` counts calls and makes faults."""

    clouds_yaml: Path
    admin: Connection
    project_id: str
    nova: Proxy
    servers: Servers
    has_volumes: bool = False
    is_limited: bool = False
    """There may be a quota, or no room, that a test made so."""
    images: dict[str, str] = field(default_factory=dict)
    flavors: dict[str, str] = field(default_factory=dict)
    network_id: str = ""

    def connect(self, name: str = "test", **options: Any) -> Connection:
        """As one of the users; closed by the caller."""
        config = OpenStackConfig(config_files=[str(self.clouds_yaml)], load_envvars=False)
        return Connection(config=config.get_one(name, **options))

    def set_quota(self, **limits: int) -> None:
        """Of the members' project: `instances`, `cores`, `ram`; -1 is without limit."""
        self.is_limited = True
        self.admin.set_compute_quotas(self.project_id, **limits)

    def reset_quota(self) -> None:
        self.admin.delete_compute_quotas(self.project_id)

    def disable_compute(self) -> None:
        """From now on no valid host is found for new instances."""
        self.is_limited = True
        self.admin.compute.disable_service(self._compute(), disabled_reason="test")

    def enable_compute(self) -> None:
        self.admin.compute.enable_service(self._compute())

    @contextmanager
    def full(self) -> Iterator[None]:
        """No valid host, for the length of the block."""
        self.disable_compute()
        try:
            yield
        finally:
            self.enable_compute()

    @contextmanager
    def down(self, server: str) -> Iterator[None]:
        """One server is gone: keystone, glance, neutron, nova-compute, ... refuse connections;
        for nova its proxy answers 503."""
        self.servers.processes.stop(server)
        try:
            yield
        finally:
            self.servers.start(server)
            if server not in WORKERS:
                self.servers.await_api(server)

    @contextmanager
    def hung(self, server: str) -> Iterator[None]:
        """One server takes connections and answers nothing; what it was asked it does later."""
        self.servers.processes.send(server, signal.SIGSTOP)
        try:
            yield
        finally:
            self.servers.processes.send(server, signal.SIGCONT)

    def start_volumes(self) -> None:
        """Cinder costs more memory than any test but those of volumes should: on demand."""
        if not self.has_volumes:
            contents.add_service(self.admin, *contents.VOLUMES)
            with contents.admin() as admin:
                self.servers.start_volumes(lambda: _volumes_can_be_made(admin))
            self.has_volumes = True

    def clean(self) -> None:
        """As it was at first, for the next test: no instances, faults, counts or limits."""
        self.nova.forget()
        if self.is_limited:
            self.enable_compute()
            self.reset_quota()
            self.is_limited = False
        for server in self._servers():
            self.admin.compute.delete_server(server, ignore_missing=True)
        _until(lambda: not self._servers(), "instances are still there")
        if self.has_volumes:
            with self.connect() as member:
                for volume in member.block_storage.volumes(details=False):
                    member.block_storage.delete_volume(volume.id, ignore_missing=True)
        self.nova.forget()

    def await_instances(self, member: Connection, number: int) -> None:
        _until(
            lambda: len(list(member.compute.servers())) == number,
            f"there are not {number} instances",
        )

    def look_around(self) -> None:
        """Learn the ids of what is in it."""
        self.images = {image.name: image.id for image in self.admin.image.images()}
        self.flavors = {flavor.name: flavor.id for flavor in self.admin.compute.flavors()}
        self.network_id = next(self.admin.network.networks(name=contents.NETWORK)).id

    def is_ready(self) -> bool:
        """Its workers have reported and the host is known to the scheduler."""
        up = {service.binary for service in self.admin.compute.services() if service.state == "up"}
        return up >= set(WORKERS) and bool(list(self.admin.compute.hypervisors()))

    def _servers(self) -> list[Server]:
        """Of all projects."""
        return list(self.admin.compute.servers(details=False, all_projects=True))

    def _compute(self) -> Service:
        return next(iter(self.admin.compute.services(binary="nova-compute")))


def _until(is_so: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + GONE_S
    while not is_so():
        assert time.monotonic() < deadline, f"{otherwise} after {GONE_S:.0f} s"
        time.sleep(0.1)


def _volumes_can_be_made(admin: Connection) -> bool:
    """Cinder lists its services before they listen: a volume asked for then is an error, or lost.
    Its scheduler tells the places that it knows, and the place itself what it can do: asked before
    they listen, they never answer, and Cinder says so after a minute."""
    try:
        pools = [pool.name for pool in admin.block_storage.backend_pools()]
        place = pools[0].partition("#")[0] if pools else ""
        return bool(place) and bool(admin.block_storage.get_capabilities(place))
    except HttpException:
        return False


def write_clouds(path: Path, credential: tuple[str, str]) -> None:
    """JSON is YAML. The names of clouds and users are ours: nothing here is secret."""
    common = {"region_name": "RegionOne", "identity_api_version": "3"}
    by_credential = {
        "auth_url": conf.AUTH_URL,
        "application_credential_id": credential[0],
        "application_credential_secret": credential[1],
    }
    clouds = {
        "test": {**common, "auth": contents.auth_of(contents.MEMBER, contents.PROJECT)},
        "appcred": {**common, "auth_type": "v3applicationcredential", "auth": by_credential},
        "admin": {**common, "auth": contents.auth_of("admin", "admin")},
    }
    path.write_text(json.dumps({"clouds": clouds}, indent=2))
    path.chmod(0o600)


def make_credential() -> tuple[str, str]:
    """Only its owner can make an application credential; its secret is told once."""
    with contents.connect_as(contents.MEMBER, contents.PROJECT) as member:
        user = str(member.current_user_id)
        made = contents.identity_of(member).create_application_credential(user, name="springtide")
    return made.id, made.secret
