"""Fixtures that several files of unit tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent_control import Control, open_control
from tests.unit.agent_world import Machine, fresh_machine


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    """Of which a node is told that it is its daemon."""
    with open_control(tmp_path) as one:
        yield one


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A node that has not joined."""
    with fresh_machine(tmp_path / "machine") as one:
        yield one
