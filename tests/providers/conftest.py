"""Fixtures for tests of providers."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.providers.machine import Machine, eventually, traces


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path)
    machine.shared.mkdir()
    yield machine
    await machine.clean_up()
    await eventually(lambda: traces(machine) == [])


@pytest.fixture(scope="session")
def openstack_cloud() -> Iterator[object]:
    """One for all modules; its SDK takes a second to import, so only who needs it does."""
    from tests.openstack.plugin import standing_cloud

    with standing_cloud() as cloud:
        yield cloud
