"""What every provider does, as a table of docs/conformance.md. `make conformance` fills it in.

A plugin of pytest: `-p tests.providers.table --conformance-table FILE` runs no tests but those of
`Conformance`, and writes their results into the columns of the providers that were run. The
other columns stay as they are, so that slow ones can be run alone.
"""

import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.providers.conformance import Conformance

TOP = Path(__file__).resolve().parents[2]
OPTION = "--conformance-table"
PASSED, NOT_OFFERED, FAILED, NOT_RUN = "passed", "not offered", "FAILED", "not run"
FOOTNOTE = re.compile(r"^\[\^(\d+)\]: (.+)$", re.MULTILINE)
CELL = re.compile(r"(passed|not offered|FAILED|not run)(?: \[\^(\d+)\])?")
INTRODUCTION = """\
# Conformance

What every provider must do, and which of them do it: one set of tests (the class `Conformance` in
tests/providers), run over all of them. `make conformance` runs it and writes this page; nobody
edits it by hand. A run of one file updates the column of its provider:

    .venv/bin/python -m pytest -p tests.providers.table --conformance-table docs/conformance.md \\
        tests/providers/test_aws.py

`not offered` means that the provider has no such thing, for the reason in the note. Where a
provider cannot rebuild in place, make images of instances or tell its flavors, `passed` means that
it says so and changes nothing.
"""


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


# --- columns: the classes of providers --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """A provider, and how to tell what its tests run against."""

    name: str
    against: Callable[[], str]


