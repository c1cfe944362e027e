"""What `tide check` says of the submit filter of Torque's qsub."""

import subprocess
from pathlib import Path

import pytest

from springtide.batch.torque_submit_filter import QUEUES
from springtide.cli.subject import Check
from springtide.cli.torque_filter_checks import FILTER, OWN, decide_filter, look_at_filter


def filter_checks(place: Path, served: tuple[str, ...] = ("cloud",)) -> list[Check]:
    """Of a machine that has these files."""
    return list(decide_filter(look_at_filter(place / "torque.cfg", place / "queues"), served))


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Ours, as the page says."""
    (tmp_path / "torque.cfg").write_text(f"SERVERHOST head\nSUBMITFILTER {tmp_path}/filter\n")
    (tmp_path / "filter").write_text(OWN.read_text())
    (tmp_path / "filter").chmod(0o755)
    (tmp_path / "queues").write_text("cloud cloud\nbatch house default\n")
    (tmp_path / "queues").chmod(0o644)
    return tmp_path


def test_what_the_scheduler_cannot_enforce_is_told_with_the_way_out(tmp_path: Path) -> None:
    (check,) = filter_checks(tmp_path)
    assert check.ok is None
    assert "`qsub -q cloud -l nodes=1` may start on your nodes" in check.text
    assert f"`install -m 755 {OWN} /usr/local/sbin/torque_submitfilter`" in check.todo
    assert "printf '%s\\n' 'cloud cloud' | install -D -m 644 /dev/stdin /etc/" in check.todo


def test_a_submit_filter_that_works_is_in_order(installed: Path) -> None:
    (check,) = filter_checks(installed)
    assert check == Check(FILTER, True, f"qsub of this machine has one: {installed}/filter")
    (installed / "filter").write_text("#!/bin/sh\ncat\n")
    (installed / "queues").unlink()
    (check,) = filter_checks(installed)
    assert (check.ok, check.text.endswith("/filter, which is not Springtide's")) == (True, True)


def test_a_submit_filter_that_is_not_where_torque_looks_is_wrong(installed: Path) -> None:
    (installed / "filter").unlink()
    (check,) = filter_checks(installed)
    assert check.ok is False
    assert "/filter, which is not there: qsub refuses every job" in check.text
    assert f"`install -m 755 {OWN} {installed}/filter`" in check.todo
    (installed / "torque.cfg").write_text("# SUBMITFILTER /no/such\n")  # Torque knows no comments
    (check,) = filter_checks(installed)
    assert check.text.startswith("torque.cfg names /no/such, which is not there")


@pytest.mark.parametrize("mode", [0o644, 0o750, 0o711])
def test_a_submit_filter_that_users_may_not_run_is_wrong(installed: Path, mode: int) -> None:
    (installed / "filter").chmod(mode)
    (check,) = filter_checks(installed)
    assert check.ok is False
    assert f"users may not run {installed}/filter (mode {mode:04o})" in check.text
    assert check.todo == f"run `chmod 755 {installed}/filter`"


def test_a_submit_filter_that_knows_no_queues_is_told(installed: Path) -> None:
    (installed / "queues").chmod(0o640)
    (check,) = filter_checks(installed)
    assert check.ok is None
    assert f"passes all jobs unchecked: users may not read {QUEUES} (mode 0640)" in check.text
    assert check.todo == f"run `chmod 644 {QUEUES}`"
    (installed / "queues").unlink()
    (check,) = filter_checks(installed)
    assert check.ok is None
    assert check.text.endswith(f"passes all jobs unchecked: there is no {QUEUES}")


def test_a_submit_filter_that_does_not_know_our_queue_is_told(installed: Path) -> None:
    (check,) = filter_checks(installed, ("cloud", "night"))
    assert (check.ok, check.text.startswith("jobs of night pass unchecked")) == (None, True)
    assert check.todo.startswith("add the line `night night`")
    (installed / "queues").write_text("cloud\n")
    (check,) = filter_checks(installed)
    assert check.text.startswith("jobs of cloud pass unchecked")


def test_an_old_submit_filter_is_told(installed: Path) -> None:
    with (installed / "filter").open("a") as file:
        file.write("# older\n")
    (check,) = filter_checks(installed)
    assert check.ok is None
    assert check.todo == f"run `install -m 755 {OWN} {installed}/filter`"


def test_what_the_todo_says_makes_the_file(installed: Path) -> None:
    (installed / "queues").unlink()
    (check,) = filter_checks(installed, ("cloud", "night"))
    command = check.todo.split("`")[1].replace(QUEUES, f"{installed}/queues")
    subprocess.run(["/bin/sh", "-c", command], check=True)
    assert filter_checks(installed, ("cloud", "night"))[0].ok is True
