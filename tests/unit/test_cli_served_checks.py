"""What names and shared files need is told before a deploy fails at it."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from springtide.cli import file_checks, served_checks, subject
from springtide.cli.served_checks import look_at_served
from springtide.spec import parse

REMOTE = "provider: {kind: command, list: [x], create: [x], delete: [x]}\n"


def a_subject(root: Path, more: str) -> subject.Subject:
    text = f'cluster: blue\nstate: {root}/s\ngroups: {{g: {{nodes: "c[1-2]"}}}}\n{more}'
    return subject.subject(parse(text, "cluster.yaml"))


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_checks, "search_path", lambda: "/nothing")


@pytest.mark.usefixtures("nothing")
def test_a_cluster_of_containers_needs_no_servers(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    seen = a_subject(tmp_path, f"shared: [{{path: {tmp_path}/data}}]\n")
    assert list(look_at_served(seen)) == []


@pytest.mark.usefixtures("nothing")
@pytest.mark.parametrize(
    ("server", "missing"), [("kernel", "exportfs"), ("ganesha", "ganesha.nfsd")]
)
def test_servers_that_are_not_installed_are_told(server: str, missing: str, tmp_path: Path) -> None:
    more = (
        f"{REMOTE}shared: [{{path: /data, source: {tmp_path}/data}}]\nnfs: {{server: {server}}}\n"
    )
    seen = a_subject(tmp_path / "x", more)
    names, nfs = look_at_served(seen)
    assert (names.ok, names.text) == (False, "dnsmasq not found")
    assert "naming: {kind: hosts}" in names.todo
    assert (nfs.ok, nfs.text) == (False, f"{missing} not found")
    assert "apt-get install nfs-" in nfs.todo


def test_a_kernel_server_that_does_not_run_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "exportfs").write_text("#!/bin/sh\n")
    (tmp_path / "exportfs").chmod(0o755)
    monkeypatch.setattr(served_checks, "search_path", lambda: str(tmp_path))
    monkeypatch.setattr(served_checks, "NFSD", tmp_path / "threads")
    more = f"{REMOTE}shared: [{{path: /data, source: {tmp_path}/data}}]\nnaming: {{kind: hosts}}\n"
    seen = a_subject(tmp_path / "x", more)
    [line] = look_at_served(seen)
    assert (line.ok, line.text) == (False, "the kernel's NFS server does not run")
    (tmp_path / "threads").write_text("8\n")
    [line] = look_at_served(seen)
    assert line.ok


def test_a_server_that_could_not_start_is_told_before_a_deploy(tmp_path: Path) -> None:
    for program in ("dnsmasq", "ganesha.nfsd"):
        if shutil.which(program, path=subject.search_path()) is None or os.geteuid() != 0:
            pytest.skip(f"needs {program}, and root")
    remote = REMOTE.replace("list:", "control_address: 127.0.8.24, list:")
    (tmp_path / "d").mkdir()
    nfs = (
        f"shared: [{{path: /data, source: {tmp_path}/d}}]\nnfs: {{server: ganesha, port: 17128}}\n"
    )
    seen = a_subject(tmp_path / "x", remote + nfs)
    assert [line.ok for line in look_at_served(seen)] == [True, True]
    taken = [socket.create_server(("127.0.8.24", port)) for port in (53, 17128)]
    try:
        names, files = look_at_served(seen)
    finally:
        for one in taken:
            one.close()
    assert (names.ok, "port 53 of 127.0.8.24 is taken" in names.text) == (False, True)
    assert (files.ok, "port 17128 of 127.0.8.24 is taken" in files.text) == (False, True)
    assert "nfs.port" in files.todo
    away = a_subject(tmp_path / "x", REMOTE.replace("list:", "control_address: 192.0.2.7, list:"))
    [line] = look_at_served(away)
    assert (line.ok, "192.0.2.7 is no address of this machine" in line.text) == (False, True)


@pytest.mark.usefixtures("nothing")
def test_a_name_server_that_all_the_world_could_ask_is_told(tmp_path: Path) -> None:
    remote = REMOTE.replace("list:", "control_address: 8.8.4.4, list:")
    _, line = look_at_served(a_subject(tmp_path, remote))
    assert (line.ok, line.text) == (
        None,
        "dnsmasq answers everybody who reaches port 53 of 8.8.4.4",
    )


def test_shared_directories_must_be_there(tmp_path: Path) -> None:
    seen = a_subject(tmp_path, f"shared: [{{path: /data, source: {tmp_path}/data}}]\n")
    [line] = file_checks.look_at_shared(seen)
    assert line.ok is False
    assert f"run `mkdir -p {tmp_path}/data`" in line.todo
    (tmp_path / "data").mkdir()
    assert list(file_checks.look_at_shared(seen)) == []


def test_what_others_serve_is_mounted_on_this_machine_for_containers(tmp_path: Path) -> None:
    shared = f"shared: [{{path: {tmp_path}/data, source: 'nas:/export'}}]\n"
    [line] = file_checks.look_at_shared(a_subject(tmp_path / "x", shared))
    assert line.ok is False
    assert f"mount nas:/export on {tmp_path}/data of this machine" in line.todo
    assert list(file_checks.look_at_shared(a_subject(tmp_path / "x", REMOTE + shared))) == []
