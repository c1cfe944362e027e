"""The table of Slurm versions says what runs found, and keeps what it says of others."""

import fcntl
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from tests.matrix import __main__ as matrix
from tests.matrix import report, roots
from tests.matrix.areas import AREAS, QUICK, area_of
from tests.matrix.report import Counts, Found
from tests.matrix.roots import RELEASES, TOP, NotGiven, NotMade, failure, root_of

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
        "conformance": Counts(passed=1, failed=1, run="2026-11-18"),
        "demo": Counts(skipped=1, run="2026-11-18"),
        "attach": Counts(failed=1, run="2026-11-18"),
    }
    assert found.failed == 2
    assert found.notes["conformance"] == ["failed: test_dies: not within 100 s"]
    assert found.notes["demo"] == ["skipped: test_mpi: no MPI here"]


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
    resized = Counts(passed=8, run="2026-11-19")
    again = Found("trixie", "24.11.5", "3.13.5", "2026-11-19", areas={"resize": resized})
    report.write(page, again)
    text = page.read_text()
    assert "| resize | not run | 8 / 0 / 0 |" in text
    assert "| conformance | not run | 1 / 1 / 0 |" in text, "an area that was not run again stays"
    assert "| 3.13.5 | 2026-11-18 | 2026-11-19 |" in text, "and is no younger by that"
    report.write(page, Found("trixie", "25.11.1", "3.13.5", "2026-11-20"))
    assert "24.11.5" not in page.read_text()


def test_a_start_as_long_as_the_timer_of_slurm_is_a_stall(found: Found) -> None:
    found.starts = {"1": [1.0, 29.0], "4": [2.0]}
    assert report.stalls(found) == 1


@pytest.mark.accepts("X18", "A30")
def test_the_page_has_a_dated_run_of_each_version_in_which_every_area_passed() -> None:
    """What a run on real Slurms wrote down; a skipped test proves nothing."""
    runs = {one.slurm.rpartition(".")[0]: one for one in report.read_runs(matrix.PAGE)}
    assert runs.keys() == {"22.05", "24.11", "26.05"}
    for version, found in runs.items():
        for area in AREAS:
            counts = found.areas[area]
            assert counts.failed == 0, f"{version}: {area} {counts}"
            assert counts.passed > 3 * counts.skipped, f"{version}: {area} {counts}"
            assert re.match(r"20\d\d-\d\d-\d\d", counts.run), f"{version}: {area}"


# --- whether a run was good ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("areas", "status", "said"),
    [
        ({"demo": Counts(passed=1), "attach": Counts(passed=2, skipped=1)}, 0, []),
        ({"demo": Counts(passed=1), "attach": Counts(skipped=3)}, 0, ["nothing passed: attach"]),
        ({"demo": Counts(passed=1)}, 0, ["nothing passed: attach"]),
        ({}, 5, ["nothing passed: demo, attach", "pytest ended with status 5"]),
        (
            {"demo": Counts(passed=1), "attach": Counts(passed=1)},
            3,
            ["pytest ended with status 3"],
        ),
        (
            {"demo": Counts(passed=1), "attach": Counts(passed=1)},
            1,
            ["pytest ended with status 1"],
        ),
        ({"demo": Counts(passed=1), "attach": Counts(passed=1, failed=2)}, 1, ["2 failed"]),
    ],
)
def test_a_run_is_good_if_something_passed_in_every_area(
    areas: dict[str, Counts], status: int, said: Sequence[str]
) -> None:
    found = Found("trixie", "24.11.5", "3.13.5", "2026-11-18", areas=areas)
    assert report.wrong(found, ["demo", "attach"], status) == said


class Pretended:
    """A machine on which pytest ends with a status and leaves a report."""

    def __init__(self, results: Path, status: int, text: str) -> None:
        self.results, self.status, self.text = results, status, text

    def told(self, *command: str) -> str:
        return "slurm-wlm 24.11.5"

    def run(self, *command: str) -> int:
        (self.results / "tests.xml").write_text(self.text)
        return self.status


PASSED = '<testsuites><testcase classname="tests.e2e.test_demo" name="test_mpi"/></testsuites>'


@pytest.mark.parametrize(
    ("status", "text", "bad"),
    [(0, PASSED, False), (5, "<testsuites/>", True), (0, REPORT, True), (2, PASSED, True)],
)
def test_a_run_without_tests_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, text: str, bad: bool
) -> None:
    @contextmanager
    def pretend(_: object) -> Iterator[Pretended]:
        yield Pretended(tmp_path, status, text)

    monkeypatch.setattr(matrix, "root_of", pretend)
    monkeypatch.setattr(matrix, "machine", pretend)
    assert matrix._run("trixie", ["demo"], False, "1") is bad


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (NotGiven("no trixie"), 0, "trixie: SKIPPED, not given by the archive"),
        (NotMade("no such package"), 1, "FAILED, no such package"),
    ],
)
def test_only_a_release_that_the_archive_lacks_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    status: int,
    said: str,
) -> None:
    def fail(_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(matrix, "root_of", fail)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert matrix.main(["--quick", "trixie"]) == status
    assert said in capsys.readouterr().out


UPDATE = "E: apt-get update --error-on=any -oAPT::Status-Fd=<$fd> failed"
LAST = "I: main() received signal PIPE: waiting for setup...\nE: mmdebstrap failed to run\n"


def test_an_archive_that_lacks_a_release_is_told_from_other_failures() -> None:
    """By what mmdebstrap 1.3 and apt 2.6 have said."""
    lacks = "The repository 'http://deb.debian.org/debian new Release' does not have a Release file"
    given = failure(f"Err:2 http://x new Release\n  404  Not Found\nE: {lacks}.\n{UPDATE}\n{LAST}")
    assert (type(given), str(given)) == (NotGiven, lacks)
    away = "E: Failed to fetch http://x/dists/new/InRelease  Could not connect to x:80 (::1)."
    package = "E: Unable to locate package no-such-package"
    for why in (away, package):
        made = failure(f"I: running apt-get update...\n{why}\n{UPDATE}\n{LAST}")
        assert isinstance(made, NotMade)
        assert str(made).splitlines()[0] == why
    assert str(failure("Killed\n")) == "Killed"
    assert str(failure("")) == "mmdebstrap gave no reason"


# --- roots --------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where roots are; two older ones of Debian 13 are there, and one of sid."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(roots, "_bootstrap", lambda release, root: root.mkdir())
    monkeypatch.setattr(roots, "_install", lambda root: None)
    home = tmp_path / "springtide" / "roots"
    for name in ("trixie-1", "trixie-2", "sid-1"):
        (home / name / "etc").mkdir(parents=True)
    return home


def test_a_new_root_takes_the_place_of_those_that_nobody_uses(kept: Path) -> None:
    with (kept / "trixie-2.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with root_of(RELEASES["trixie"]) as root:
            left = {path.name for path in kept.iterdir() if path.is_dir()}
            assert left == {root.name, "trixie-2", "sid-1"}
    assert (kept / "trixie-2" / "etc").exists()


def test_the_old_roots_stay_if_the_new_one_cannot_be_made(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(release: object, root: Path) -> None:
        raise NotMade("no network")

    monkeypatch.setattr(roots, "_bootstrap", fail)
    with pytest.raises(NotMade), root_of(RELEASES["trixie"]):
        pass
    left = {path.name for path in kept.iterdir() if path.is_dir()}
    assert left == {"trixie-1", "trixie-2", "sid-1"}
