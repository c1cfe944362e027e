"""When slurmd may start: in no second in which it would seem to have booted before it was asked."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from springtide.configure.cloud_node import CloudNode
from springtide.node import second, slurm
from springtide.ports import Site


def passed(asked_at: float | None, clock: Sequence[int]) -> int:
    """How often it looked at a clock that shows these seconds, one after the other, the last for
    ever."""
    shown = " ".join(map(str, clock))
    with TemporaryDirectory() as home:
        seen = Path(home, "seen")
        script = (
            f"set -eu\nsleep() {{ :; }}\ndate() {{ echo >>{seen}; set -- {shown}; "
            f'n=$(wc -l <{seen}); [ "$n" -lt $# ] || n=$#; shift $((n - 1)); echo "$1"; }}\n'
        )
        subprocess.run(["sh", "-c", script + second.render_wait(asked_at)], check=True)
        return seen.read_text().count("\n")


@pytest.mark.parametrize(
    ("asked_at", "clock", "looks"),
    [
        (100.9, [101], 1),
        (100.0, [100, 100, 101], 3),
        (100.9, [100, 100, 100, 101], 4),
        (200.0, [101], 1),
        (None, [100, 100, 101], 3),
        (None, [100, 99], 2),
    ],
)
def test_slurmd_starts_in_a_later_second_than_that_in_which_it_was_asked_for(
    asked_at: float | None, clock: list[int], looks: int
) -> None:
    """However long it takes, and also if the clock is set back: then nothing is waited for."""
    assert passed(asked_at, clock) == looks


def test_machines_of_clouds_wait_just_before_slurmd() -> None:
    text = CloudNode("head", 6817, Path("/run/munge.socket")).user_data(Site("10.0.0.1"))
    before, _, after = text.partition(second.render_wait())
    assert "munged" in before
    assert "slurmd -b" not in before
    assert "slurmd -b" in after
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)


def test_machines_that_join_wait_just_before_slurmd(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], *_: Any) -> tuple[int, str]:
        ran.append(command)
        return 0, ""

    monkeypatch.setattr(slurm, "run", run)
    monkeypatch.setattr(slurm, "has_systemd", lambda: False)
    slurm.apply_slurmd(
        {
            "node": "n-7",
            "slurmd": {"server": "10.0.0.1:6817", "directories": [], "tells_boot": True},
        }
    )
    wait, start = ran
    assert wait == ["sh", "-c", second.render_wait()]
    assert start[1:4] == ["-b", "-N", "n-7"]
