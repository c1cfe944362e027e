"""Playbooks that Ansible could not run: refused by every command that would end in a run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from springtide.cli.checks import look_at_ansible
from springtide.cli.endings import Exit
from springtide.cli.subject import subject
from springtide.engine import Refused
from springtide.spec import parse
from tests.unit.cli_world import SPEC, World, served

GOOD = "- hosts: all\n  tasks: []\n"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "site.yml").write_text(GOOD)
    with served(f"{SPEC}ansible: {{before: [{tmp_path}/site.yml]}}\n") as world:
        yield world


def spoil(path: Path, how: str) -> None:
    """A playbook that is gone, is no file, or is none."""
    path.unlink(missing_ok=True)
    if how == "a directory":
        path.mkdir()
    elif how == "no playbook":
        path.write_text("a: 1\n")


def said_by_check(world: World) -> str:
    """The words of `tide check`."""
    spec = parse(world.file.read_text(), str(world.file))
    (found,) = look_at_ansible(subject(spec))
    assert found.ok is False
    return f"{found.name}: {found.text}; {found.todo}"


@pytest.mark.parametrize("how", ["missing", "a directory", "no playbook"])
def test_an_apply_of_it_is_refused_in_the_words_of_check(
    world: World, tmp_path: Path, how: str
) -> None:
    before, other = world.operations(), tmp_path / "other.yml"
    spoil(other, how)
    world.file.write_text(world.file.read_text().replace("site.yml", "other.yml"))
    done = world.run("apply", "--yes")
    assert (done.code, done.out) == (Exit.FAILED, "")
    assert said_by_check(world) in done.err
    assert str(other) in done.err
    assert world.operations() == before
    assert world.layout.stored_spec.read_text() != world.file.read_text()


@pytest.mark.parametrize("words", [["update", "--yes"], ["update", "--dry-run"]])
def test_nothing_is_begun_with_one_that_was_spoilt_meanwhile(
    world: World, tmp_path: Path, words: list[str]
) -> None:
    before = world.operations()
    spoil(tmp_path / "site.yml", "missing")
    done = world.run(*words)
    assert (done.code, done.out) == (Exit.FAILED, "")
    assert said_by_check(world) in done.err
    assert world.operations() == before


def test_a_deploy_of_a_cluster_that_is_up_is_refused_too(world: World, tmp_path: Path) -> None:
    before = world.operations()
    spoil(tmp_path / "site.yml", "missing")
    with pytest.raises(Refused) as refused:
        world.call(lambda: world.daemon.people.deploy("root"))
    assert said_by_check(world) in str(refused.value)
    assert world.operations() == before


def test_nodes_may_leave_whatever_the_playbook(world: World, tmp_path: Path) -> None:
    assert world.run("resize", "general=1", "--yes").code == 0
    spoil(tmp_path / "site.yml", "missing")
    done = world.run("resize", "general=0", "--yes")
    assert done.code == 0, done.err
    assert world.states("c1") == ["off"]
    refused = world.run("resize", "general=1", "--yes")
    assert refused.code == Exit.FAILED
    assert said_by_check(world) in refused.err
    assert "min: 0" in world.file.read_text()
