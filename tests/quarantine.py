"""The mark `quarantine("2026-11-18, what was seen")`, for a test that fails without an explanation.

It runs, and its failure is printed at the end, but does not fail the run. There are few of them,
and none for long: each is named in the issue tracker, and proves no row of the acceptance table.
"""

import re
from collections.abc import Generator, Iterable

import pytest

MOST = 5
_TEXT = re.compile(r"\d{4}-\d{2}-\d{2}, \S.*")
PREFIX = "quarantined: "


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", 'quarantine("date, what was seen"): its failure is printed, and fails no run'
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = {item.nodeid.partition("[")[0]: text_of(item) for item in items if _is_marked(item)}
    wrong = [test for test, text in marked.items() if not _TEXT.fullmatch(text)]
    if wrong:
        raise pytest.UsageError(
            f'quarantine takes one text, "YYYY-MM-DD, what was seen": {_listed(wrong)}'
        )
    if len(marked) > MOST:
        raise pytest.UsageError(
            f"{len(marked)} tests are quarantined, and {MOST} may be: mend one of {_listed(marked)}"
        )


def _is_marked(item: pytest.Item) -> bool:
    return item.get_closest_marker("quarantine") is not None


def text_of(item: pytest.Item) -> str:
    """The mark's text; empty if it has none, or more than one."""
    mark = item.get_closest_marker("quarantine")
    given = mark.args if mark and not mark.kwargs else ()
    return str(given[0]) if len(given) == 1 else ""


def _listed(tests: Iterable[str]) -> str:
    return ", ".join(sorted(tests))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _is_marked(item):
        report.outcome = "skipped"
        report.wasxfail = PREFIX + text_of(item)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    failed = [one for one in terminalreporter.getreports("xfailed") if _is_quarantined(one)]
    if not failed:
        return
    terminalreporter.section("failures of quarantined tests")
    for report in failed:
        terminalreporter.write_sep("_", f"{report.nodeid} ({report.wasxfail})")
        terminalreporter.write_line(report.longreprtext)


def _is_quarantined(report: pytest.TestReport) -> bool:
    return str(getattr(report, "wasxfail", "")).startswith(PREFIX)
