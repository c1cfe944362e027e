"""The docs: tables as the code has them, links that lead somewhere, commands that exist."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from scripts import docs
from springtide.cli.main import app

PAGES = [*docs.files(), docs.TOP / "CHANGELOG.md"]
GOALS = docs.TOP / "docs" / "acceptance.md"
"""Tells what shall be, so its commands need not be there."""
FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"(?<![\w/.-])tide((?: --(?:cluster|state) \S+)*) ([a-z]+)")


def name(path: Path) -> str:
    return str(path.relative_to(docs.TOP))


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


def links(path: Path) -> Iterator[str]:
    for target in LINK.findall(prose(path)):
        if not re.match(r"[a-z]+:", target):
            yield target


def printed(path: Path) -> Iterator[str]:
    """Commands of tide in code: spans, blocks between fences, indented blocks."""
    text = path.read_text(encoding="utf-8")
    blocks = [found[0] for found in FENCE.finditer(text)]
    spans = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    indented = re.findall(r"^(?: {4}|\t)(.+)$", text, re.MULTILINE)
    for part in (*blocks, *spans, *indented):
        yield from (found[2] for found in COMMAND.finditer(part.partition("#")[0]))


def test_every_table_is_as_the_code_has_it() -> None:
    done = subprocess.run(
        [sys.executable, docs.__file__, "--check"], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_link_between_pages_leads_somewhere(path: Path) -> None:
    for link in links(path):
        target, _, anchor = link.partition("#")
        there = (path.parent / target).resolve() if target else path
        assert there.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(there), f"{link} leads to no heading"


@pytest.mark.parametrize("path", [page for page in PAGES if page != GOALS], ids=name)
def test_every_command_that_a_page_prints_exists(path: Path) -> None:
    known = getattr(get_command(app), "commands", {})
    assert {command for command in printed(path) if command not in known} == set()


def test_a_stale_table_is_renewed_and_the_rest_is_kept() -> None:
    before = "head\n<!-- table: one -->\nold\n<!-- end -->\ntail\n"
    after = docs.render(before, {"one": lambda: "| new |\n"})
    assert after == "head\n<!-- table: one -->\n\n| new |\n\n<!-- end -->\ntail\n"
    assert docs.render(after, {"one": lambda: "| new |\n"}) == after


def test_a_table_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(docs.DocsError, match="no table 'two'; known: one"):
        docs.render("<!-- table: two -->\n<!-- end -->", {"one": str})


def test_a_table_without_an_end_is_an_error() -> None:
    with pytest.raises(docs.DocsError, match="end"):
        docs.render("<!-- table: one -->\n", {"one": str})


def test_every_key_of_a_cluster_file_has_a_meaning() -> None:
    rows = [line.split(" | ") for line in docs.keys().splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows if len(row[3].strip(" |")) < 5] == []
