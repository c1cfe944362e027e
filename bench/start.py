"""From submission to a running job, from zero: Springtide, the floor, and Slurm without the cure.

The systems take turns on the same machine in the same run. A job waits first for Slurm itself,
whose scheduler and power thread look once a second each, and then for nodes. When Slurm's
clocks tick is chance; submissions are spread evenly over the second, and the wait is
shown on its own, so that chance can be told from merit.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from bench.floor import floor
from bench.ours import springtide
from bench.place import place
from bench.queue import Queue, Started
from bench.table import Table, middle, percentile, ratio, seconds

OURS, FLOOR, STALL = "springtide", "floor", "no cure"
SIZES = (1, 4, 16)
STALL_SIZES = (1, 4)
TASKS = 16
TARGET = 1.3
STRIDE = 7  # through the phases of the second, so that neighbours are far apart


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often each is measured."""

    cold: int
    stall: int
    array: int


FULL, QUICK = Repeats(cold=10, stall=3, array=5), Repeats(cold=3, stall=1, array=1)
Found = defaultdict[tuple[str, str], list[Started]]
"""By system and what was started."""


def run(quick: bool) -> Iterator[Table]:
    repeats = QUICK if quick else FULL
    with ExitStack() as stack:
        directory = stack.enter_context(place())
        systems = {
            OURS: stack.enter_context(springtide(directory / "o")),
            FLOOR: stack.enter_context(floor(directory / "f", "floor", cure=True)),
            STALL: stack.enter_context(floor(directory / "s", "stall", cure=False)),
        }
        found = measure(systems, repeats)
    yield tabulate(found, repeats)
    yield split(found)


def measure(systems: dict[str, Queue], repeats: Repeats) -> Found:
    found: Found = Found(list)
    for repeat in range(max(repeats.cold, repeats.stall)):
        for name in turns(list(systems), repeat):
            if repeat < (repeats.stall if name == STALL else repeats.cold):
                _cold(found, name, systems[name], phase(repeat, repeats.cold))
    for repeat in range(repeats.array):
        for name in turns(list(systems), repeat):
            if repeat < (1 if name == STALL else repeats.array):
                _array(found, name, systems[name], phase(repeat, repeats.array))
    return found


def turns(names: list[str], repeat: int) -> list[str]:
    """Everybody is first as often as others."""
    at = repeat % len(names)
    return names[at:] + names[:at]


def phase(repeat: int, repeats: int) -> float:
    return (repeat * STRIDE % repeats + 0.5) / repeats


def _cold(found: Found, name: str, queue: Queue, at: float) -> None:
    for size in STALL_SIZES if name == STALL else SIZES:
        _await_phase(at)
        what = "1 node" if size == 1 else f"{size} nodes"
        found[name, what].append(queue.start(size))
        _await_phase(at)
        found[name, f"{what}, warm"].append(queue.start(size))
        queue.to_zero()


def _array(found: Found, name: str, queue: Queue, at: float) -> None:
    """All tasks hold until the last one runs, so that each has a node of its own."""
    hold = queue.out / "hold"
    hold.touch()
    _await_phase(at)
    try:
        found[name, f"array of {TASKS}"].append(queue.start(1, TASKS))
    finally:
        hold.unlink()
    queue.to_zero()


def _await_phase(at: float) -> None:
    """Until the clock shows this part of a second."""
    time.sleep((at - time.time()) % 1)


# What was found


def tabulate(found: Found, repeats: Repeats) -> Table:
    table = Table(
        f"submit -> running from zero, s, median of {repeats.cold} (min, p90)",
        ["", OURS, FLOOR, "ratio", "at equal wait", STALL],
        notes=[
            f"target: at most {TARGET} x the floor; judge by `at equal wait`, which gives both the",
            "same wait for Slurm's own clocks: that is chance, and decides the plain ratio.",
            "`no cure`: Slurm by itself, which launches on booting nodes every 30 s.",
        ],
    )
    for what in dict.fromkeys(what for _, what in found):
        ours, bare = found[OURS, what], found[FLOOR, what]
        cells = [_spread(ours), _spread(bare), ratio(_running(ours), _running(bare))]
        table.rows.append([what, *cells, _equal(ours, bare), seconds(_running(found[STALL, what]))])
    return table


def split(found: Found) -> Table:
    """Where the time goes: before the resume program is called, and after."""
    table = Table(
        "of that: Slurm's wait until it calls the resume program, and the rest, medians, s",
        ["", f"{OURS}: wait", "rest", f"{FLOOR}: wait", "rest", "ratio of rests"],
    )
    for what in dict.fromkeys(what for _, what in found):
        ours, bare = found[OURS, what], found[FLOOR, what]
        if not (waits(ours) and waits(bare)):
            continue
        cells = [middle(waits(ours)), middle(rests(ours)), middle(waits(bare)), middle(rests(bare))]
        table.rows.append([what, *map(seconds, cells), ratio(cells[1], cells[3])])
    return table


def waits(runs: list[Started]) -> list[float]:
    return [one.called_s for one in runs if one.called_s is not None]


def rests(runs: list[Started]) -> list[float]:
    return [one.running_s - one.called_s for one in runs if one.called_s is not None]


def _running(runs: list[Started]) -> float | None:
    return middle(one.running_s for one in runs)


def _spread(runs: list[Started]) -> str:
    all_of_them = [one.running_s for one in runs]
    if not all_of_them:
        return "-"
    low, high = min(all_of_them), percentile(all_of_them, 0.9)
    return f"{median(all_of_them):.2f} ({low:.2f}, {high:.2f})"


def _equal(ours: list[Started], bare: list[Started]) -> str:
    """The ratio that remains when both had waited for Slurm as long as all did on average."""
    wait = waits(ours) + waits(bare)
    if not wait:
        return "-"
    return ratio(median(wait) + median(rests(ours)), median(wait) + median(rests(bare)))
