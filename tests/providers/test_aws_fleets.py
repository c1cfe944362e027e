"""EC2 as a provider where there is a choice of types and zones: all launches are fleets."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.providers.conformance import Conformance
from tests.providers.servers.aws import Server, serving
from tests.providers.servers.aws_world import Account, account_of, world_of
from tests.providers.world import World


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
async def account(server: Server, tmp_path: Path) -> AsyncIterator[Account]:
    with account_of(server, tmp_path) as account:
        yield account
        for one in account.providers:
            await one.close()


@pytest.mark.accepts("C30")
class TestAwsFleets(Conformance):
    """A call for each node, as its name is its own: so a batch is of one."""

    @pytest.fixture
    async def world(self, account: Account) -> World:
        return replace(world_of(account, subnets=account.subnets), flavor="any", many=200, batch=1)
