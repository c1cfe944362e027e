"""`tide check`: what a cluster needs of this machine, and what to do about what is missing."""

import errno
import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.cli import checks, place
from springtide.cli.client import Client
from springtide.cli.endings import Exit, cannot_write
from springtide.cli.subject import Check, Look, Subject, subject
from springtide.configure.programs import Programs
from springtide.layout import Layout
from springtide.spec import parse
from tests.ports import free_ports
from tests.unit.cli_world import run

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def a_subject(state: Path, more: str = "", groups: str = 'g: {nodes: "c[1-2]"}') -> Subject:
    text = f"cluster: blue\nstate: {state}\ngroups: {{{groups}}}\n{more}"
    return subject(parse(text, "cluster.yaml"))


def found(look: Look, subject: Subject) -> list[Check]:
    return list(look(subject))


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


# --- the command -------------------------------------------------------------------------


def test_a_wrong_file_is_told_with_place_and_remedy(tmp_path: Path) -> None:
    done = run("check", write(tmp_path / "c.yaml", "cluster: blue\ngroop: {}\n"))
    assert done.code == Exit.WRONG
    assert f"{tmp_path}/c.yaml:2:1: " in done.err
    assert "groups" in done.err


@pytest.mark.parametrize("command", ["check", "deploy", "daemon"])
def test_a_missing_file_is_told(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(place, "CLUSTERS", tmp_path)
    done = run(command)
    assert done.code == Exit.WRONG
    said = "there is no such file; `tide init FILE` writes one to begin with"
    assert done.err == f"tide: {tmp_path}/cluster.yaml: {said}\n"


def test_each_finding_is_a_line_with_what_to_do(tmp_path: Path) -> None:
    text = "cluster: blue\nstate: /proc/nowhere\nbatch: {kind: fake}\n"
    done = run("check", write(tmp_path / "c.yaml", text))
    assert done.code == Exit.FAILED
    assert f"✓ file: {tmp_path}/c.yaml describes cluster blue" in done.out
    assert "✗ state directory: /proc cannot be written: " in done.out
    assert "  → " in done.out


def test_findings_come_as_json_too(tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.yaml", f"cluster: blue\nstate: {tmp_path}/s\nbatch: {{kind: fake}}\n"
    )
    done = run("check", path, "--json")
    answer = json.loads(done.out)
    by_name = {check["name"]: check["ok"] for check in answer["checks"]}
    assert by_name["file"] is True
    assert by_name["daemon"] is None
    assert answer["ok"] is (done.code == Exit.DONE)


def test_a_wrong_file_comes_as_json_too(tmp_path: Path) -> None:
    done = run("check", write(tmp_path / "c.yaml", "cluster: Blue\ngroop: {}\n"), "--json")
    assert (done.code, done.err) == (Exit.WRONG, "")
    answer = json.loads(done.out)
    assert answer["ok"] is False
    assert [check["ok"] for check in answer["checks"]] == [False, False]
    assert f"{tmp_path}/c.yaml:2:1: " in answer["checks"][1]["text"]


# --- single checks -----------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.accepts("B7")
@pytest.mark.parametrize(
    ("mode", "said", "todo"),
    [
        (0o775, "may be written by its group or others", "chmod go-w"),
        (0o757, "may be written by its group or others", "chmod go-w"),
        (0o744, "cannot be executed by slurm", "chmod 755"),
        (0o755, "all 7 have the right rights", ""),
    ],
)
def test_rights_that_switch_power_saving_off_are_found(
    tmp_path: Path, mode: int, said: str, todo: str
) -> None:
    layout = Layout(tmp_path)
    Programs(layout.programs, layout.socket, layout.spool, "slurm", None, 60.0).install()
    (layout.programs / "hook").chmod(mode)
    lines = found(checks.look_at_rights, a_subject(tmp_path))
    assert all(line.ok is (mode == 0o755) for line in lines)
    assert all(said in line.text and todo in line.todo for line in lines)
    assert len(lines) == (1 if mode == 0o755 else 7)


@pytest.mark.real
@pytest.mark.accepts("B7")
def test_a_program_that_is_gone_is_found(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    Programs(layout.programs, layout.socket, layout.spool, "slurm", None, 60.0).install()
    (layout.programs / "resume").unlink()
    [line] = found(checks.look_at_rights, a_subject(tmp_path))
    assert (line.ok, line.todo) == (False, "run `tide deploy` again")


def test_nothing_is_wrong_with_programs_that_are_not_installed_yet(tmp_path: Path) -> None:
    [line] = found(checks.look_at_rights, a_subject(tmp_path))
    assert line.ok is None


def test_a_port_that_another_program_has_is_found(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    more = f"batch: {{port: {port}}}\n"
    with socket.create_server(("", port)):  # as slurmctld listens
        [line] = found(checks.look_at_port, a_subject(tmp_path, more))
    assert (line.ok, line.text) == (False, "taken by another program")
    [line] = found(checks.look_at_port, a_subject(tmp_path, more))
    assert (line.ok, line.text) == (True, "free")


def test_a_port_that_may_not_be_had_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "HERE", "192.0.2.1")
    [line] = found(checks.look_at_port, a_subject(tmp_path))
    assert line.ok is False
    assert "cannot listen" in line.text


def test_missing_programs_are_named_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "PACKAGES", {"slurmctld9": "slurmctld", "sh": "dash"})
    line = found(checks.look_at_programs, a_subject(tmp_path))[0]
    assert (line.ok, line.text) == (False, "slurmctld9 not found")
    assert line.todo == "run `apt-get install slurmctld`"


def test_missing_accounts_are_named(tmp_path: Path) -> None:
    more = "batch: {user: nobody9}\nadmin_group: nogroup9\n"
    wrong = [
        line for line in found(checks.look_at_accounts, a_subject(tmp_path, more)) if not line.ok
    ]
    assert wrong[0].text == "user nobody9 does not exist"
    assert wrong[-1].todo == "run `groupadd nogroup9`"


def test_a_state_directory_that_is_a_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    [line] = found(checks.look_at_state, a_subject(path))
    assert (line.name, line.ok) == ("state directory", False)
    assert line.text == f"{path} cannot be written: Not a directory"


def test_a_disk_with_too_little_room_is_one_line_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LEAST_DISK", 1 << 80)
    [line] = found(checks.look_at_state, a_subject(tmp_path))
    assert line.ok is False
    assert f"MiB free in {tmp_path}" in line.text
    assert line.todo.startswith("make room: ")


@root
def test_a_read_only_state_directory_is_told_by_the_kernel_s_word(tmp_path: Path) -> None:
    where = tmp_path / "read-only"
    where.mkdir()
    file = write(tmp_path / "c.yaml", f"cluster: blue\nstate: {where}\n")
    script = 'mount -t tmpfs -o ro none "$1" && exec "$2" -m springtide.cli.main check "$3"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-ec", script, "sh", str(where), sys.executable, file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"✗ state directory: {where} cannot be written: Read-only file system" in done.stdout
    assert "run it as root" not in done.stdout


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EROFS, "mount it to be written, or set `state`"),
        (errno.ENOSPC, "make room in the state directory"),
    ],
)
def test_what_to_do_follows_from_what_is_wrong(number: int, said: str) -> None:
    assert said in str(cannot_write("the log", OSError(number, os.strerror(number))))
    assert os.strerror(number) in str(cannot_write("the log", OSError(number, os.strerror(number))))


