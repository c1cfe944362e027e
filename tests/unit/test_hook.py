"""The hook as slurmctld runs it: closed descriptors, no PATH, hardly an environment."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from springtide.configure.programs import Programs, out_of_reach, problems
from springtide.hook import AWAY_S, HAND_OVER_S, PROGRAMS

LIMIT_S = 200.0
REPLY = b"HTTP/1.1 %s\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    made = Programs(
        directory=tmp_path / "bin",
        socket=tmp_path / "sock",
        spool=tmp_path / "spool",
        user="root",
        prolog=None,
        wait_s=LIMIT_S,
    )
    made.install()
    return made


def patient(made: Programs) -> Programs:
    """For a daemon that is as slow as this machine, and is there all the same."""
    hook = made.directory / "hook"
    text = hook.read_text()
    for limit in (f"HAND_OVER_S = {HAND_OVER_S}", f"AWAY_S = {AWAY_S}"):
        assert limit in text
        text = text.replace(limit, f"{limit.split()[0]} = {LIMIT_S}")
    hook.write_text(text)
    return made


def run(program: Path, *arguments: str, **environ: str) -> int:
    """As slurmctld does it; only the exit code is seen."""

    def close() -> None:
        for descriptor in (0, 1, 2):
            os.close(descriptor)

    process = subprocess.Popen([program, *arguments], env=environ, preexec_fn=close)
    return process.wait(timeout=LIMIT_S)


@contextmanager
def daemon(path: Path, status: bytes = b"202 Accepted", calls: int = 1) -> Iterator[list[Any]]:
    """Something that answers on the socket; what it was sent is in the list."""
    heard: list[Any] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def answer() -> None:
        for _ in range(calls):
            connection, _ = listener.accept()
            with connection:
                heard.append(_read(connection))
                connection.sendall(REPLY % status)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield heard
    finally:
        thread.join(timeout=LIMIT_S)
        listener.close()
    assert not thread.is_alive()


def _read(connection: socket.socket) -> tuple[str, Any]:
    raw = b""
    while b"\r\n\r\n" not in raw:
        raw += connection.recv(65536)
    head, _, body = raw.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head.split()[1].decode(), json.loads(body)


def test_it_hands_over_nodes_and_the_resume_file(programs: Programs, tmp_path: Path) -> None:
    patient(programs)
    file = tmp_path / "resume.json"
    file.write_text('{"jobs": [{"job_id": 7}]}')
    with daemon(programs.socket) as heard:
        assert run(programs.directory / "resume", "c[1-4]", SLURM_RESUME_FILE=str(file)) == 0
    ((path, message),) = heard
    assert path == "/hook/resume"
    assert message["nodes"] == "c[1-4]"
    assert message["resume_file"] == '{"jobs": [{"job_id": 7}]}'
    assert not list(programs.spool.iterdir())


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name != "prolog"])
def test_without_a_daemon_it_spools(programs: Programs, program: str) -> None:
    assert run(programs.directory / program, "c[1-4]") == 0
    (file,) = programs.spool.iterdir()
    message = json.loads(file.read_text())
    assert (message["program"], message["nodes"]) == (program, "c[1-4]")
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_daemon_in_trouble_is_like_none(programs: Programs) -> None:
    patient(programs)
    with daemon(programs.socket, b"503 Service Unavailable"):
        assert run(programs.directory / "suspend", "c1") == 0
    assert len(list(programs.spool.iterdir())) == 1


def test_a_request_that_the_daemon_refuses_is_not_spooled(programs: Programs) -> None:
    patient(programs)
    with daemon(programs.socket, b"404 Not Found"):
        assert run(programs.directory / "resume", "nowhere") == 1
    assert not list(programs.spool.iterdir())


def test_neither_daemon_nor_spool_is_a_failure(programs: Programs) -> None:
    programs.spool.rmdir()
    assert run(programs.directory / "resume", "c1") == 1


@pytest.mark.accepts("E25")
@pytest.mark.parametrize("arguments", [[], [""], [" "], ["c1", "c2"]])
def test_anything_but_one_host_list_is_wrong_usage(
    programs: Programs, arguments: list[str]
) -> None:
    assert run(programs.directory / "resume", *arguments) == 2


def test_the_prolog_waits_until_it_is_let_go(programs: Programs) -> None:
    with daemon(programs.socket, b"200 OK") as heard:
        job = {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "c[1-2]", "SLURM_JOB_PARTITION": "p"}
        job |= {"SLURM_JOB_NAME": "rebuild-c1", "SLURM_JOB_UID": "0"}
        assert run(programs.directory / "prolog", **job) == 0
    told = {"job": "5", "name": "rebuild-c1", "nodes": "c[1-2]", "partition": "p", "uid": "0"}
    assert heard == [("/hook/prolog", told)]


def test_a_prolog_asks_once_however_little_patience_is_left(programs: Programs) -> None:
    """As where the machine stood still before it came to ask."""
    hook = programs.directory / "hook"
    hook.write_text(hook.read_text().replace(f"AWAY_S = {AWAY_S}", "AWAY_S = 0.0"))
    job = {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "c1"}
    assert run(programs.directory / "prolog", **job) == 0, "nobody is there"
    with daemon(programs.socket, b"200 OK") as heard:
        assert run(programs.directory / "prolog", **job) == 0
        with socket.socket(socket.AF_UNIX) as other:  # else who listens in vain goes on doing so
            other.connect(str(programs.socket))
            other.sendall(b"POST /none HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
    assert heard[0][0] == "/hook/prolog"


def test_a_prolog_survives_a_restart_of_the_daemon(programs: Programs) -> None:
    patient(programs)
    with daemon(programs.socket, b"500 Broken", calls=1):
        process = subprocess.Popen(
            [programs.directory / "prolog"],
            env={"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "c1"},
        )
    programs.socket.unlink()
    with daemon(programs.socket, b"200 OK") as heard:
        assert process.wait(timeout=LIMIT_S) == 0
    assert len(heard) == 1


def test_a_rebuild_job_is_put_back_by_slurm_where_the_daemon_stays_away(
    programs: Programs,
) -> None:
    """Others start all the same: their nodes are as good without it."""
    made = replace(programs, wait_s=0.5, rebuilds=("night",))
    made.install()
    job = {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "c1"}
    assert run(made.directory / "prolog", **job, SLURM_JOB_PARTITION="night") == 1
    hook = made.directory / "hook"
    hook.write_text(hook.read_text().replace(f"AWAY_S = {AWAY_S}", "AWAY_S = 0.0"))
    assert run(made.directory / "prolog", **job, SLURM_JOB_PARTITION="main") == 0


def test_the_sites_own_prolog_follows_with_its_environment_and_decides(tmp_path: Path) -> None:
    theirs, mark = tmp_path / "theirs", tmp_path / "mark"
    theirs.write_text(f"#!/bin/sh\necho $SLURM_JOB_ID >{mark}\nexit 3\n")
    theirs.chmod(0o755)
    made = Programs(
        tmp_path / "bin", tmp_path / "sock", tmp_path / "spool", "root", str(theirs), LIMIT_S
    )
    made.install()
    with daemon(made.socket, b"200 OK"):
        job = {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "c1"}
        assert run(made.directory / "prolog", **job) == 3
    assert mark.read_text() == "5\n"


def test_a_rebuild_job_whose_site_prolog_fails_has_nothing_rebuilt(tmp_path: Path) -> None:
    """Slurm puts it back and starts it again, which would rebuild its node for ever."""
    theirs = tmp_path / "theirs"
    theirs.write_text("#!/bin/sh\nexit 3\n")
    theirs.chmod(0o755)
    made = Programs(
        tmp_path / "bin",
        tmp_path / "sock",
        tmp_path / "spool",
        "root",
        str(theirs),
        LIMIT_S,
        rebuilds=("night",),
    )
    made.install()
    job = {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "c1", "SLURM_JOB_PARTITION": "night"}
    with daemon(made.socket, b"200 OK") as heard:
        assert run(made.directory / "prolog", **job) == 1
        assert heard == []
        theirs.write_text("#!/bin/sh\nexit 0\n")
        assert run(made.directory / "prolog", **job) == 0
    assert len(heard) == 1


@pytest.mark.accepts("B7")
def test_installed_programs_have_the_rights_that_slurm_wants(programs: Programs) -> None:
    for name in PROGRAMS:
        assert problems(programs.directory / name, "slurm") == []
    (programs.directory / "hook").chmod(0o775)
    (said,) = problems(programs.directory / "resume", "slurm")
    assert "chmod go-w" in said


def test_a_program_that_its_user_cannot_get_to_is_told(tmp_path: Path) -> None:
    program = tmp_path / "closed" / "prolog.sh"
    program.parent.mkdir(mode=0o700)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert out_of_reach(program, "root") == []
    (said,) = out_of_reach(program, "nobody")
    assert said.startswith("nobody may not enter ")
    assert "chmod o+x" in said


def test_installing_again_changes_nothing_and_mends_rights(programs: Programs) -> None:
    hook = programs.directory / "hook"
    before = hook.stat()
    hook.chmod(0o777)
    programs.install()
    after = hook.stat()
    assert after.st_ino == before.st_ino
    assert after.st_mode & 0o777 == 0o755
