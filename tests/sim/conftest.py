"""Fixtures of simulations."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nothing comes from outside, so the clock need not look for it many times before it jumps."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("looptime"):
            item.add_marker(pytest.mark.looptime(noop_cycles=0))


@pytest.fixture
def few_looks_into_the_spool(monkeypatch: pytest.MonkeyPatch) -> None:
    """For those in which nothing is in it, and hours pass."""
    monkeypatch.setattr("springtide.daemon.SPOOL_S", 600.0)


@pytest.fixture(autouse=True)
def state_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For clusters whose file names no state directory."""
    monkeypatch.setattr("springtide.spec.cluster.STATE", tmp_path / "states")
