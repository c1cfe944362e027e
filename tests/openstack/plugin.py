"""A real OpenStack on loopback for tests: its servers are real, only its machines are not.

Tests import the fixture `openstack_cloud` from here. This folder has no `__init__`: as a package
it would be called `openstack`, as the SDK is.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from openstack.exceptions import SDKException

from tests.openstack import conf, contents, install
from tests.openstack.cloud import Cloud, make_credential, write_clouds
from tests.openstack.control_plane import ROOT, servers
from tests.openstack.prepare import prepare
from tests.openstack.processes import ServerDied
from tests.openstack.proxy import Proxy

MARKS = [
    pytest.mark.real,
    # The first start of all installs the servers.
    pytest.mark.timeout(600),
    # The SDK warns of itself: at each of its objects, and of InfluxDB that nobody asked for.
    pytest.mark.filterwarnings("ignore::openstack.warnings._RemovedInSDKWarning"),
]
"""What a module that takes the fixture has as its `pytestmark`."""

PROGRAMS = ("/usr/sbin/mariadbd", "/usr/lib/rabbitmq/bin/rabbitmq-server")
DAMAGED = (ServerDied, OSError, subprocess.CalledProcessError, SDKException)
"""What a control plane made from a damaged cache fails with."""


@pytest.fixture(scope="module")
def openstack_cloud() -> Iterator[Cloud]:
    """Of one module: another, maybe in another process, waits for it to be gone."""
    missing = [program for program in PROGRAMS if not Path(program).exists()]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: run `make test`")
    with standing_cloud() as cloud:
        yield cloud


@contextmanager
def standing_cloud() -> Iterator[Cloud]:
    """A damaged cache shows in a control plane that does not start: it is made anew, once."""
    with install.only_one(), ExitStack() as stack:
        was_kept = install.environment_path().exists() or install.state_path().exists()
        try:
            cloud = stack.enter_context(_cloud())
        except DAMAGED:
            if not was_kept:
                raise
            _throw_away()
            cloud = stack.enter_context(_cloud())
        yield cloud


@contextmanager
def _cloud() -> Iterator[Cloud]:
    environment = install.environment()
    state = install.kept(install.state_path(), lambda half: prepare(environment, half))
    with ExitStack() as stack:
        made = stack.enter_context(servers(environment, state))
        nova = Proxy(conf.NOVA, conf.NOVA_BEHIND, "/v2.1")
        stack.callback(nova.close)
        made.start_broker_and_database()
        made.start_apis()
        clouds = ROOT / "clouds.yaml"
        made.start_workers()
        write_clouds(clouds, make_credential())
        admin = stack.enter_context(contents.admin())
        project = next(contents.identity_of(admin).projects(name=contents.PROJECT))
        cloud = Cloud(clouds, admin, project.id, nova, made)
        made.processes.until("nova-compute", cloud.is_ready)
        cloud.look_around()
        nova.forget()
        yield cloud


def _throw_away() -> None:
    for path in (install.environment_path(), install.state_path()):
        shutil.rmtree(path, ignore_errors=True)
