"""EC2 as a provider, against moto behind a wrapper that behaves as EC2 does."""

import pytest

from tests.providers.conformance import Conformance
from tests.providers.servers.aws_world import Account, world_of
from tests.providers.world import World


@pytest.mark.accepts("C30", "N23")
class TestAws(Conformance):
    @pytest.fixture
    async def world(self, account: Account) -> World:
        return world_of(account)
