"""Keys and programs of the control host: what cannot be written is named."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from springtide.configure import slurm_node
from springtide.configure.programs import Programs
from springtide.configure.slurm_node import ensure_munge_key


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


def test_a_directory_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").touch()
    with pytest.raises(FileExistsError) as failed:
        programs(tmp_path).install()
    assert failed.value.filename == str(tmp_path / "bin")


def test_a_user_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no user nobody-such") as failed:
        programs(tmp_path, user="nobody-such").install()
    assert failed.value.filename == os.fspath(tmp_path / "spool")
