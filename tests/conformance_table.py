"""What every adapter of a kind does, as a table of the docs: shared tests × adapters.

A plugin of pytest: `-p tests.providers.table --conformance-table FILE` runs no tests but those
that its suite shares, and writes their results into the columns of the adapters that were run.
The other columns stay as they are, so that slow ones can be run alone.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
OPTION = "--conformance-table"
PASSED, NOT_OFFERED, FAILED, NOT_RUN = "passed", "not offered", "FAILED", "not run"
FOOTNOTE = re.compile(r"^\[\^(\d+)\]: (.+)$", re.MULTILINE)
CELL = re.compile(r"(passed|not offered|FAILED|not run)(?: \[\^(\d+)\])?")


@dataclass(frozen=True, slots=True)
class Cell:
    """How a provider did in a test, and why if it was not offered."""

    result: str
    reason: str = ""


@dataclass(slots=True)
class Table:
    """What each column ran against, and its cells by row."""

    against: dict[str, str] = field(default_factory=dict)
    cells: dict[str, dict[str, Cell]] = field(default_factory=dict)

    def cell(self, column: str, row: str) -> Cell:
        return self.cells.get(column, {}).get(row, Cell(NOT_RUN))


@dataclass(frozen=True, slots=True)
class Column:
    """An adapter, and how to tell what its tests run against."""

    name: str
    against: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests that all adapters of a kind share."""

    tests: type
    """The class that those of adapters are made of."""
    one: str
    """What an adapter is called."""
    introduction: str
    columns: Mapping[str, Column]
    """By the class of tests, in the order of the page."""

    def rows(self) -> list[str]:
        tests = [
            (name, test)
            for kind in self.tests.__mro__
            for name, test in vars(kind).items()
            if name.startswith("test_")
        ]
        return [row for name, test in tests for row in _rows(name, getattr(test, "pytestmark", ()))]

    def parse_page(self, text: str) -> Table:
        """What a page as `render_page` writes it has of this suite; none is an empty table."""
        reasons = dict(FOOTNOTE.findall(text))
        table = Table()
        for (kind, *columns), *body in _tables(text):
            if kind == self.one:
                table.against.update((name, against) for name, against in body)
            elif kind == f"every {self.one}":
                for row, *cells in body:
                    for column, cell in zip(columns, cells, strict=True):
                        table.cells.setdefault(column, {})[row] = _parse_cell(cell, reasons)
        return table

    def render(self, table: Table, notes: dict[str, int]) -> str:
        """Its part of a page, whose notes are counted through."""
        columns = [one.name for one in self.columns.values() if one.name in table.cells]
        head = [f"every {self.one}", *columns]
        body = [
            [row, *(_cell(table.cell(name, row), notes) for name in columns)] for row in self.rows()
        ]
        against = [[name, table.against.get(name, "?")] for name in columns]
        parts = [self.introduction, _markdown([[self.one, "ran against"], *against])]
        return "\n".join([*parts, _markdown([head, *body])])


def render_page(parts: Iterable[tuple[Suite, Table]]) -> str:
    """One suite after the other, and the notes of all."""
    notes: dict[str, int] = {}
    texts = [suite.render(table, notes) for suite, table in parts]
    texts += ["".join(f"[^{number}]: {reason}\n" for reason, number in notes.items())]
    return "\n".join(text for text in texts if text)


