"""From submission to a running job, from zero: Springtide, the floor, and Slurm without the cure.

The systems take turns on the same machine in the same run. A job waits first for Slurm itself,
whose scheduler and power thread look once a second each, and then for nodes. Where in the
second they look is chance and differs between two slurmctlds by more than all the rest takes.
So submissions are spread evenly over the second, and both systems are given the same waits.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from bench.floor import floor
from bench.ours import springtide
from bench.place import place
from bench.queue import Queue, Started
from bench.table import Table, middle, percentile, ratio, seconds

OURS, FLOOR, STALL = "springtide", "floor", "no cure"
TARGET = 1.3
STRIDE = 7  # through the phases of the second, so that neighbours are far apart


@dataclass(frozen=True, slots=True)
class Repeats:
    """What is started, and how often."""

    cold: int
    array: int
    stall: int
    stall_array: int
    sizes: Sequence[int]
    stall_sizes: Sequence[int]
    tasks: int


FULL = Repeats(10, 5, stall=3, stall_array=3, sizes=(1, 4, 16), stall_sizes=(1, 4), tasks=16)
QUICK = Repeats(1, 1, stall=1, stall_array=0, sizes=(1, 2), stall_sizes=(1,), tasks=2)
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
    yield judged(found, repeats)
    yield measured(found)


def measure(systems: dict[str, Queue], repeats: Repeats) -> Found:
    found: Found = Found(list)
    for name, at in _schedule(list(systems), repeats.cold, repeats.stall):
        _cold(found, name, systems[name], at, repeats)
    for name, at in _schedule(list(systems), repeats.array, repeats.stall_array):
        _array(found, name, systems[name], at, repeats.tasks)
    return found


def _schedule(names: list[str], repeats: int, stalls: int) -> Iterator[tuple[str, float]]:
    """Who is next, and at which part of a second; the stalled one is slow, so it comes less."""
    for repeat in range(repeats):
        for name in turns(names, repeat):
            if name != STALL or repeat < stalls:
                yield name, phase(repeat, repeats)


def turns(names: list[str], repeat: int) -> list[str]:
    """Everybody is first as often as others."""
    at = repeat % len(names)
    return names[at:] + names[:at]


def phase(repeat: int, repeats: int) -> float:
    return (repeat * STRIDE % repeats + 0.5) / repeats


def _cold(found: Found, name: str, queue: Queue, at: float, repeats: Repeats) -> None:
    for size in repeats.stall_sizes if name == STALL else repeats.sizes:
        _await_phase(at)
        what = "1 node" if size == 1 else f"{size} nodes"
        found[name, what].append(queue.start(size))
        _await_phase(at)
        found[name, f"{what}, warm"].append(queue.start(size))
        queue.to_zero()


def _array(found: Found, name: str, queue: Queue, at: float, tasks: int) -> None:
    """All tasks hold until the last one runs, so that each has a node of its own."""
    hold = queue.out / "hold"
    hold.touch()
    _await_phase(at)
    try:
        found[name, f"array of {tasks}"].append(queue.start(1, tasks))
    finally:
        hold.unlink()
    queue.to_zero()


def _await_phase(at: float) -> None:
    """Until the clock shows this part of a second."""
    time.sleep((at - time.time()) % 1)


# What was found


def judged(found: Found, repeats: Repeats) -> Table:
    """Slurm's waits were not ours to shorten, so each start is combined with all of them."""
    table = Table(
        f"submit -> running from zero, s, {repeats.cold} starts, median (min, p90)",
        ["", OURS, FLOOR, "ratio", STALL],
        notes=[
            f"target: at most {TARGET} x the floor. Each start is combined with every wait for",
            "Slurm's own clocks that was seen in the run: that is chance, and the same for both.",
            "`no cure`: Slurm by itself, which launches on booting nodes every 30 s.",
        ],
    )
    for what in whats(found):
        ours, bare = found[OURS, what], found[FLOOR, what]
        if pool := waits(ours) + waits(bare):
            both = [[wait + rest for wait in pool for rest in rests(runs)] for runs in (ours, bare)]
            stall = middle(one.running_s for one in found[STALL, what])
            cells = [*map(_spread, both), ratio(middle(both[0]), middle(both[1])), seconds(stall)]
            table.rows.append([what, *cells])
    return table


def measured(found: Found) -> Table:
    """What each system got: Slurm's wait until it calls the resume program, and the rest."""
    table = Table(
        "as measured, medians, s: all = wait until Slurm calls the resume program + rest",
        ["", f"{OURS}: all", "wait", "rest", f"{FLOOR}: all", "wait", "rest", "ratio of rests"],
    )
    for what in whats(found):
        ours, bare = _parts(found[OURS, what]), _parts(found[FLOOR, what])
        cells = [*map(seconds, ours), *map(seconds, bare)]
        table.rows.append([what, *cells, ratio(ours[-1], bare[-1])])
    return table


def whats(found: Found) -> list[str]:
    return list(dict.fromkeys(what for _, what in found))


def waits(runs: list[Started]) -> list[float]:
    return [one.called_s for one in runs if one.called_s is not None]


def rests(runs: list[Started]) -> list[float]:
    return [one.running_s - one.called_s for one in runs if one.called_s is not None]


def _parts(runs: list[Started]) -> list[float | None]:
    return [middle(one.running_s for one in runs), middle(waits(runs)), middle(rests(runs))]


def _spread(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{median(values):.2f} ({min(values):.2f}, {percentile(values, 0.9):.2f})"
