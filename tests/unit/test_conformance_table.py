"""docs/conformance.md: as the tests of providers are, and as they went."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.providers import table
from tests.providers.table import (
    COLUMNS,
    FAILED,
    NOT_OFFERED,
    NOT_RUN,
    PASSED,
    Cell,
    Table,
    parse_page,
    render_page,
    rows,
)

PAGE = table.TOP / "docs" / "conformance.md"
PROVIDERS = table.TOP / "tests" / "providers"
HOW = "run `make conformance`, or the provider's file alone as docs/conformance.md tells"


def providers() -> list[str]:
    """The classes that are written for a provider, read without running anything."""
    return [
        node.name
        for path in sorted(PROVIDERS.glob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and "Conformance" in map(ast.unparse, node.bases)
    ]


@pytest.fixture(scope="module")
def page() -> Table:
    return parse_page(PAGE.read_text())


def test_there_are_providers_and_tests_to_look_for() -> None:
    assert {"TestConformance", "TestAws", "TestOpenStack"} <= set(providers())
    assert "each node gets an instance of its own" in rows()
    assert "a refusal becomes its class and nothing is made: NoCapacity" in rows()


@pytest.mark.parametrize("provider", providers())
def test_each_provider_has_a_column_in_which_each_test_was_run_and_none_failed(
    page: Table, provider: str
) -> None:
    assert provider in COLUMNS, f"tests/providers/table.py knows no column for {provider}"
    name = COLUMNS[provider].name
    cells = {row: page.cell(name, row).result for row in rows()}
    wrong = {row: result for row, result in cells.items() if result in (NOT_RUN, FAILED)}
    assert wrong == {}, HOW
    assert page.against[name].strip(" ?"), HOW


def test_each_column_is_of_a_class_that_exists(page: Table) -> None:
    assert set(COLUMNS) == set(providers())
    assert page.cells.keys() == {column.name for column in COLUMNS.values()}


def test_what_is_not_offered_says_why(page: Table) -> None:
    cells = [cell for column in page.cells.values() for cell in column.values()]
    assert all(cell.reason for cell in cells if cell.result == NOT_OFFERED)


def test_the_page_is_as_it_would_be_written(page: Table) -> None:
    assert render_page(page) == PAGE.read_text(), HOW


def test_a_page_is_read_as_it_was_written() -> None:
    first, second, third, *rest = rows()
    told = Table(
        {"aws": "a server of ours", "fake": "nothing"},
        {
            "fake": dict.fromkeys(rows(), Cell(PASSED)),
            "aws": {
                first: Cell(NOT_OFFERED, "it has none"),
                second: Cell(FAILED),
                third: Cell(NOT_OFFERED, "it has none"),
                **dict.fromkeys(rest, Cell(NOT_RUN)),
            },
        },
    )
    assert parse_page(render_page(told)) == told


def test_the_worst_of_several_worlds_counts() -> None:
    cells = [Cell(PASSED), Cell(FAILED), Cell(NOT_OFFERED, "none")]
    assert table.worst(cells) == Cell(FAILED)
    assert table.worst(cells[:1] * 2) == Cell(PASSED)


def test_a_run_updates_what_it_ran_and_nothing_else(tmp_path: Path) -> None:
    ran, *others = rows()
    page = tmp_path / "page.md"
    before = Table(
        {"aws": "the past", "fake": "the past"},
        {name: dict.fromkeys(rows(), Cell(FAILED)) for name in ("aws", "fake")},
    )
    page.write_text(render_page(before))
    _run(page, "test_each_node_gets_an_instance_of_its_own")
    after = parse_page(page.read_text())
    assert after.cells["aws"] == before.cells["aws"]
    assert after.cells["fake"] == {ran: Cell(PASSED), **dict.fromkeys(others, Cell(FAILED))}
    assert after.against == {"aws": "the past", "fake": COLUMNS["TestConformance"].against()}


def _run(page: Path, name: str) -> None:
    plugin = ["-p", "tests.providers.table", table.OPTION, str(page)]
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, "-k", name]
    subprocess.run([*argv, str(PROVIDERS / "test_fake.py")], cwd=table.TOP, check=True)
