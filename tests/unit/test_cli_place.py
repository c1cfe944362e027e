"""Which cluster a command is about."""

from pathlib import Path

import pytest

from springtide.cli import place
from springtide.cli.endings import Complaint, Exit
from springtide.cli.place import BEFORE_COMMAND, CLUSTERS, Choice, chosen, spec_file, the_only_one
from tests.unit.cli_world import run


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDE_CLUSTER", raising=False)
    monkeypatch.delenv("TIDE_STATE", raising=False)
    BEFORE_COMMAND.set(None)


def make(clusters: Path, **files: str) -> None:
    for name, file in files.items():
        (clusters / name).mkdir()
        (clusters / name / file).touch()


def test_a_name_and_a_directory_can_be_given() -> None:
    assert chosen(Choice(cluster="blue")) == CLUSTERS / "blue"
    assert chosen(Choice(cluster="blue", state="/elsewhere")) == Path("/elsewhere")
    assert chosen(Choice()) is None


def test_the_nearest_word_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDE_STATE", "/environment")
    assert chosen(Choice()) == Path("/environment")
    BEFORE_COMMAND.set(Choice(cluster="before"))
    assert chosen(Choice()) == CLUSTERS / "before"
    assert chosen(Choice(cluster="behind")) == CLUSTERS / "behind"


@pytest.mark.parametrize("name", ["../etc", "Blue", "", "a" * 33])
def test_a_name_cannot_lead_elsewhere(name: str) -> None:
    done = run("status", "--cluster", name)
    assert done.code == Exit.WRONG
    assert "is no name of a cluster" in done.err


def test_the_only_cluster_need_not_be_named(tmp_path: Path) -> None:
    make(tmp_path, blue="tide.sock", old="record.db", stopped="cluster.yaml")
    assert the_only_one(tmp_path) == tmp_path / "blue"


def test_a_stopped_cluster_is_found_if_no_other_runs(tmp_path: Path) -> None:
    make(tmp_path, blue="cluster.yaml", empty="x")
    assert the_only_one(tmp_path) == tmp_path / "blue"


def test_several_clusters_are_listed(tmp_path: Path) -> None:
    make(tmp_path, blue="tide.sock", green="tide.sock")
    with pytest.raises(Complaint, match="blue, green; choose with --cluster") as caught:
        the_only_one(tmp_path)
    assert caught.value.code is Exit.WRONG


@pytest.mark.parametrize("there", [True, False])
def test_no_cluster_at_all_is_said(tmp_path: Path, there: bool) -> None:
    with pytest.raises(Complaint, match="make one with `tide deploy FILE`") as caught:
        the_only_one(tmp_path if there else tmp_path / "missing")
    assert caught.value.code is Exit.AWAY


def test_the_file_is_the_given_one_or_the_stored_one_or_the_one_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert spec_file("x.yaml", Choice(state="/s")) == tmp_path / "x.yaml"
    assert spec_file(None, Choice(state="/s")) == Path("/s/cluster.yaml")
    assert spec_file(None, Choice()) == tmp_path / "cluster.yaml"


def test_the_place_of_clusters_is_the_one_of_the_spec() -> None:
    from springtide.spec.cluster import STATE

    assert place.CLUSTERS == STATE
