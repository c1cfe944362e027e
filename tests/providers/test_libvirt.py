"""libvirt: machines made for nodes, on a real libvirtd with QEMU."""

from collections.abc import Iterator

import pytest

from tests.libvirt.daemon import Libvirt as Running
from tests.libvirt.daemon import libvirt
from tests.providers.conformance import Conformance
from tests.providers.libvirt_world import Place, clean, created, place
from tests.providers.servers.libvirt import between
from tests.providers.world import World

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with libvirt() as running:
        yield running


@pytest.fixture
def here(running: Running) -> Iterator[Place]:
    one = place(running)
    yield one
    clean(one)


@pytest.mark.accepts("C30")
class TestLibvirt(Conformance):
    @pytest.fixture
    def world(self, here: Place) -> Iterator[World]:
        with between(here.running.socket, here.disks.parent / "sock") as wire:
            yield created(here, wire)
