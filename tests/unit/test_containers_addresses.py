"""Which addresses container nodes get: the same each time, as long as the file has the same."""

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from springtide.ports import NoCapacity
from springtide.providers.containers import addresses
from springtide.providers.containers.addresses import free_addresses, planned, take

SUBNET = IPv4Network("10.77.0.0/28")
NODES = [f"n{number}" for number in range(1, 5)]
PLAN = planned(SUBNET, NODES)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    addresses.links_in(tmp_path).mkdir()
    return tmp_path


def first(directory: Path, node: str) -> str:
    return next(iter(free_addresses(directory, SUBNET, PLAN, node)))


def test_each_node_has_its_place_behind_the_bridge() -> None:
    assert PLAN == {"n1": "10.77.0.2", "n2": "10.77.0.3", "n3": "10.77.0.4", "n4": "10.77.0.5"}
    assert len(planned(SUBNET, map(str, range(100)))) == 13


def test_a_node_gets_its_own_whoever_came_before(directory: Path) -> None:
    for node in ("n3", "n1", "n4"):
        assert first(directory, node) == PLAN[node]
        assert take(directory, PLAN[node], node)
    addresses.give_up(directory, PLAN["n3"], "n3")
    assert first(directory, "n3") == PLAN["n3"]


def test_others_leave_the_places_of_nodes_free_while_they_can(directory: Path) -> None:
    assert first(directory, "builder") == "10.77.0.6"
    assert take(directory, PLAN["n2"], "before-an-apply")
    assert first(directory, "n2") == "10.77.0.6"
    for number in range(6, 15):
        assert take(directory, f"10.77.0.{number}", f"x{number}")
    assert first(directory, "n2") == PLAN["n1"]


def test_a_full_subnet_has_none(directory: Path) -> None:
    for number in range(2, 15):
        assert take(directory, f"10.77.0.{number}", f"x{number}")
    with pytest.raises(NoCapacity, match=r"no free address is left in 10\.77\.0\.0/28"):
        first(directory, "n1")
