"""EC2 as a provider where there is a choice of types and zones: all launches are fleets."""

from dataclasses import replace

import pytest

from springtide.ports import Launch
from tests.providers.conformance import Conformance
from tests.providers.servers.aws_world import Account, world_of
from tests.providers.world import BLUE, World, instances

LOOKS = 8
"""Once before the launch; for each fleet before it and after it, on some pages."""


@pytest.mark.accepts("C30")
class TestAwsFleets(Conformance):
    """Names take a call for each node, as they are its own; all other calls are by the batch."""

    @pytest.fixture
    async def world(self, account: Account) -> World:
        calls = account.server.calls
        return replace(
            world_of(account, subnets=account.subnets),
            flavor="any",
            many=200,
            calls=lambda: calls.total() - calls["CreateTags"],
        )


async def test_many_nodes_are_few_fleets_and_a_name_for_each(account: Account) -> None:
    provider = account.open(subnets=account.subnets)
    wanted = [Launch(BLUE, f"n{number:04}", 1, "g", "base", "any") for number in range(200)]
    assert len(instances(await provider.create(wanted))) == 200
    calls = account.server.calls
    assert (calls["CreateFleet"], calls["CreateTags"]) == (2, 200)
    assert calls["CreateLaunchTemplate"] == 1
    assert calls["DescribeInstances"] <= LOOKS
