"""Benchmarks that somebody names are run, and it is told if one has nothing to show."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from bench import run
from bench.table import Table


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.run", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_those_named_print_their_tables() -> None:
    done = bench("--quick", "scale", "nodeset")
    assert done.returncode == 0, done.stderr
    titles = ["the engine alone: a resume of so many nodes", "hostlists"]
    assert [line for line in done.stdout.splitlines() if line in titles] == titles


def test_one_that_there_is_not_is_refused() -> None:
    done = bench("--quick", "nosuch")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no such benchmark: nosuch" in done.stderr


def test_one_that_found_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def empty(quick: bool) -> Iterator[Table]:
        yield Table("starts", ["", "s"])

    monkeypatch.setitem(run.BENCHMARKS, "start", empty)
    assert run._run(["start"], quick=True) == 1
    assert "start: nothing was found of starts" in capsys.readouterr().err
