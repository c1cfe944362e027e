"""Which cluster a command is about."""

import os
from pathlib import Path

import pytest

from springtide.cli import place
from springtide.cli.endings import Complaint, Exit
from springtide.cli.place import BEFORE_COMMAND, Choice, chosen, spec_file, the_only_one
from springtide.cli.whereabouts import CLUSTERS, deploying, option
from tests.unit.cli_world import run, served


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDE_CLUSTER", raising=False)
    monkeypatch.delenv("TIDE_STATE", raising=False)
    BEFORE_COMMAND.set(None)


def make(clusters: Path, **files: str) -> None:
    for name, file in files.items():
        (clusters / name).mkdir()
        (clusters / name / file).touch()


def test_a_name_or_a_directory_can_be_given() -> None:
    assert chosen(Choice(cluster="blue")) == CLUSTERS / "blue"
    assert chosen(Choice(state="/elsewhere")) == Path("/elsewhere")
    assert chosen(Choice()) is None


def test_a_name_and_a_directory_are_refused_for_one_of_them_may_be_another_clusters() -> None:
    both = Choice(cluster="blue", state="/elsewhere")
    with pytest.raises(Complaint, match="say --cluster or --state, not both"):
        chosen(both)
    BEFORE_COMMAND.set(both)
    with pytest.raises(Complaint, match="not both"):
        chosen(Choice())


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
    assert "is no name of a cluster: those are of a-z, 0-9 and '-', a letter first" in done.err


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
    (tmp_path / "cluster.yaml").touch()
    assert spec_file("x.yaml", Choice(state="/s")) == tmp_path / "x.yaml"
    assert spec_file(None, Choice(state="/s")) == Path("/s/cluster.yaml")
    assert spec_file(None, Choice()) == tmp_path / "cluster.yaml"


def test_the_place_of_clusters_is_the_one_of_the_spec() -> None:
    from springtide.spec.cluster import STATE

    assert CLUSTERS == STATE


def test_without_a_file_here_the_only_cluster_s_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(place, "CLUSTERS", tmp_path)
    make(tmp_path, blue="cluster.yaml")
    assert spec_file(None, Choice()) == tmp_path / "blue" / "cluster.yaml"
    assert f"taking {tmp_path}/blue/cluster.yaml" in capsys.readouterr().err
    make(tmp_path, green="cluster.yaml")
    with pytest.raises(Complaint, match="a cluster with --cluster: blue, green") as caught:
        spec_file(None, Choice())
    assert caught.value.code is Exit.WRONG


@pytest.mark.parametrize("command", ["status", "check"])
def test_a_name_of_no_cluster_is_answered_with_those_there_are(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "CLUSTERS", tmp_path)
    done = run("--cluster", "nope", command)
    assert (done.code, done.err) == (
        Exit.WRONG,
        f"tide: there is no cluster nope; there is none in {tmp_path}\n",
    )
    make(tmp_path, blue="cluster.yaml", green="cluster.yaml")
    assert "no cluster nope; known are blue, green" in run("--cluster", "nope", command).err


def test_advice_names_the_cluster_as_short_as_it_can(tmp_path: Path) -> None:
    assert option(CLUSTERS / "blue") == "--cluster blue"
    assert option(tmp_path) == f"--state {tmp_path}"
    stored = CLUSTERS / "blue" / "cluster.yaml"
    assert deploying(CLUSTERS / "blue", stored) == "tide deploy --cluster blue"
    assert deploying(CLUSTERS / "blue", tmp_path / "c.yaml") == f"tide deploy {tmp_path}/c.yaml"


@pytest.mark.parametrize("command", ["check", "deploy", "attach"])
@pytest.mark.parametrize("before", [True, False])
def test_an_option_that_contradicts_the_named_file_is_refused(
    command: str, before: bool, tmp_path: Path
) -> None:
    """Else somebody who means to try a file elsewhere would change the cluster that it is of."""
    file = tmp_path / "c.yaml"
    file.write_text(f"cluster: blue\nstate: {tmp_path}/s\ngroups: {{g: {{nodes: n1}}}}\n")
    words = ["--state", "/elsewhere"]
    done = run(*words, command, str(file)) if before else run(command, str(file), *words)
    assert (done.code, done.out, done.err) == (
        Exit.WRONG,
        "",
        f"tide: --state /elsewhere is not where {file} has its cluster: that is {tmp_path}/s; "
        "leave out --state, or write `state: /elsewhere` in the file\n",
    )
    named = run(command, str(file), "--cluster", "green")
    assert (named.code, named.out) == (Exit.WRONG, "")
    assert f"{file} describes cluster blue, not green; leave out --cluster" in named.err
    assert not (tmp_path / "s").exists()


def test_an_option_that_says_what_the_file_says_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"cluster: blue\nstate: {tmp_path}/s\ngroups: {{g: {{nodes: n1}}}}\n")
    for words in (["--state", f"{tmp_path}/s"], ["--cluster", "blue"]):
        done = run("deploy", str(file), "--dry-run", *words)
        assert (done.code, "plan" in done.out) == (Exit.DONE, True), done.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_who_may_not_read_the_copy_of_the_file_is_told_what_to_do() -> None:
    with served() as world:
        world.layout.stored_spec.chmod(0o600)
        for words in (["check"], ["schedule", "show"], ["deploy"], ["flavors"]):
            done = world.as_user("nobody", *words)
            assert done.returncode == Exit.WRONG, done.stderr
            assert done.stderr.endswith(
                f"only root may read {world.layout.stored_spec}; run it as root, or name a FILE "
                "of yours\n"
            )
