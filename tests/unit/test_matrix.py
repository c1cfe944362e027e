"""The table of Slurm versions says what runs found, and keeps what it says of others."""

from pathlib import Path

import pytest

from tests.matrix import report
from tests.matrix.areas import AREAS, QUICK, area_of
from tests.matrix.report import Counts, Found
from tests.matrix.roots import RELEASES, TOP

REPORT = """\
<testsuites><testsuite>
<testcase classname="tests.batch.test_slurm.TestSlurm" name="test_drains"/>
<testcase classname="tests.batch.test_slurm.TestSlurm" name="test_dies">
  <error message="not within 100 s&#10;more of it">trace</error></testcase>
<testcase classname="tests.e2e.test_demo" name="test_mpi">
  <skipped message="no MPI here"/></testcase>
<testcase classname="" name="tests/e2e/test_attach.py">
  <error message="broken">trace</error></testcase>
</testsuite></testsuites>
"""


@pytest.fixture
def found(tmp_path: Path) -> Found:
    (tmp_path / "tests.xml").write_text(REPORT)
    found = Found("trixie", "24.11.5", "3.13.5", "2026-11-18")
    report.read_tests(tmp_path / "tests.xml", found)
    return found


def test_every_area_has_tests_that_are_there() -> None:
    files = [file for files in AREAS.values() for file in files]
    assert [file for file in files if not (TOP / file).is_file()] == []
    assert set(QUICK) <= AREAS.keys()
    assert area_of("tests.e2e.test_demo_of_something_else") is None


def test_results_are_counted_by_area_with_reasons(found: Found) -> None:
    assert found.areas == {
        "conformance": Counts(passed=1, failed=1),
        "demo": Counts(skipped=1),
        "attach": Counts(failed=1),
    }
    assert found.failed == 2
    assert "failed: test_dies: not within 100 s" in found.notes
    assert "skipped: test_mpi: no MPI here" in found.notes


def test_the_page_keeps_what_former_runs_found_on_other_releases(
    tmp_path: Path, found: Found
) -> None:
    page = tmp_path / "page.md"
    older = Found("bookworm", "22.05.8", "3.11.2", "2026-11-01", starts={"1": [1.0, 2.0, 4.0]})
    report.write(page, found)
    report.write(page, older)
    text = page.read_text()
    assert text.index("22.05.8") < text.index("24.11.5")
    assert "| conformance | not run | 1 / 1 / 0 |" in text
    assert "| 1 | 1.0, 2.0, 4.0 | not run |" in text
    report.write(page, Found("trixie", "24.11.5", "3.13.5", "2026-11-19"))
    assert "2026-11-18" not in page.read_text()


@pytest.mark.accepts("A30", "X18")
def test_each_release_was_run_whole_and_nothing_failed() -> None:
    """By what the page keeps of the runs; skips prove nothing, and are told with reasons."""
    runs = report.read_runs(TOP / "docs" / "slurm-versions.md")
    assert {run.suite for run in runs} == RELEASES.keys()
    for run in runs:
        assert run.failed == 0
        assert [area for area in AREAS if not run.areas[area].passed] == []
        assert [len(took) for took in run.starts.values()] == [10, 10]
        assert report.stalls(run) == 0


def test_a_start_as_long_as_the_timer_of_slurm_is_a_stall(found: Found) -> None:
    found.starts = {"1": [1.0, 29.0], "4": [2.0]}
    assert report.stalls(found) == 1