def program(*argv: str) -> str:
    """The version of a program that is installed."""
    path = shutil.which(argv[0], path="/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin")
    if path is None:
        return "?"
    said = subprocess.run([path, *argv[1:]], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+(\.\d+)+", said)
    return found[0] if found else "?"


def locked(package: str) -> str:
    """The version of a server of the tests' OpenStack, which has an environment of its own."""
    lines = (TOP / "requirements" / "openstack.txt").read_text()
    found = re.search(rf"^{package}==(\S+)", lines, re.MULTILINE)
    return found[1] if found else "?"


def _terraform() -> str:
    name = "terraform" if shutil.which("terraform") else "tofu"
    return f"real: {name} {program(name, 'version')} with its builtin provider and a module of ours"


def _openstack() -> str:
    names = ("nova", "neutron", "keystone", "glance", "openstack-placement")
    servers = ", ".join(f"{name.removeprefix('openstack-')} {locked(name)}" for name in names)
    return (
        f"real: {servers} with MariaDB and RabbitMQ, only the hypervisor is Nova's FakeDriver; "
        f"openstacksdk {version('openstacksdk')}; no room and no quota are Nova's own refusals, "
        "others and lost replies come from a proxy before it"
    )


def _libvirt() -> str:
    qemu = program("qemu-system-x86_64", "--version")
    return f"real: libvirtd {program('libvirtd', '--version')}, QEMU {qemu} without KVM"


def _aws() -> str:
    return (
        f"SDK and server: boto3 {version('boto3')}, over HTTP to moto {version('moto')} behind a "
        "wrapper of ours that behaves as EC2 does"
    )


def _azure() -> str:
    sdk = f"azure-mgmt-compute {version('azure-mgmt-compute')}"
    return f"SDK and server: {sdk}, over HTTP to a protocol server of ours"


def _google() -> str:
    document = f"google-api-python-client {version('google-api-python-client')}"
    return (
        f"SDK and server: google-auth {version('google-auth')}, REST over HTTP to a protocol "
        f"server of ours that holds requests to Google's own description of the API ({document})"
    )


def _containers() -> str:
    kernel = ".".join(platform.release().split(".")[:2])
    return f"real: namespaces, overlays and links of Linux {kernel}"


COLUMNS: Mapping[str, Column] = {
    "TestConformance": Column("fake", lambda: "the fake cloud of the simulation, virtual time"),
    "TestContainers": Column("containers", _containers),
    "TestOpenStack": Column("openstack", _openstack),
    "TestAws": Column("aws", _aws),
    "TestAwsFleets": Column("aws fleets", lambda: f"{_aws()}; every launch is a fleet"),
    "TestOci": Column(
        "oci",
        lambda: f"SDK and server: oci {version('oci')}, over HTTP to a protocol server of ours",
    ),
    "TestAzure": Column("azure", _azure),
    "TestGoogle": Column("google", _google),
    "TestLibvirt": Column(
        "libvirt", lambda: f"{_libvirt()}; refusals and lost replies come from a proxy before it"
    ),
    "TestPower": Column(
        "libvirt power",
        lambda: (
            f"{_libvirt()}; machines that exist are switched. Each is one cluster's at a time, so "
            "its test of two clusters is its own: the second is refused until the first is done"
        ),
    ),
    "TestTerraform": Column("terraform", _terraform),
    "TestCommand": Column("command", lambda: "real: programs of a site, whose machines are files"),
}
"""By the class of tests, in the order of the page."""


# --- rows: the tests of Conformance -----------------------------------------------------------


def sentence(test: str, values: Iterable[object] = ()) -> str:
    words = test.removeprefix("test_").replace("_", " ")
    return ": ".join([words, *(str(getattr(value, "__name__", value)) for value in values)])


def rows() -> list[str]:
    tests = [
        (name, test)
        for kind in Conformance.__mro__
        for name, test in vars(kind).items()
        if name.startswith("test_")
    ]
    return [row for name, test in tests for row in _rows(name, getattr(test, "pytestmark", ()))]


def _rows(name: str, marks: Iterable[pytest.Mark]) -> Iterator[str]:
    choices = [mark.args[1] for mark in marks if mark.name == "parametrize"]
    if not choices:
        yield sentence(name)
    for values in choices:
        yield from (sentence(name, [value]) for value in values)


# --- the page ---------------------------------------------------------------------------------


def parse_page(text: str) -> Table:
    """A page as `render_page` writes it; none is an empty table."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line[:2] == "| "]
    reasons = dict(FOOTNOTE.findall(text))
    columns: list[str] = []
    table = Table()
    for first, *rest in lines:
        if first == "every provider":
            columns = rest
        elif columns:
            for column, cell in zip(columns, rest, strict=True):
                table.cells.setdefault(column, {})[first] = _parse_cell(cell, reasons)
        elif first != "provider":
            table.against[first] = rest[0]
    return table


def _parse_cell(text: str, reasons: Mapping[str, str]) -> Cell:
    found = CELL.fullmatch(text)
    if found is None:
        raise ValueError(f"no cell of a conformance table: {text}")
    return Cell(found[1], reasons.get(found[2] or "", ""))


def render_page(table: Table) -> str:
    columns = [one.name for one in COLUMNS.values() if one.name in table.cells]
    notes: dict[str, int] = {}
    head = ["every provider", *columns]
    body = [[row, *(_cell(table.cell(name, row), notes) for name in columns)] for row in rows()]
    against = [[name, table.against.get(name, "?")] for name in columns]
    parts = [INTRODUCTION, _markdown([["provider", "ran against"], *against])]
    parts += [_markdown([head, *body])]
    parts += ["".join(f"[^{number}]: {reason}\n" for reason, number in notes.items())]
    return "\n".join(part for part in parts if part)


def _cell(cell: Cell, notes: dict[str, int]) -> str:
    if not cell.reason:
        return cell.result
    return f"{cell.result} [^{notes.setdefault(cell.reason, len(notes) + 1)}]"


def _markdown(lines: list[list[str]]) -> str:
    rule = "|---" * len(lines[0]) + "|"
    first, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([first, rule, *rest, ""])


# --- the plugin -------------------------------------------------------------------------------


class Recorder:
    """Hears of all results, those of other processes too, and writes them down at the end."""

    def __init__(self, page: Path) -> None:
        self.page = page
        self.seen: dict[tuple[str, str], list[Cell]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = dict(report.user_properties).get(OPTION)
        if isinstance(found, str) and (cell := decide_cell(report)):
            kind, _, row = found.partition(" ")
            self.seen.setdefault((kind, row), []).append(cell)

    def pytest_sessionfinish(self) -> None:
        table = parse_page(self.page.read_text() if self.page.exists() else "")
        for (kind, row), cells in self.seen.items():
            column = COLUMNS[kind]
            table.against[column.name] = column.against()
            table.cells.setdefault(column.name, {})[row] = worst(cells)
        self.page.write_text(render_page(table))


def decide_cell(report: pytest.TestReport) -> Cell | None:
    """None if it tells nothing of the provider: this machine lacks something, or it goes on."""
    if report.failed:
        return Cell(FAILED)
    if report.when != "call":
        return None
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        return Cell(NOT_OFFERED, reason.removeprefix("Skipped: "))
    return Cell(PASSED)


def worst(cells: Iterable[Cell]) -> Cell:
    """Of all worlds of a provider that a test was run in."""
    return max(cells, key=lambda cell: (PASSED, NOT_OFFERED, FAILED).index(cell.result))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, metavar="FILE", help="run conformance tests only; write results there")


def pytest_configure(config: pytest.Config) -> None:
    """Processes that xdist starts report to the first."""
    page = config.getoption(OPTION)
    if page and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(page)), "conformance table")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption(OPTION):
        return
    ours = [item for item in items if _is_conformance(item)]
    for item in ours:
        item.user_properties.append((OPTION, _place(item)))
    config.hook.pytest_deselected(items=[item for item in items if item not in ours])
    items[:] = ours


def _is_conformance(item: pytest.Item) -> bool:
    kind = getattr(item, "cls", None)
    return isinstance(kind, type) and issubclass(kind, Conformance)


def _place(item: pytest.Item) -> str:
    """Column and row. What a provider's own fixture is given is a world of its own, not a row."""
    assert isinstance(item, pytest.Function)
    call = getattr(item, "callspec", None)
    values = [value for name, value in call.params.items() if name != "world"] if call else []
    assert item.cls is not None
    return f"{item.cls.__name__} {sentence(item.originalname, values)}"
