"""Runs the tests on other releases of Debian: `python -m tests.matrix [--quick] [SUITE...]`."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.matrix.areas import AREAS, QUICK
from tests.matrix.machine import Machine, machine
from tests.matrix.report import Found, read_tests, summary, write, wrong
from tests.matrix.roots import RELEASES, TOP, NotGiven, NotMade, root_of

PAGE = TOP / "docs" / "slurm-versions.md"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(RELEASES))
    parser.add_argument("--quick", action="store_true", help="some areas, and no page is written")
    parser.add_argument("--areas", default="", help=f"only these, by comma: {', '.join(AREAS)}")
    parser.add_argument("-n", default="3", help="how many processes run tests")
    chosen = parser.parse_args(arguments)
    areas = [area for area in chosen.areas.split(",") if area] or list(
        QUICK if chosen.quick else AREAS
    )
    if unknown := {*chosen.suites} - RELEASES.keys() | {*areas} - AREAS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if os.geteuid() != 0:
        parser.error("roots and namespaces need root")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    whole = not chosen.quick and not chosen.areas
    bad = [suite for suite in chosen.suites or RELEASES if _run(suite, areas, whole, chosen.n)]
    return 1 if bad else 0


def _run(suite: str, areas: Sequence[str], whole: bool, processes: str) -> bool:
    """Whether anything failed on this release, or anything asked for was not tried there."""
    try:
        with root_of(RELEASES[suite]) as root, machine(root) as there:
            found, status = _found(suite, there, areas, whole, processes)
    except NotGiven as error:
        print(f"{suite}: SKIPPED, not given by the archive of this machine: {error}", flush=True)
        return False
    except NotMade as error:
        print(f"{suite}: FAILED, its root was not made: {error}", flush=True)
        return True
    print(summary(found), flush=True)
    if whole:
        write(PAGE, found)
    bad = wrong(found, areas, status)
    for why in bad:
        print(f"{suite}: FAILED, {why}", flush=True)
    return bool(bad)


def _found(
    suite: str, there: Machine, areas: Sequence[str], whole: bool, processes: str
) -> tuple[Found, int]:
    """What the tests found, and the status that pytest ended with."""
    found = Found(
        suite,
        slurm=there.told("slurmctld", "-V").split()[-1],
        python=there.told("python", "-V").split()[-1],
        date=f"{datetime.now(UTC):%Y-%m-%d}",
    )
    print(f"{suite}: Slurm {found.slurm}, Python {found.python}", flush=True)
    files = [file for area in areas for file in AREAS[area]]
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
    assert report.exists(), f"{suite}: pytest did not come to its end"
    read_tests(report, found)
    if whole:
        there.run("python", "-m", "tests.matrix.starts", "/results/starts.json")
        found.starts = json.loads((there.results / "starts.json").read_text())
    return found, status


if __name__ == "__main__":
    sys.exit(main())
