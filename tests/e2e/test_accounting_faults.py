"""What goes wrong with an account of jobs, and what is said: the real programs, without nodes."""

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from springtide.batch import slurm_place
from springtide.batch.slurm import Slurm
from springtide.configure.slurm_node import ensure_munge_key
from springtide.layout import Layout
from springtide.ports import Site, Unavailable
from springtide.spec import Cluster
from tests.e2e.real import until
from tests.e2e.slurm_lab import note_calls
from tests.leftovers import place

pytestmark = pytest.mark.real

HERE = Site("127.0.0.1")


@dataclass
class Lone:
    """A cluster whose nodes nobody ever starts."""

    home: Path

    @property
    def layout(self) -> Layout:
        return Layout(self.home / "s")

    @property
    def cluster(self) -> Cluster:
        batch = {"port": 17027, "node_port": 17028, "accounting": {"port": 17029}}
        base = {"cluster": "lone", "state": str(self.layout.state), "batch": batch}
        return Cluster.model_validate({**base, "groups": {"general": {"nodes": "l[1-2]"}}})

    async def reload(self) -> str:
        return await Slurm(self.cluster).reload(HERE)

    @property
    def data(self) -> Path:
        return self.layout.database_files


@pytest.fixture
async def lone() -> AsyncIterator[Lone]:
    """Below a directory that the database's user can reach, unlike pytest's own."""
    with place() as home:
        lone = Lone(home)
        ensure_munge_key(lone.layout.munge_key)
        note_calls(lone.layout.programs, lone.home)
        try:
            yield lone
        finally:
            await Slurm(lone.cluster).stop()


@contextmanager
def _mounted(place: Path, options: str) -> Iterator[None]:
    """Another filesystem there."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tide-test", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


KILLED = """\
import asyncio, json, pathlib, sys, time
pathlib.Path.rename = lambda draft, files: time.sleep(600)
from springtide.batch.slurm import Slurm
from springtide.ports import Site
from springtide.spec import Cluster
asyncio.run(Slurm(Cluster.model_validate(json.loads(sys.argv[1]))).reload(Site("127.0.0.1")))
"""
"""It never comes to where the database is in its place: there is time to kill it before."""


async def test_an_installation_that_was_killed_is_made_again(lone: Lone) -> None:
    draft = lone.data.with_name("data.new")
    spec = lone.cluster.model_dump_json(exclude_defaults=True)
    doomed = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, spec)
    until((draft / "ibdata1").exists)
    doomed.kill()
    assert await doomed.wait() == -signal.SIGKILL
    assert not lone.data.exists()
    until(lambda: not _writers(draft))
    assert "mariadbd started, slurmdbd started, slurmctld started" in await lone.reload()
    assert not draft.exists()


def _writers(draft: Path) -> list[str]:
    """Processes that were told of this directory."""
    commands = [path for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.exists()]
    mark, found = str(draft).encode(), []
    for path in commands:
        try:
            text = path.read_bytes()
        except OSError:
            continue
        found += [text.decode(errors="replace")] if mark in text else []
    return found


async def test_a_missing_program_is_told_with_its_package(
    lone: Lone, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = lone.home / "bin"
    programs.mkdir()
    for name in ("munged", "slurmctld", "slurmdbd"):
        (programs / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setattr(slurm_place, "PATH", str(programs))
    with pytest.raises(Unavailable, match="mariadbd not found; install the package mariadb-server"):
        await lone.reload()
    assert not lone.layout.database.exists()


async def test_a_taken_port_is_told_with_the_key_to_change(lone: Lone) -> None:
    with (
        # Also where connections of a slurmdbd before it have yet to be forgotten.
        socket.create_server((HERE.control_address, 17029)),
        pytest.raises(
            Unavailable, match=r"port 17029 .* so slurmdbd cannot .* set batch\.accounting\.port"
        ),
    ):
        await lone.reload()
    assert "slurmdbd started" in await lone.reload()


async def test_a_directory_that_cannot_be_written_is_told(lone: Lone) -> None:
    lone.layout.database.mkdir()
    with (
        _mounted(lone.layout.database, "ro"),
        pytest.raises(
            Unavailable, match=rf"cannot write {lone.layout.database}: Read-only file system"
        ),
    ):
        await lone.reload()
    assert "mariadbd started" in await lone.reload()


async def test_a_directory_that_the_database_cannot_enter_is_told(lone: Lone) -> None:
    slurm = pwd.getpwnam("slurm")
    os.chown(lone.home, slurm.pw_uid, slurm.pw_gid)
    lone.home.chmod(0o700)
    with pytest.raises(Unavailable, match=f"user mysql may not enter {lone.home}"):
        await lone.reload()


async def test_a_full_disk_is_told_and_leaves_no_half_of_a_database(lone: Lone) -> None:
    lone.layout.database.mkdir()
    with _mounted(lone.layout.database, "size=20m"):
        with pytest.raises(Unavailable, match=r"cannot install a database in .* with error 28"):
            await lone.reload()
        assert not lone.data.exists()


async def test_a_broken_database_says_why_it_does_not_start(lone: Lone) -> None:
    await lone.reload()
    await Slurm(lone.cluster).stop()
    good = (lone.data / "ibdata1").read_bytes()
    (lone.data / "ibdata1").write_bytes(b"no database at all")
    with pytest.raises(Unavailable, match=r"mariadbd died at its start: .*ibdata1' is of a diff"):
        await lone.reload()
    (lone.data / "ibdata1").write_bytes(good)
    assert "mariadbd started" in await lone.reload()


async def test_a_slurmdbd_that_hangs_is_told(lone: Lone, monkeypatch: pytest.MonkeyPatch) -> None:
    await lone.reload()
    pid = int((lone.layout.run / "slurmdbd.pid").read_text().split()[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        with monkeypatch.context() as patch:
            patch.setattr("springtide.batch.slurm_accounting.COMMAND_S", 1.0)
            hangs = rf"slurmdbd does not answer.* kill process {pid}"
            with pytest.raises(Unavailable, match=hangs):
                await lone.reload()
    finally:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists())
    assert await lone.reload() == "slurmdbd started"
