"""`tide image`: what is the result goes to stdout, once, and how an image is used is told."""

from collections.abc import Iterator

import pytest

from springtide.cli.endings import Exit
from springtide.configure.anonymise import failed
from springtide.configure.building import BUILT
from tests.unit.cli_world import World, served

BUILDER = "tide-build-hard-{}-x86-64"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with served() as found:
        assert found.run("resume", "c1").code == 0
        yield found


def test_a_result_is_told_once_and_so_is_a_failure(world: World) -> None:
    world.cloud.said[BUILDER.format(1)] = f"{BUILT}\n"
    done = world.run("image", "build", "hard")
    assert (done.code, done.out) == (0, "hard@1 (x86_64): ready, image-hard-1-x86-64\n")
    assert "ready" not in done.err
    world.cloud.said[BUILDER.format(2)] = f"fetching\n{failed('hard-2-x86-64')}x ended\n"
    done = world.run("image", "build", "hard")
    assert (done.code, done.out) == (1, "")
    assert done.err.count("x ended") == 1
    assert "\n  fetching\n" in done.err
    done = world.run("image", "log", "hard")
    assert (done.code, "is a family of images; name one of them: hard@1, hard@2" in done.err) == (
        Exit.WRONG,
        True,
    )


@pytest.mark.parametrize(
    "words", [["build", "hard"], ["snapshot", "c1", "--family", "hard"]], ids=lambda words: words[0]
)
def test_what_would_be_made_is_the_result_of_a_dry_run(world: World, words: list[str]) -> None:
    done = world.run("image", *words, "--dry-run")
    assert (done.code, done.err) == (0, "nothing was changed\n")
    assert "hard@" in done.out


def test_how_an_image_of_a_family_of_its_own_is_used_is_told(world: World) -> None:
    shown = world.run("image", "snapshot", "c1", "--name", "before", "--dry-run")
    assert "the cluster file has no family before: write it there" in shown.out
    assert "`tide rebuild HOSTLIST --image before@1`" in shown.out
    assert world.run("image", "snapshot", "c1", "--name", "before", "--yes").code == 0
    done = world.run("rebuild", "c1", "--image", "before", "--dry-run")
    assert done.code == 2
    assert "before is no family of the cluster file; name one image, such as before@1" in done.err
    assert world.run("rebuild", "c1", "--image", "before@1", "--dry-run").code == 0


def test_a_family_that_there_is_not_is_a_mistake(world: World) -> None:
    done = world.run("image", "snapshot", "c1", "--family", "herd", "--yes")
    assert done.code == 2
    assert "there is no family herd; there are hard" in done.err
    assert "A new one is made with `--name herd`" in done.err
    assert "herd" not in world.run("image", "list").out


def test_an_image_that_is_named_and_still_used_is_not_deleted_and_that_fails(world: World) -> None:
    assert world.run("image", "snapshot", "c1", "--name", "kept", "--yes").code == 0
    assert world.run("rebuild", "c1", "--image", "kept@1", "--yes").code == 0
    done = world.run("image", "clean", "kept@1", "--yes")
    assert (done.code, done.err) == (1, "nothing was changed\n")
    assert "c1 runs it" in done.out
    assert world.run("image", "clean", "kept@1", "--dry-run").code == 0
    assert world.run("image", "clean", "kept", "--yes").code == 0
