"""Keys and programs of the control host: written whole, and what cannot be written is named."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from springtide.batch import slurm_place
from springtide.configure import slurm_node
from springtide.configure.programs import Programs
from springtide.configure.slurm_node import ensure_munge_key
from springtide.layout import Layout
from springtide.served.names import Names
from springtide.spec import parse
from springtide.steps import tickets


def programs(state: Path, user: str = "root") -> Programs:
    return Programs(state / "bin", state / "tide.sock", state / "spool", user, None, 60.0)


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_program_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(OSError, match="File too large") as failed:
        programs(tmp_path).install()
    assert failed.value.filename == str(tmp_path / "bin" / ".hook.new")


def test_a_key_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_node, "MUNGE_USER", "root")
    with full_disk(), pytest.raises(OSError, match="File too large") as failed:
        ensure_munge_key(tmp_path / "key" / "munge.key")
    assert failed.value.filename == str(tmp_path / "key" / ".munge.key.new")


def test_a_file_of_the_batch_system_or_of_names_that_cannot_be_written_is_named(
    tmp_path: Path,
) -> None:
    with full_disk(), pytest.raises(OSError, match="File too large") as failed:
        slurm_place.write(tmp_path / "slurm.conf", "SlurmctldPort=6817\n")
    assert failed.value.filename == str(tmp_path / ".slurm.conf.new")
    spec = parse(f"cluster: blue\nstate: {tmp_path}\ngroups: {{g: {{nodes: n1}}}}\n", "blue.yaml")
    names = Names(spec, "head")
    names.make_places()
    with full_disk(), pytest.raises(OSError, match="File too large") as failed:
        names.write({"n1": "10.0.0.2"})
    assert failed.value.filename == str(Layout(tmp_path).naming / "drafts" / "n1")


def test_names_that_were_written_before_one_that_could_not_be_are_known(tmp_path: Path) -> None:
    """Or a node's name would lead to whoever has its former address."""
    spec = parse(f"cluster: blue\nstate: {tmp_path}\ngroups: {{g: {{nodes: n1}}}}\n", "blue.yaml")
    names = Names(spec, "head")
    names.make_places()
    names.write({"n1": "10.0.0.1"})
    (Layout(tmp_path).naming / "drafts" / "n3").mkdir()  # in the way of the last of them
    with pytest.raises(IsADirectoryError):
        names.write({"n1": "10.0.0.9", "n2": "10.0.0.2", "n3": "10.0.0.3"})
    names.write({"n1": "10.0.0.1"})
    written = Layout(tmp_path).naming / "hosts"
    assert {one.name: one.read_text() for one in written.iterdir()} == {
        "n1": "10.0.0.1 n1 n1.blue\n"
    }


def test_a_directory_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").touch()
    with pytest.raises(FileExistsError) as failed:
        programs(tmp_path).install()
    assert failed.value.filename == str(tmp_path / "bin")


def test_a_user_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no user nobody-such") as failed:
        programs(tmp_path, user="nobody-such").install()
    assert failed.value.filename == os.fspath(tmp_path / "spool")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much of each file is on disk for good when it gets its name."""
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    return sizes


def test_secrets_are_on_disk_before_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[int]
) -> None:
    monkeypatch.setattr(slurm_node, "MUNGE_USER", "root")
    ensure_munge_key(tmp_path / "munge.key")
    tickets.make_secret(tmp_path / "secret")
    assert synced == [1024, tickets.SECRET_BYTES]
