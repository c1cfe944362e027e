"""What the file names is looked at before anything is made from it."""

import shutil
from pathlib import Path

import pytest

from springtide.cli import file_checks
from springtide.cli.endings import Exit
from springtide.cli.subject import Check, Look, Subject, subject
from springtide.spec import parse
from tests.unit.cli_world import run

slurm = pytest.mark.skipif(shutil.which("scontrol") is None, reason="needs Slurm's commands")


def a_subject(state: Path, more: str = "", groups: str = 'g: {nodes: "c[1-2]"}') -> Subject:
    text = f"cluster: blue\nstate: {state}\ngroups: {{{groups}}}\n{more}"
    return subject(parse(text, "cluster.yaml"))


def found(look: Look, subject: Subject) -> list[Check]:
    return list(look(subject))


def test_a_plain_file_has_nothing_wrong(tmp_path: Path) -> None:
    seen = a_subject(tmp_path)
    assert [line for look in file_checks.REQUIRED for line in look(seen)] == []


@pytest.mark.parametrize("part", ["batch", "provider"])
def test_what_is_for_tests_only_is_no_cluster(part: str, tmp_path: Path) -> None:
    [line] = found(file_checks.look_at_kinds, a_subject(tmp_path, f"{part}: {{kind: fake}}\n"))
    assert (line.ok, line.text) == (False, f"{part}.kind fake is for tests and simulation only")
    assert "fake" not in line.todo


def test_a_prolog_must_be_there_and_executable(tmp_path: Path) -> None:
    prolog = tmp_path / "prolog"
    seen = a_subject(tmp_path, f"batch: {{prolog: {prolog}, user: root}}\n")
    [line] = found(file_checks.look_at_prolog, seen)
    assert (line.ok, line.text) == (False, f"{prolog} is no file")
    prolog.write_text("#!/bin/sh\n")
    prolog.chmod(0o644)
    [line] = found(file_checks.look_at_prolog, seen)
    assert (line.ok, line.todo) == (False, f"run `chmod 755 {prolog}`")
    prolog.chmod(0o755)
    assert found(file_checks.look_at_prolog, seen) == []
    tmp_path.chmod(0o700)
    [line] = found(
        file_checks.look_at_prolog,
        a_subject(tmp_path, f"batch: {{prolog: {prolog}, user: nobody}}\n"),
    )
    assert not line.ok
    assert "nobody may not enter /" in line.text


def test_deploy_refuses_a_missing_prolog_before_anything_is_made(tmp_path: Path) -> None:
    file, state = tmp_path / "c.yaml", tmp_path / "state"
    file.write_text(f"cluster: blue\nstate: {state}\nbatch: {{prolog: {tmp_path}/missing}}\n")
    done = run("deploy", str(file))
    assert done.code == Exit.FAILED
    assert f"✗ prolog: {tmp_path}/missing is no file" in done.err
    assert not state.exists()


def test_images_must_be_roots(tmp_path: Path) -> None:
    seen = a_subject(tmp_path, f"images: {{base: {{path: {tmp_path}/base}}}}\n")
    [line] = found(file_checks.look_at_images, seen)
    assert (line.name, line.ok) == ("image base", False)
    (tmp_path / "base").mkdir()
    [line] = found(file_checks.look_at_images, seen)
    assert f"{tmp_path}/base holds no /bin/sh" in line.text


def test_scripts_of_builds_must_be_there(tmp_path: Path) -> None:
    build = f"{{base: host, scripts: [{tmp_path}/install]}}"
    seen = a_subject(tmp_path, f"images: {{soft: {{build: {build}}}}}\n")
    [line] = found(file_checks.look_at_images, seen)
    assert (line.name, line.text) == ("image soft", f"{tmp_path}/install is no file")
    (tmp_path / "install").touch()
    assert found(file_checks.look_at_images, seen) == []


def test_mounts_must_be_directories(tmp_path: Path) -> None:
    seen = a_subject(tmp_path, f"provider: {{mounts: [{tmp_path}/data]}}\n")
    [line] = found(file_checks.look_at_mounts, seen)
    assert line.ok is False
    assert f"run `mkdir -p {tmp_path}/data`" in line.todo
    (tmp_path / "data").mkdir()
    assert found(file_checks.look_at_mounts, seen) == []


def test_a_subnet_must_be_free(tmp_path: Path) -> None:
    seen = a_subject(tmp_path, "provider: {subnet: 127.0.0.0/16}\n")
    [line] = found(file_checks.look_at_subnet, seen)
    assert (line.ok, line.todo) == (False, "choose another")
    assert "overlaps 127.0.0.0/8 of link lo" in line.text


@slurm
def test_slurm_reads_the_parameters_before_it_has_to(tmp_path: Path) -> None:
    wrong = a_subject(tmp_path, "batch: {parameters: {SchedulerTipe: sched/backfill}}\n")
    [line] = found(file_checks.look_at_parameters, wrong)
    assert line.ok is False
    assert "SchedulerTipe" in line.text
    assert "batch.parameters" in line.todo
    right = a_subject(tmp_path, "batch: {parameters: {SchedulerType: sched/backfill}}\n")
    assert found(file_checks.look_at_parameters, right) == []


def test_names_of_machines_must_resolve(tmp_path: Path) -> None:
    groups = 'g: {nodes: "localhost,bm[1-40]-x", provider: {kind: none}}'
    lines = found(file_checks.look_at_names, a_subject(tmp_path, groups=groups))
    assert len(lines) == file_checks.MOST_NAMES - 1
    assert lines[0].text == "bm1-x does not resolve, so slurmctld would hang on it"
    assert lines[0].todo == "add it to /etc/hosts or DNS"
