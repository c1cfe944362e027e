"""Whoever is at the other end of the socket, people get a sentence and scripts an exit code."""

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from springtide.cli import client
from springtide.cli.client import Away, Client, Refused
from springtide.cli.endings import Exit
from tests.unit.cli_world import run


@pytest.fixture
def state() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tide-") as path:
        yield Path(path)


@contextmanager
def answering(state: Path, reply: bytes) -> Iterator[None]:
    """Somebody who reads one request and says this, whatever it was."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(state / "tide.sock"))
        listener.listen()
        thread = threading.Thread(target=_answer, args=(listener, reply))
        thread.start()
        try:
            yield
        finally:
            thread.join(60)


def _answer(listener: socket.socket, reply: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(reply)


def http(status: str, body: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def test_no_daemon_is_said_with_how_to_start_it(state: Path) -> None:
    done = run("status", "--state", str(state))
    assert done.code == Exit.AWAY
    assert f"there is no cluster in {state}; name another, or `tide deploy FILE`" in done.err
    (state / "record.db").touch()
    done = run("status", "--state", str(state))
    assert done.code == Exit.AWAY
    assert f"no daemon answers on {state}/tide.sock; start it with `tide deploy FILE`" in done.err
    (state / "cluster.yaml").touch()
    done = run("status", "--state", str(state))
    assert f"start it with `tide deploy --state {state}`" in done.err


def test_the_daemon_of_an_attached_cluster_is_started_by_attach(state: Path) -> None:
    (state / "record.db").touch()
    (state / "cluster.yaml").write_text("cluster: burst\nbatch: {attach: /etc/slurm/slurm.conf}\n")
    said = run("status", "--state", str(state)).err
    assert f"start it with `tide attach --state {state}`" in said


@pytest.mark.parametrize("left", ["conf/springtide.conf", "bin/prolog"])
def test_what_is_left_of_a_cluster_that_was_attached_is_removed_by_attach(
    state: Path, left: str
) -> None:
    (state / "cluster.yaml").write_text("cluster: burst\nbatch: {attach: /etc/slurm/slurm.conf}\n")
    (state / left).parent.mkdir()
    (state / left).touch()
    said = run("status", "--state", str(state)).err
    assert f"`tide attach --remove --state {state}` removes the rest" in said


def test_a_socket_that_a_dead_daemon_left_is_no_daemon(state: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(state / "tide.sock"))
    assert run("nodes", "--state", str(state)).code == Exit.AWAY


def test_a_path_too_long_for_a_socket_is_said(tmp_path: Path) -> None:
    done = run("status", "--state", f"/{'long/' * 40}")
    assert done.code == Exit.AWAY
    assert "cannot reach the daemon" in done.err


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("400 Bad Request", Exit.WRONG),
        ("404 Not Found", Exit.WRONG),
        ("403 Forbidden", Exit.FAILED),
        ("409 Conflict", Exit.FAILED),
        ("503 Service Unavailable", Exit.FAILED),
    ],
)
def test_the_daemon_s_own_words_are_printed(state: Path, status: str, code: Exit) -> None:
    with answering(state, http(status, '{"error": "no, because of c9"}')):
        done = run("status", "--state", str(state))
    assert (done.code, done.err) == (code, "tide: no, because of c9\n")


def test_a_full_disk_is_told_with_the_directory_to_make_room_in(state: Path) -> None:
    said = "the record could not be written: database or disk is full"
    with answering(state, http("503 Service Unavailable", f'{{"error": "{said}"}}')):
        done = run("status", "--state", str(state))
    assert done.err == f"tide: {said}; make room in {state}\n"


def test_a_defect_of_the_daemon_leads_to_its_log(state: Path) -> None:
    with answering(state, http("500 Internal Server Error", "Internal Server Error")):
        done = run("status", "--state", str(state))
    assert done.code == Exit.FAILED
    assert f"see {state}/log/daemon.log" in done.err


@pytest.mark.parametrize("reply", [b"", b"SSH-2.0-hello\r\n\r\n", http("200 OK", "no JSON")])
def test_garbage_is_no_traceback(state: Path, reply: bytes) -> None:
    with answering(state, reply):
        done = run("status", "--state", str(state))
    assert done.code == Exit.AWAY
    assert "broke off" in done.err


def test_an_answer_of_another_shape_is_a_defect_without_a_traceback(state: Path) -> None:
    with answering(state, http("200 OK", "{}")):
        done = run("status", "--state", str(state))
    assert done.code == Exit.FAILED
    assert "a defect of Springtide: KeyError" in done.err


def test_a_daemon_that_hangs_is_given_up(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_S", 0.1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(state / "tide.sock"))
        listener.listen()
        with pytest.raises(Away, match="does not answer"):
            Client(state).get("/status")


def test_a_refused_stream_is_an_error_too(state: Path) -> None:
    reply = http("400 Bad Request", '{"error": "limit must be a number"}')
    with answering(state, reply), pytest.raises(Refused, match="limit must be a number"):
        list(Client(state).lines("/events"))


def test_a_stream_that_breaks_off_is_noticed(state: Path) -> None:
    reply = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n{"id": 1}\n\n\r\n'
    with answering(state, reply):
        stream = Client(state).lines("/events")
        assert next(stream) == {"id": 1}
        with pytest.raises(Away, match="broke off"):
            next(stream)
