"""The acceptance table and the script that says which tests are behind its rows."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import acceptance

TABLE = """
| row | capability | check |
|---|---|---|
| E4 | Hidden until used | sinfo |
| E5 | **[+]** ranged hostlist `x-[3-4,8]` | exactly 3 |

| row | capability |
|---|---|
| X1 | Crash-safe |
"""

TESTS = """
import pytest

@pytest.mark.accepts("E5", "X1")
@pytest.mark.parametrize("size", [1, 2])
def test_three_are_created(size):
    raise AssertionError("collected, never run")

@pytest.mark.skip(reason="proves nothing")
@pytest.mark.accepts("E4")
def test_nobody_runs_this():
    pass

@pytest.mark.quarantine("2026-11-18, it failed once")
@pytest.mark.accepts("E4")
def test_this_may_fail():
    pass
"""


def run(top: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    (top / "table.md").write_text(TABLE)
    (top / "tests").mkdir()
    (top / "tests" / "test_some.py").write_text(tests)
    command = [sys.executable, acceptance.__file__]
    paths = ["--table", str(top / "table.md"), "--tests", str(top / "tests")]
    # The empty configuration keeps pytest from looking for one above the temporary directory.
    (top / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [*command, *paths, *options], cwd=top, capture_output=True, text=True, timeout=200
    )


def test_the_projects_own_table_is_read_whole() -> None:
    text = (acceptance.TOP / "docs" / "acceptance.md").read_text(encoding="utf-8")
    rows = acceptance.parse_table(text)
    assert len(rows) == sum(line.startswith("| ") for line in text.splitlines()) - 6
    assert rows["E11"].check == "timestamps"
    assert rows["X1"].check == ""


def test_a_row_keeps_its_capability_and_check() -> None:
    row = acceptance.parse_table(TABLE)["E5"]
    assert row == acceptance.Row("E5", "**[+]** ranged hostlist `x-[3-4,8]`", "exactly 3")


def test_a_row_that_is_there_twice_is_refused() -> None:
    with pytest.raises(acceptance.AcceptanceError, match="E4 is in the table twice"):
        acceptance.parse_table(TABLE + "| E4 | Again | yes |\n")


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(acceptance.AcceptanceError, match="no rows"):
        acceptance.parse_table("# nothing\n")


def test_each_row_is_printed_with_its_tests_and_those_without_are_named(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test_some.py::test_three_are_created\n") == 2
    assert "2 of 3 rows have a test.\nWithout: E4\n" in done.stdout


def test_a_row_asked_for_without_a_test_fails(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS, "--rows", "E4,E5")
    assert done.returncode == 1
    assert "X1" not in done.stdout


def test_rows_asked_for_with_tests_succeed(tmp_path: Path) -> None:
    assert run(tmp_path, TESTS, "--rows", "E5,X1").returncode == 0


def test_a_mark_that_names_an_unknown_row_is_an_error(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS.replace('"X1"', '"X99"'))
    assert done.returncode == 2
    assert "test_three_are_created names X99" in done.stderr


@pytest.mark.parametrize("rows", ["E99", ","])
def test_asking_for_no_or_unknown_rows_is_wrong_usage(tmp_path: Path, rows: str) -> None:
    assert run(tmp_path, TESTS, "--rows", rows).returncode == 2


def test_a_test_file_that_cannot_be_read_is_an_error_that_shows_why(tmp_path: Path) -> None:
    done = run(tmp_path, "import nothing_of_that_name\n")
    assert done.returncode == 2
    assert "nothing_of_that_name" in done.stderr
