"""What nodes that join need of the control host is told before a deploy fails at it."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from springtide.cli import join_checks, subject
from springtide.cli.join_checks import look_at_join
from springtide.spec import parse
from tests.ports import free_ports

REMOTE = "provider: {kind: command, list: [x], create: [x], delete: [x]}\n"
GONE = "No such file or directory; nodes could not join"


def a_subject(root: Path, more: str) -> subject.Subject:
    text = f'cluster: blue\nstate: {root}/s\ngroups: {{g: {{nodes: "c[1-2]"}}}}\n{more}'
    return subject.subject(parse(text, "cluster.yaml"))


def test_nodes_that_do_not_join_need_nothing(tmp_path: Path) -> None:
    assert list(look_at_join(a_subject(tmp_path, ""))) == []


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    seen = a_subject(tmp_path, f"{REMOTE}join: {{port: {port}}}\n")
    with closing(socket.create_server(("127.0.0.1", port))):
        keys, found = look_at_join(seen)
        assert keys.ok
        assert (found.ok, found.text) == (False, "taken by another program")
        assert found.todo.endswith("or set join.port to a free one")
    _, found = look_at_join(seen)
    assert (found.ok, found.name) == (True, f"join port {port}")


@pytest.mark.parametrize(("lines", "ok"), [([], True), (["10.0.0.1, port 6821: taken"], False)])
def test_a_daemon_that_serves_knows_best(tmp_path: Path, lines: list[str], ok: bool) -> None:
    status = {"troubles": {"nodes cannot join": lines} if lines else {}}
    seen = a_subject(tmp_path, REMOTE)
    _, found = look_at_join(subject.Subject(seen.spec, seen.daemon, status))
    assert found.ok is ok
    assert found.text == (lines[0] if lines else "nodes can join")


def test_missing_programs_are_told_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_checks, "search_path", lambda: "/nothing")
    keys, _ = look_at_join(a_subject(tmp_path, REMOTE))
    assert (keys.ok, keys.text) == (False, "openssl, ssh-keygen not found")
    assert keys.todo == "run `apt-get install openssl openssh-client`"


def test_files_that_nodes_are_given_must_be_there_and_be_what_they_should(tmp_path: Path) -> None:
    good, empty, other = (tmp_path / name for name in ("good.pem", "empty.pem", "other.pem"))
    good.write_text("-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n")
    empty.touch()
    other.write_bytes(b"\x30\x82\xff")
    paths = ", ".join(map(str, (good, tmp_path / "none.pem", empty, other)))
    lines = f"certificates: [{paths}]\nusers: {{sssd: {tmp_path}/none}}\n"
    found = list(look_at_join(a_subject(tmp_path, REMOTE + lines)))[2:]
    assert [(check.ok, check.name, check.text) for check in found] == [
        (False, "certificates", f"{tmp_path}/none.pem cannot be read: {GONE}"),
        (False, "certificates", f"{empty} is empty"),
        (False, "certificates", f"{other} is no text; nodes could not join"),
        (False, "sssd", f"{tmp_path}/none cannot be read: {GONE}"),
    ]
    assert list(look_at_join(a_subject(tmp_path, lines))) == []


def test_a_file_without_a_certificate_is_told(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("-----BEGIN PRIVATE KEY-----\n")
    [*_, found] = look_at_join(a_subject(tmp_path, f"{REMOTE}certificates: [{key}]\n"))
    assert found.text.startswith(f"{key} has no certificate in PEM")
    assert found.todo == "put it there, or correct `certificates`"
