"""`tide init`: files to begin with, which are right as they are but for what is marked."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from springtide.cli.endings import Exit
from springtide.cli.init import KINDS, TEMPLATES, render
from springtide.spec import load, parse
from springtide.spec.parts import Provider
from tests.unit.cli_world import run

TOP = Path(__file__).parents[2]
BLOCKS = ("provider", "images", "flavors")


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_that_is_written_is_read_without_a_change(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    done = run("init", "--provider", kind, "--cluster", "red", str(file))
    assert (done.code, done.err) == (Exit.DONE, "")
    spec = load(file)
    assert (spec.cluster, spec.provider.kind) == ("red", kind)
    assert spec.names("general")[0] == "red-000"


def test_there_is_a_file_for_every_kind_that_is_not_for_tests() -> None:
    kinds = {each.model_fields["kind"].default for each in Provider.__args__}
    assert set(KINDS) == kinds - {"fake"}
    assert {path.stem for path in TEMPLATES.iterdir()} == {*KINDS, "frame"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_has_a_comment_that_fits_a_tired_eye(kind: str) -> None:
    """A key that is not self-evident tells what it is, or what happens without it."""
    lines = render(kind).partition("provider:")[2].partition("\npartitions:")[0].splitlines()
    evident = ("kind:", "base:", "small:", "general:", "cpus: 2", "small: {")
    bare = [
        line
        for line in map(str.strip, lines)
        if line and "#" not in line and not line.startswith(evident)
    ]
    assert bare == []


@pytest.mark.accepts("E29")
def test_another_provider_is_another_block_and_nothing_else_of_the_file() -> None:
    first, *others = [parse(render(kind), kind).model_dump() for kind in KINDS]
    for other in others:
        assert {key for key in first if first[key] != other[key]} <= set(BLOCKS)
        assert first["provider"] != other["provider"]


@pytest.mark.accepts("E29")
def test_the_text_outside_of_those_blocks_is_the_same_to_the_letter() -> None:
    def rest(text: str) -> str:
        before, _, after = text.partition("\nprovider:")
        return before + after.partition("\ngroups:")[2]

    assert len({rest(render(kind)) for kind in KINDS}) == 1


def test_a_file_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("mine\n")
    done = run("init", str(file))
    assert done.code == Exit.WRONG
    assert "is there already and was left as it is" in done.err
    assert file.read_text() == "mine\n"


def test_it_is_written_here_and_says_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("init", "--provider", "openstack")
    assert done.out.startswith("cluster.yaml is written, for provider openstack. Now:\n")
    lines = Path("cluster.yaml").read_text().splitlines()
    told = [line for line in done.out.splitlines() if line.startswith("  line ")]
    assert len(told) == sum("# CHANGE" in line for line in lines) > 3
    number = int(told[1].split()[1].rstrip(":"))
    assert lines[number - 1].strip().startswith("network: ")
    assert done.out.endswith("  tide check\n  tide deploy\n")


def test_the_name_may_come_before_the_command(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    assert run("--cluster", "red", "init", str(file)).code == Exit.DONE
    assert load(file).cluster == "red"


def test_a_slurm_that_is_there_can_be_joined(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    done = run("init", "--provider", "aws", "--attach", "/opt/slurm/slurm.conf", str(file))
    assert done.out.endswith(f"  tide check {file}\n  tide attach {file}\n")
    assert getattr(load(file).batch, "attach", None) == Path("/opt/slurm/slurm.conf")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--provider", "clowd", "choose one of containers, openstack"),
        ("--provider", "frame", "choose one of containers, openstack"),
        ("--cluster", "Blue_1", "is no name of a cluster"),
        ("--attach", "slurm.conf", "is no path of a slurm.conf"),
        ("--attach", "/etc/a\nb: c", "is no path of a slurm.conf"),
    ],
)
def test_wrong_words_are_told_and_nothing_is_written(
    option: str, value: str, said: str, tmp_path: Path
) -> None:
    done = run("init", option, value, str(tmp_path / "c.yaml"))
    assert done.code == Exit.WRONG
    assert said in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = run("init", str(tmp_path / "no" / "c.yaml"))
    assert done.code == Exit.WRONG
    assert "cannot write" in done.err


def test_the_files_are_in_the_wheel(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=TOP, check=True, capture_output=True, timeout=200)
    [wheel] = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {f"springtide/cli/templates/{kind}.yaml" for kind in (*KINDS, "frame")} <= packed


PAGES = sorted((TOP / "docs" / "providers").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.stem))
def test_every_whole_example_in_the_pages_of_providers_is_read(page: Path) -> None:
    found = re.findall(r"^```yaml\n(cluster: .*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    for text in found:
        parse(text, page.name)
    assert found or page.stem == "README"
