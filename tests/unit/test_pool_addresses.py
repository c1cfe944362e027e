"""Nodes of a pool are where the file says, if their provider does not tell."""

import pytest

from springtide.spec import parse
from tests.unit.cli_world import LONG_S, SPEC, served, wait_until

POOL = SPEC.replace('"c[1-4]"}', '"c[1-4]", addresses: {c1: 10.9.8.7}}')


@pytest.mark.accepts("N5")
def test_a_node_has_the_address_of_its_pool_if_the_provider_tells_none() -> None:
    with served(POOL) as world:
        world.faults.address_s = LONG_S
        assert world.run("resume", "c1", "--no-wait").code == 0
        wait_until(lambda: world.rows()["c1"]["address"] == "10.9.8.7")


@pytest.mark.accepts("N5")
def test_what_the_provider_tells_counts_more() -> None:
    with served(POOL) as world:
        assert world.run("resume", "c[1-2]").code == 0
        rows = world.rows()
        assert rows["c1"]["state"] == "ready"
        assert rows["c1"]["address"] not in ("10.9.8.7", None)


@pytest.mark.accepts("N5")
def test_the_names_of_a_group_are_the_most_that_can_be_asked_for() -> None:
    with served(POOL) as world:
        before = world.cloud.calls["create"]
        done = world.run("resume", "c[1-5]")
        assert (done.code, world.cloud.calls["create"]) == (2, before)
        assert "c5" in done.err
        assert len(parse(POOL, "c.yaml").names("general")) == 4