def program(*argv: str) -> str:
    """The version of a program that is installed."""
    path = shutil.which(argv[0], path="/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin")
    if path is None:
        return "?"
    said = subprocess.run([path, *argv[1:]], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+(\.\d+)+", said)
    return found[0] if found else "?"


# --- rows and cells ---------------------------------------------------------------------------


def sentence(test: str, values: Iterable[object] = ()) -> str:
    words = test.removeprefix("test_").replace("_", " ")
    return ": ".join([words, *(str(getattr(value, "__name__", value)) for value in values)])


def _rows(name: str, marks: Iterable[pytest.Mark]) -> Iterator[str]:
    choices = [mark.args[1] for mark in marks if mark.name == "parametrize"]
    if not choices:
        yield sentence(name)
    for values in choices:
        yield from (sentence(name, [value]) for value in values)


def _parse_cell(text: str, reasons: Mapping[str, str]) -> Cell:
    found = CELL.fullmatch(text)
    if found is None:
        raise ValueError(f"no cell of a conformance table: {text}")
    return Cell(found[1], reasons.get(found[2] or "", ""))


def _cell(cell: Cell, notes: dict[str, int]) -> str:
    if not cell.reason:
        return cell.result
    return f"{cell.result} [^{notes.setdefault(cell.reason, len(notes) + 1)}]"


def _tables(text: str) -> list[list[list[str]]]:
    """The cells of each table, without the line below its head."""
    blocks = [
        [line for line in block.splitlines() if line[:2] == "| "] for block in text.split("\n\n")
    ]
    return [[line.strip("| ").split(" | ") for line in block] for block in blocks if block]


def _markdown(lines: list[list[str]]) -> str:
    rule = "|---" * len(lines[0]) + "|"
    first, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([first, rule, *rest, ""])


# --- the plugin -------------------------------------------------------------------------------


class Recorder:
    """Hears of all results, those of other processes too, and writes them down at the end."""

    def __init__(self, suites: Sequence[Suite], page: Path) -> None:
        self.suites, self.page = suites, page
        self.seen: dict[tuple[str, str], list[Cell]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = dict(report.user_properties).get(OPTION)
        if isinstance(found, str) and (cell := decide_cell(report)):
            kind, _, row = found.partition(" ")
            self.seen.setdefault((kind, row), []).append(cell)

    def pytest_sessionfinish(self) -> None:
        text = self.page.read_text() if self.page.exists() else ""
        self.page.write_text(render_page((one, self._updated(one, text)) for one in self.suites))

    def _updated(self, suite: Suite, text: str) -> Table:
        table = suite.parse_page(text)
        for (kind, row), cells in self.seen.items():
            if column := suite.columns.get(kind):
                table.against[column.name] = column.against()
                table.cells.setdefault(column.name, {})[row] = worst(cells)
        return table


def decide_cell(report: pytest.TestReport) -> Cell | None:
    """None if it tells nothing of the adapter: this machine lacks something, or it goes on."""
    if report.failed:
        return Cell(FAILED)
    if report.when != "call":
        return None
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        return Cell(NOT_OFFERED, reason.removeprefix("Skipped: "))
    return Cell(PASSED)


def worst(cells: Iterable[Cell]) -> Cell:
    """Of all worlds of an adapter that a test was run in."""
    return max(cells, key=lambda cell: (PASSED, NOT_OFFERED, FAILED).index(cell.result))


class Plugin:
    """Its methods are the hooks of the module that is named to pytest."""

    def __init__(self, *suites: Suite) -> None:
        """Of one page."""
        self.suites = suites

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        words = "run conformance tests only; write results there"
        parser.addoption(OPTION, metavar="FILE", help=words)

    def pytest_configure(self, config: pytest.Config) -> None:
        """Processes that xdist starts report to the first."""
        page = config.getoption(OPTION)
        if page and not hasattr(config, "workerinput"):
            recorder = Recorder(self.suites, Path(page))
            config.pluginmanager.register(recorder, "conformance table")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if not config.getoption(OPTION):
            return
        ours = [item for item in items if self._is_shared(item)]
        for item in ours:
            item.user_properties.append((OPTION, _place(item)))
        config.hook.pytest_deselected(items=[item for item in items if item not in ours])
        items[:] = ours

    def _is_shared(self, item: pytest.Item) -> bool:
        kind = getattr(item, "cls", None)
        return isinstance(kind, type) and issubclass(kind, tuple(one.tests for one in self.suites))


def _place(item: pytest.Item) -> str:
    """Column and row. What an adapter's own fixture is given is a world of its own, not a row."""
    assert isinstance(item, pytest.Function)
    call = getattr(item, "callspec", None)
    values = [value for name, value in call.params.items() if name != "world"] if call else []
    assert item.cls is not None
    return f"{item.cls.__name__} {sentence(item.originalname, values)}"
