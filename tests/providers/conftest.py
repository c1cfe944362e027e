"""Fixtures for tests of providers that work on this machine."""

from collections.abc import AsyncIterator
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