@root
def test_the_kernel_is_tried_and_nothing_is_left(tmp_path: Path) -> None:
    [line] = found(checks.look_at_kernel, a_subject(tmp_path))
    assert line.ok, line.text
    assert not any(Path(f"/sys/class/net/tide{number}").exists() for number in range(3))
    assert "overlay tide" not in Path("/proc/self/mountinfo").read_text()


def test_the_kernel_does_not_matter_without_containers(tmp_path: Path) -> None:
    bare = a_subject(tmp_path, groups='g: {nodes: "c[1-2]", provider: {kind: none}}')
    assert found(checks.look_at_kernel, bare) == []


def test_a_daemon_that_should_be_there_is_missed(tmp_path: Path) -> None:
    [line] = found(checks.look_at_daemon, a_subject(tmp_path))
    assert line.ok is None
    Layout(tmp_path).record.touch()
    [line] = found(checks.look_at_daemon, a_subject(tmp_path))
    assert (line.ok, line.todo) == (False, f"run `tide deploy --state {tmp_path}`")


def test_a_daemon_with_another_file_is_told(tmp_path: Path) -> None:
    spec = a_subject(tmp_path).spec
    [line] = found(checks.look_at_daemon, Subject(spec, Client(tmp_path), {"spec": "other"}))
    assert line.ok is None
    assert "not yet this one" in line.text


@pytest.mark.parametrize(
    ("more", "changed"),
    [("# a word more\n", False), ("timing: {idle: 7m}\n", True), ("timing: 7\n", True)],
)
def test_a_copy_is_told_to_be_one_if_the_file_has_changed_since(
    tmp_path: Path, more: str, changed: bool
) -> None:
    text = f"cluster: blue\nstate: {tmp_path}\n"
    file, client = write(tmp_path / "mine.yaml", text + more), Client(tmp_path)
    copy = Subject(parse(text, "c"), client, {"file": file}, client.stored_spec)
    lines = found(checks.look_at_original, copy)
    assert [line.todo for line in lines] == ([f"run `tide check {file}`"] if changed else [])
    assert all(f"{file} has changed since" in line.text for line in lines)
    assert found(checks.look_at_original, replace(copy, file=Path(file))) == []
    Path(file).unlink()
    assert found(checks.look_at_original, copy) == []
    assert checks.look_at_original in checks.ALL


def test_another_batch_system_than_the_cluster_lives_with_is_told(tmp_path: Path) -> None:
    batch = {"kind": "torque", "version": "6.1.3", "problem": None, "lacks": None}
    status = {"control_address": "10.77.0.1", "batch": batch}
    seen = Subject(a_subject(tmp_path).spec, Client(tmp_path), status)
    [line] = found(checks.look_at_batch, seen)
    told = "the cluster lives with torque: batch.kind cannot change to slurm"
    assert (line.ok, line.text) == (False, told)
    assert line.todo == "put it back, or destroy the cluster and deploy it again"


def test_what_does_not_run_of_a_batch_system_that_answers_is_told(tmp_path: Path) -> None:
    lacks = "slurmdbd does not run; jobs go on"
    batch = {"kind": "slurm", "version": "22.05.8", "problem": None, "lacks": lacks}
    status = {"control_address": "10.77.0.1", "batch": batch}
    seen = Subject(a_subject(tmp_path).spec, Client(tmp_path), status)
    [line] = found(checks.look_at_batch, seen)
    assert (line.ok, line.text) == (False, f"slurm 22.05.8 answers, but {lacks}")
    assert line.todo.startswith(f"see {tmp_path}/log; ")


def test_a_batch_system_that_does_not_answer_is_told(tmp_path: Path) -> None:
    batch = {"kind": "slurm", "version": None, "problem": "port 6817 of 10.77.0.1 is taken"}
    status = {"control_address": "10.77.0.1", "batch": batch}
    seen = Subject(a_subject(tmp_path).spec, Client(tmp_path), status)
    [line] = found(checks.look_at_batch, seen)
    assert (line.ok, line.text) == (False, "port 6817 of 10.77.0.1 is taken")
