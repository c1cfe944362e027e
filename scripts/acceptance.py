"""Prints the acceptance table with the tests behind each row; run by `make acceptance`.

The table is docs/acceptance.md; a test names its rows with `@pytest.mark.accepts("E5")`.
Exit codes: 0 done, 1 a row asked for has no test, 2 wrong usage, table or mark.
"""

import argparse
import contextlib
import io
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| (?P<id>[A-Z]\d+) \| (?P<capability>.+?) (?:\| (?P<check>.+?) )?\|$")


class AcceptanceError(Exception):
    """The table, a mark or a question about them is wrong; the text says which."""


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    capability: str
    check: str


@dataclass(slots=True)
class Proofs:
    """A pytest plugin that notes, of the tests collected, which names which rows."""

    tests: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "accepts(*rows): rows of the acceptance table")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            # What is always skipped, or may fail, proves nothing.
            if all(item.get_closest_marker(name) is None for name in ("skip", "quarantine")):
                self._note(item)

    def _note(self, item: pytest.Item) -> None:
        test = item.nodeid.partition("[")[0]
        for mark in item.iter_markers("accepts"):
            for row in mark.args:
                self.tests[str(row)].add(test)


def parse_table(text: str) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for match in filter(None, map(ROW.match, text.splitlines())):
        row = Row(match["id"], match["capability"], match["check"] or "")
        if row.id in rows:
            raise AcceptanceError(f"row {row.id} is in the table twice: keep one")
        rows[row.id] = row
    if not rows:
        raise AcceptanceError("the acceptance table has no rows")
    return rows


def parse_selection(text: str, rows: Mapping[str, Row]) -> list[str]:
    chosen = [name for name in re.split(r"[,\s]+", text) if name]
    unknown = [name for name in chosen if name not in rows]
    if unknown:
        raise AcceptanceError(f"not in the table: {', '.join(unknown)}")
    if not chosen:
        raise AcceptanceError("--rows names no row; give some, as in --rows E4,E5")
    return chosen


def check_marks(tests: Mapping[str, Iterable[str]], rows: Mapping[str, Row]) -> None:
    wrong = [f"{test} names {row}" for row in tests if row not in rows for test in tests[row]]
    if wrong:
        raise AcceptanceError("rows that are not in the table:\n  " + "\n  ".join(sorted(wrong)))


def render_row(row: Row, tests: Iterable[str]) -> str:
    check = f" ({row.check})" if row.check else ""
    lines = [f"{row.id:<4} {row.capability}{check}"]
    lines += [f"       {test}" for test in sorted(tests)] or ["       no test yet"]
    return "\n".join(lines)


def render_report(rows: Sequence[Row], tests: Mapping[str, Iterable[str]]) -> str:
    without = [row.id for row in rows if not tests.get(row.id)]
    lines = [render_row(row, tests.get(row.id, ())) for row in rows]
    lines.append(f"\n{len(rows) - len(without)} of {len(rows)} rows have a test.")
    if without:
        lines.append(f"Without: {' '.join(without)}")
    return "\n".join(lines)


def collect(tests: Path) -> dict[str, set[str]]:
    proofs, said = Proofs(), io.StringIO()
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", str(tests)]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main(arguments, plugins=[proofs])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise AcceptanceError(f"pytest could not collect {tests}:\n{said.getvalue()}")
    return dict(proofs.tests)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Which tests are behind which acceptance row.")
    parser.add_argument("--rows", help="only these, as in E4,E5; exit 1 if one has no test")
    parser.add_argument("--table", type=Path, default=TOP / "docs" / "acceptance.md")
    parser.add_argument("--tests", type=Path, default=TOP / "tests")
    return parser.parse_args(argv)


def report(arguments: argparse.Namespace) -> int:
    rows = parse_table(arguments.table.read_text(encoding="utf-8"))
    chosen = list(rows) if arguments.rows is None else parse_selection(arguments.rows, rows)
    tests = collect(arguments.tests)
    check_marks(tests, rows)
    print(render_report([rows[name] for name in chosen], tests))
    return int(arguments.rows is not None and any(name not in tests for name in chosen))


def main(argv: Sequence[str]) -> int:
    try:
        return report(parse_arguments(argv))
    except (AcceptanceError, OSError) as error:
        print(f"acceptance: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
