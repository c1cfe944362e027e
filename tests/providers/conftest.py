"""Fixtures for tests of providers."""

from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.providers.machine import LIMIT_S, Machine, eventually, traces

if TYPE_CHECKING:
    from tests.providers.servers.aws import Server
    from tests.providers.servers.aws_world import Account


@pytest.fixture(autouse=True)
def state_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For clusters whose file names no state directory."""
    monkeypatch.setattr("springtide.spec.cluster.STATE", tmp_path / "states")


@pytest.fixture
async def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Machine]:
    """Its kernel ends what is killed, though it may stand still for a while."""
    limits = {"halt": "KILL_LIMIT_S", "erase": "KILL_LIMIT_S", "freeze": "LIMIT_S"}
    for part, limit in limits.items():  # some functions are called like their module
        module = import_module(f"springtide.providers.containers.{part}")
        monkeypatch.setattr(module, limit, LIMIT_S)
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


@pytest.fixture(scope="module")
def aws_server() -> "Iterator[Server]":
    """Moto, which takes long to import as well."""
    from tests.providers.servers.aws import serving

    with serving() as server:
        yield server


@pytest.fixture
async def account(aws_server: "Server", tmp_path: Path) -> "AsyncIterator[Account]":
    """Of AWS, empty."""
    from tests.providers.servers.aws_world import account_of

    with account_of(aws_server, tmp_path) as account:
        yield account
        for one in account.providers:
            await one.close()
