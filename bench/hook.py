"""How long slurmctld is held up by a call of the resume program while the daemon is up.

The node it names is up already, so a call costs what any call costs, and changes nothing.
"""

import subprocess
import time
from collections.abc import Iterator
from statistics import median

from bench.ours import ask, springtide
from bench.place import place
from bench.queue import Queue, wait_until
from bench.table import Table, milliseconds, percentile, ratio
from springtide.configure.programs import interpreter
from springtide.layout import Layout

NODE = "n-000"
OURS = "the hook, resume"
EMPTY = "an empty Python program"


def run(quick: bool) -> Iterator[Table]:
    with place() as directory, springtide(directory / "o") as queue:
        layout = Layout(directory / "o" / "state")
        queue.start(1)
        commands = {
            OURS: [str(layout.programs / "resume"), NODE],
            EMPTY: [interpreter(), "-IS", "-c", "pass"],
            "/bin/true": ["/bin/true"],
        }
        found: dict[str, list[float]] = {what: [] for what in commands}
        for _ in range(2 if quick else 30):
            for what, command in commands.items():
                found[what].append(_timed(command, queue))
            _await_quiet(layout)
    yield _table(found)


def _timed(command: list[str], queue: Queue) -> float:
    """In the environment that slurmctld gives it."""
    began = time.perf_counter()
    subprocess.run(command, env={"SLURM_CONF": str(queue.conf)}, stdin=subprocess.DEVNULL)
    return time.perf_counter() - began


def _await_quiet(layout: Layout) -> None:
    """What the daemon does after it answered must not be counted with the next call."""
    wait_until(
        lambda: all(
            one["ended_at"] for one in ask(layout.socket, "GET", "/operations")["operations"]
        ),
        lambda: "an operation did not end",
        look_s=0.1,
    )


def _table(found: dict[str, list[float]]) -> Table:
    table = Table(
        f"a call of Slurm's program, ms, median of {len(found[OURS])}",
        ["", "median", "min", "p90", "ratio to empty Python"],
    )
    floor = median(found[EMPTY])
    for what, times in found.items():
        spread = (median(times), min(times), percentile(times, 0.9) or 0.0)
        table.rows.append([what, *map(milliseconds, spread), ratio(median(times), floor)])
    return table
