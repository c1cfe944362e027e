"""Oracle's cloud: the contract of providers, over its real SDK and a server of ours."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.providers.conformance import Conformance
from tests.providers.servers.oci import OciServer, Place, open_place, serving
from tests.providers.world import World


@pytest.fixture(scope="module")
def server() -> Iterator[OciServer]:
    with serving() as server:
        yield server


@pytest.fixture
async def place(server: OciServer, tmp_path: Path) -> AsyncIterator[Place]:
    async with open_place(server, tmp_path) as place:
        yield place


class TestOci(Conformance):
    @pytest.fixture
    async def world(self, place: Place) -> World:
        return place.world()
