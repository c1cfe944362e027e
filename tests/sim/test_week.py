"""Random weeks of a cluster, in virtual time, the same in each run; `make week` runs others.

They run in a process of their own, where the order of sets is no chance: so any of them can be
had again with the command that is printed.
"""

import os
import subprocess
import sys

import pytest

WEEKS = 6


def run(*words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.week", "--jobs", "1", *words],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    print(" ".join(words), done.stdout, done.stderr, sep="\n")
    return done


@pytest.mark.accepts("X1", "X9", "C19")
@pytest.mark.timeout(1800)
def test_after_a_week_of_troubles_all_is_as_the_file_says() -> None:
    assert run("--seeds", str(WEEKS)).returncode == 0


@pytest.mark.timeout(1800)
def test_weeks_that_failed_once_do_not_fail_again() -> None:
    assert run("--again").returncode == 0


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plant", ["suspend-without-a-look", "strangers-are-welcome"])
def test_weeks_notice_a_decision_without_its_guard(plant: str) -> None:
    done = run("--plant", plant, "--seeds", "12", "--stop")
    assert done.returncode == 1
    assert f"--trace --plant {plant}" in done.stdout, "it says how to see it again"


def test_a_week_is_the_same_each_time() -> None:
    words = ("--seed", "5", "--trace", "--days", "1")
    assert run(*words).stdout.rpartition(", ")[0] == run(*words).stdout.rpartition(", ")[0]
