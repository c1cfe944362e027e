"""The cluster file of a person: replaced at once, as its owner would do it, or not at all."""

import os
import stat
from pathlib import Path

import pytest

from springtide.cli.client import Away, Refused
from springtide.cli.cluster_file import (
    ClusterFile,
    edited,
    read,
    render_edits,
    replace,
    rewritten,
)
from springtide.cli.endings import Complaint, Exit

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def file(tmp_path: Path) -> ClusterFile:
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: blue\n")
    path.chmod(0o640)
    return ClusterFile(path, "cluster: blue\n")


def others(file: ClusterFile) -> list[str]:
    """Whatever else is where the file is."""
    return [path.name for path in file.path.parent.iterdir() if path != file.path]


def test_mode_and_line_ends_are_kept(file: ClusterFile) -> None:
    replace(file, "cluster: blue\r\nprotected: true\r\n")
    assert file.path.read_bytes() == b"cluster: blue\r\nprotected: true\r\n"
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o640
    assert others(file) == []
    assert read(file.path) == "cluster: blue\r\nprotected: true\r\n"


@needs_root
def test_the_owner_is_kept(file: ClusterFile) -> None:
    os.chown(file.path, 1234, 4321)
    replace(file, "new\n")
    assert (file.path.stat().st_uid, file.path.stat().st_gid) == (1234, 4321)


def test_a_link_stays_one_and_what_it_leads_to_is_replaced(file: ClusterFile) -> None:
    link = file.path.with_name("link.yaml")
    link.symlink_to(file.path)
    replace(ClusterFile(link, file.text), "new\n")
    assert link.is_symlink()
    assert file.path.read_text() == "new\n"


def test_what_somebody_else_wrote_meanwhile_is_left_alone(file: ClusterFile) -> None:
    file.path.write_text("cluster: green\n")
    with pytest.raises(Complaint, match="was changed meanwhile and is left alone"):
        replace(file, "new\n")
    assert file.path.read_text() == "cluster: green\n"
    assert others(file) == []


def test_a_place_that_cannot_be_written_is_told() -> None:
    file = ClusterFile(Path("/proc/version"), Path("/proc/version").read_text())
    with pytest.raises(Complaint, match=r"cannot write /proc/version: .*; nothing was changed"):
        replace(file, "new\n")


def refuse(error: Complaint) -> None:
    raise error


def test_it_is_put_back_if_the_daemon_refuses(file: ClusterFile) -> None:
    with pytest.raises(Refused, match="new"), rewritten(file, "new\n"):
        refuse(Refused(409, file.path.read_text()))
    assert file.path.read_text() == "cluster: blue\n"
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o640


def test_it_stays_changed_if_the_daemon_may_have_done_it(file: ClusterFile) -> None:
    said = r"it broke off; .* run `tide apply` to go on"
    with pytest.raises(Complaint, match=said) as caught, rewritten(file, "new\n"):
        refuse(Away("it broke off"))
    assert caught.value.code is Exit.AWAY
    assert file.path.read_text() == "new\n"


def test_the_daemon_s_own_copy_is_the_daemon_s_to_write(file: ClusterFile) -> None:
    ours = ClusterFile(file.path, file.text, ours=True)
    with rewritten(ours, "new\n"):
        pass
    assert file.path.read_text() == "cluster: blue\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe", "is no text in UTF-8"),
        (b"#" * 500_001, "is longer than a cluster file may be"),
    ],
)
def test_what_is_no_cluster_file_is_not_read(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(Complaint, match=said):
        read(path)


@pytest.mark.parametrize("path", ["/dev/zero", "/proc", "/nowhere/x.yaml"])
def test_what_is_no_file_at_all_is_told_at_once(path: str) -> None:
    with pytest.raises(Complaint, match=r"regular file|no such file") as caught:
        read(Path(path))
    assert caught.value.code is Exit.WRONG


def test_edits_are_shown_with_their_lines() -> None:
    assert render_edits(Path("/c.yaml"), "a\nb: 1\nc\n", "a\nb: 2\nc\nd\n").splitlines() == [
        "/c.yaml",
        "    2 - b: 1",
        "    2 + b: 2",
        "    4 + d",
    ]


@pytest.mark.parametrize("attached", [True, False])
def test_an_edited_file_is_brought_into_force_in_the_way_of_its_cluster(
    file: ClusterFile, tmp_path: Path, attached: bool
) -> None:
    (tmp_path / "s").mkdir()
    stored = tmp_path / "s" / "cluster.yaml"
    stored.touch()
    os.utime(stored, (0, 0))
    status = {"file": str(file.path), "state_directory": str(stored.parent), "spec": "other"}
    command = f"tide attach {file.path}" if attached else "tide apply"
    said = f"{file.path} was changed since it was applied: run `{command}`"
    assert edited({**status, "attached": attached}) == said
