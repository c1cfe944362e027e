"""Azure keeps the contract of providers."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.providers.conformance import Conformance
from tests.providers.servers.azure import serving
from tests.providers.servers.azure_cloud import AzureServer
from tests.providers.servers.azure_world import azure_world
from tests.providers.world import World


@pytest.fixture(scope="module")
def server() -> Iterator[AzureServer]:
    with serving() as server:
        yield server
    assert server.unknown == []


@pytest.mark.accepts("C30", "N23", "C2")
class TestAzure(Conformance):
    @pytest.fixture
    async def world(self, server: AzureServer, tmp_path: Path) -> AsyncIterator[World]:
        async with azure_world(server, tmp_path) as world:
            yield world
