"""The mark of tests that fail without an explanation, tried on runs of pytest."""

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
ONE = """\
import pytest

@pytest.mark.quarantine("2026-11-18, an answer that came twice")
def test_of_luck():
    assert 1 + 1 == 3
"""
BROKEN = """\
import pytest

@pytest.fixture
def server():
    yield
    raise OSError("it does not end")

@pytest.mark.quarantine("2026-11-18, its server did not end")
def test_of_luck(server):
    pass
"""
GOOD = "\ndef test_that_passes():\n    pass\n"
BAD = "\ndef test_that_fails():\n    assert False\n"


def run(place: Path, text: str, *more: str) -> subprocess.CompletedProcess[str]:
    (place / "test_it.py").write_text(text)
    options = ["-p", "tests.quarantine", "-p", "no:cacheprovider", "--rootdir", str(place)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", *options, *more, str(place)],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["alone", "in several processes"])
def test_its_failure_is_printed_and_fails_no_run(tmp_path: Path, more: tuple[str, ...]) -> None:
    done = run(tmp_path, ONE + GOOD, *more)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 xfailed" in done.stdout
    assert "failures of quarantined tests" in done.stdout
    assert "assert (1 + 1) == 3" in done.stdout
    assert "2026-11-18, an answer that came twice" in done.stdout


def test_so_is_what_breaks_beside_the_test(tmp_path: Path) -> None:
    done = run(tmp_path, BROKEN + GOOD)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OSError: it does not end" in done.stdout


def test_others_fail_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, ONE + BAD)
    assert done.returncode == 1
    assert "1 failed, 1 xfailed" in done.stdout


@pytest.mark.parametrize("given", ["", '"flaky"', '"2026-11-18"', '"2026-11-18, ", "x"'])
def test_it_says_when_it_was_seen_and_what(tmp_path: Path, given: str) -> None:
    done = run(tmp_path, ONE.replace('"2026-11-18, an answer that came twice"', given))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "quarantine takes one text" in done.stderr


def test_there_are_few(tmp_path: Path) -> None:
    many = "".join(ONE.replace("of_luck", f"of_luck_{number}") for number in range(6))
    done = run(tmp_path, many)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "6 tests are quarantined, and 5 may be" in done.stderr
