"""Runs the tests on other releases of Debian: `python -m tests.matrix [--quick] [SUITE...]`."""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.matrix.areas import AREAS, QUICK
from tests.matrix.machine import Machine, machine
from tests.matrix.report import Found, read_tests, summary, write, wrong
from tests.matrix.roots import RELEASES, TOP, NotGiven, NotMade, root_of

STARTS = "starts"
"""Not an area with tests: how long jobs take to start."""
PAGE = TOP / "docs" / "slurm-versions.md"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(RELEASES))
    parser.add_argument("--quick", action="store_true", help="some areas, and no page is written")
    parser.add_argument(
        "--areas", default="", help=f"only these, by comma: {', '.join(AREAS)}, {STARTS}"
    )
    parser.add_argument("-n", default="3", help="how many processes run tests")
    chosen = parser.parse_args(arguments)
    areas = [area for area in chosen.areas.split(",") if area] or list(
        QUICK if chosen.quick else (*AREAS, STARTS)
    )
    if unknown := {*chosen.suites} - RELEASES.keys() | {*areas} - AREAS.keys() - {STARTS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if os.geteuid() != 0:
        parser.error("roots and namespaces need root")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    told, n = not chosen.quick, chosen.n
    bad = [suite for suite in chosen.suites or RELEASES if _run(suite, areas, told, n)]
    return 1 if bad else 0


def _run(suite: str, areas: Sequence[str], told: bool, processes: str) -> bool:
    """Whether anything failed on this release, or anything asked for was not tried there."""
    try:
        with root_of(RELEASES[suite]) as root, machine(root) as there:
            found, status = _found(suite, there, areas, processes)
    except NotGiven as error:
        print(f"{suite}: SKIPPED, not given by the archive of this machine: {error}", flush=True)
        return False
    except NotMade as error:
        print(f"{suite}: FAILED, {error}", flush=True)
        return True
    print(summary(found), flush=True)
    bad = wrong(found, [area for area in areas if area != STARTS], status)
    if STARTS in areas and not found.starts:
        bad.append("the starts were not measured")
    if told and status in (0, 1):  # else it broke off, and says nothing of what it did not come to
        write(PAGE, found)
    for why in bad:
        print(f"{suite}: FAILED, {why}", flush=True)
    return bool(bad)


def _commit() -> str:
    """With a mark where anything but the page differs from it."""
    commit = _git("rev-parse", "--short", "HEAD")
    return commit + "-dirty" * bool(
        _git("status", "--porcelain", "--", ".", f":!{PAGE.relative_to(TOP)}")
    )


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=TOP, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _found(suite: str, there: Machine, areas: Sequence[str], processes: str) -> tuple[Found, int]:
    """What the tests found, and the status that pytest ended with."""
    found = Found(
        suite,
        slurm=there.told("slurmctld", "-V").split()[-1],
        python=there.told("python", "-V").split()[-1],
        run=f"{datetime.now(UTC):%Y-%m-%d %H:%M} ({_commit()})",
    )
    print(f"{suite}: Slurm {found.slurm}, Python {found.python}", flush=True)
    files = [file for area in areas for file in AREAS.get(area, ())]
    status = _test(there, files, processes, found) if files else 0
    if STARTS in areas:
        found.starts = _starts(there)
    return found, status


def _test(there: Machine, files: Sequence[str], processes: str, found: Found) -> int:
    """Adds what the tests say; the status that pytest ended with."""
    spread = ["-n", processes, "--dist", "loadfile", "--no-loadscope-reorder"]
    status = there.run(
        "pytest",
        "-q",
        "--durations=15",
        *spread,
        "-p",
        "no:cacheprovider",
        "--junitxml=/results/tests.xml",
        *files,
    )
    report = there.results / "tests.xml"
    if not report.exists():
        raise NotMade(f"pytest ended with status {status} and no report")
    read_tests(report, found)
    return status


def _starts(there: Machine) -> dict[str, list[float]]:
    """None if they could not be measured."""
    if there.run("python", "-m", "tests.matrix.starts", "/results/starts.json"):
        return {}
    measured: dict[str, list[float]] = json.loads((there.results / "starts.json").read_text())
    return measured


if __name__ == "__main__":
    sys.exit(main())
