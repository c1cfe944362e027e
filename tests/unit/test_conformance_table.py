"""docs/conformance*.md: as the tests that adapters share are, and as they went."""

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import conformance_table
from tests.batch import table as batch_table
from tests.conformance_table import (
    FAILED,
    NOT_OFFERED,
    NOT_RUN,
    PASSED,
    TOP,
    Cell,
    Suite,
    Table,
    render_page,
)
from tests.providers import table as provider_table


@dataclass(frozen=True, slots=True)
class Kind:
    """A suite, the page of it, and where the tests of adapters are."""

    suite: Suite
    page: Path
    folder: Path

    @property
    def how(self) -> str:
        return f"run `make conformance`, or the file of one alone as {self.page.name} tells"

    def classes(self) -> list[str]:
        """Those that are written for an adapter, read without running anything; but for those of
        servers that no machine of ours has, which are skipped."""
        return [
            node.name
            for path in sorted(self.folder.glob("test_*.py"))
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ClassDef)
            if self.suite.tests.__name__ in map(ast.unparse, node.bases)
            if not any("skipif" in ast.unparse(mark) for mark in node.decorator_list)
        ]

    def table(self) -> Table:
        return self.suite.parse_page(self.page.read_text())


PROVIDERS = Kind(provider_table.SUITE, TOP / "docs" / "conformance.md", TOP / "tests" / "providers")
BATCH_PAGE, BATCH_TESTS = TOP / "docs" / "conformance-batch.md", TOP / "tests" / "batch"
READ = Kind(batch_table.READ, BATCH_PAGE, BATCH_TESTS)
BATCH = Kind(batch_table.SUITE, BATCH_PAGE, BATCH_TESTS)
KINDS = [
    pytest.param(PROVIDERS, id="providers"),
    pytest.param(READ, id="batch systems that are read"),
    pytest.param(BATCH, id="batch systems"),
]
PAGES = [pytest.param([PROVIDERS], id="providers"), pytest.param([READ, BATCH], id="batch systems")]
ADAPTERS = [
    pytest.param(kind, name, id=name)
    for kind in (PROVIDERS, READ, BATCH)
    for name in kind.classes()
]


def test_there_are_adapters_and_tests_to_look_for() -> None:
    assert {"TestConformance", "TestAws", "TestOpenStack"} <= set(PROVIDERS.classes())
    assert "each node gets an instance of its own" in PROVIDERS.suite.rows()
    assert "a refusal becomes its class and nothing is made: NoCapacity" in PROVIDERS.suite.rows()
    assert "TestFakeQueue" in READ.classes()
    assert "a busy node stays and its jobs go on" in READ.suite.rows()
    assert "without rights nothing is done and that is said: drain" in READ.suite.rows()
    assert {"TestFakeBatch", "TestSlurm"} <= set(BATCH.classes())


@pytest.mark.parametrize(("kind", "name"), ADAPTERS)
def test_each_adapter_has_a_column_in_which_each_test_was_run_and_none_failed(
    kind: Kind, name: str
) -> None:
    assert name in kind.suite.columns, f"the table of {kind.folder.name} has no column for {name}"
    column, page = kind.suite.columns[name].name, kind.table()
    cells = {row: page.cell(column, row).result for row in kind.suite.rows()}
    wrong = {row: result for row, result in cells.items() if result in (NOT_RUN, FAILED)}
    assert wrong == {}, kind.how
    assert page.against[column].strip(" ?"), kind.how


@pytest.mark.parametrize("kind", KINDS)
def test_each_column_is_of_a_class_that_exists(kind: Kind) -> None:
    assert set(kind.suite.columns) == set(kind.classes())
    assert kind.table().cells.keys() == {one.name for one in kind.suite.columns.values()}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_offered_says_why(kind: Kind) -> None:
    cells = [cell for column in kind.table().cells.values() for cell in column.values()]
    assert all(cell.reason for cell in cells if cell.result == NOT_OFFERED)


@pytest.mark.parametrize("kinds", PAGES)
def test_the_page_is_as_it_would_be_written(kinds: list[Kind]) -> None:
    first = kinds[0]
    parts = [(kind.suite, kind.table()) for kind in kinds]
    assert render_page(parts) == first.page.read_text(), first.how


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_read_as_it_was_written(kind: Kind) -> None:
    suite = kind.suite
    first, second, third, *rest = suite.rows()
    one, other = [column.name for column in suite.columns.values()][:2]
    told = Table(
        {one: "nothing", other: "a server of ours"},
        {
            one: dict.fromkeys(suite.rows(), Cell(PASSED)),
            other: {
                first: Cell(NOT_OFFERED, "it has none"),
                second: Cell(FAILED),
                third: Cell(NOT_OFFERED, "it has none"),
                **dict.fromkeys(rest, Cell(NOT_RUN)),
            },
        },
    )
    assert suite.parse_page(render_page([(suite, told)])) == told


def test_the_worst_of_several_worlds_counts() -> None:
    cells = [Cell(PASSED), Cell(FAILED), Cell(NOT_OFFERED, "none")]
    assert conformance_table.worst(cells) == Cell(FAILED)
    assert conformance_table.worst(cells[:1] * 2) == Cell(PASSED)


@pytest.mark.parametrize(
    ("kind", "file", "test"),
    [
        pytest.param(
            PROVIDERS,
            "test_fake.py",
            "test_each_node_gets_an_instance_of_its_own",
            id="providers",
        ),
        pytest.param(READ, "test_fake_queue.py", "test_preparing_twice_changes_nothing", id="read"),
        pytest.param(BATCH, "test_fake.py", "test_its_version_is_told", id="batch systems"),
    ],
)
def test_a_run_updates_what_it_ran_and_nothing_else(
    kind: Kind, file: str, test: str, tmp_path: Path
) -> None:
    suite, page = kind.suite, tmp_path / "page.md"
    ran, *others = suite.rows()
    (name, column), (_, other) = list(suite.columns.items())[:2]
    before = Table(
        {column.name: "the past", other.name: "the past"},
        {one.name: dict.fromkeys(suite.rows(), Cell(FAILED)) for one in (column, other)},
    )
    page.write_text(render_page([(suite, before)]))
    _run(kind, page, kind.folder / file, test)
    after = suite.parse_page(page.read_text())
    assert after.cells[other.name] == before.cells[other.name]
    assert after.cells[column.name] == {ran: Cell(PASSED), **dict.fromkeys(others, Cell(FAILED))}
    assert after.against == {other.name: "the past", column.name: suite.columns[name].against()}


def _run(kind: Kind, page: Path, file: Path, test: str) -> None:
    plugin = ["-p", f"tests.{kind.folder.name}.table", conformance_table.OPTION, str(page)]
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, "-k", test]
    subprocess.run([*argv, str(file)], cwd=TOP, check=True)
