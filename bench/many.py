"""Many container nodes at once: all jobs run, all nodes go, and what a node costs in memory."""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.ours import springtide
from bench.place import NODES, place
from bench.queue import GaveUp, Queue
from bench.table import Table
from springtide.layout import Layout
from springtide.providers.containers import links
from springtide.providers.containers.instances import homes, read_process

MIB = 1 << 20
FEW = 8


def run(quick: bool) -> Iterator[Table]:
    count = FEW if quick else NODES
    with place() as directory, springtide(directory / "o") as queue:
        hold = queue.out / "hold"
        hold.touch()
        submitted_at = time.time()
        job = queue.submit(1, count)
        began = queue.began(f"{job}.{task}" for task in range(1, count + 1))
        memory = _memory(homes(Layout(directory / "o" / "state").instances))
        if len(memory) != count:
            raise GaveUp(f"{len(memory)} nodes are up, not {count}")
        hold.unlink()
        gone_s = queue.to_zero()
        _refuse_remains(queue, directory)
    at = sorted(moment - submitted_at for moment in began.values())
    yield _table(at, memory, gone_s)


def _table(at: list[float], memory: list[int], gone_s: float) -> Table:
    return Table(
        f"{len(at)} nodes at once, an array of {len(at)} jobs with a node each",
        ["", "first", "half", "last"],
        [
            ["submit -> running, s", *(f"{at[n]:.2f}" for n in (0, len(at) // 2, -1))],
            ["jobs that ran", "", "", str(len(at))],
            ["power_down -> all gone, s", "", "", f"{gone_s:.2f}"],
            ["memory of a node, MiB (PSS)", "", "", f"{sum(memory) / len(memory) / MIB:.1f}"],
        ],
    )


def _refuse_remains(queue: Queue, directory: Path) -> None:
    left = [*homes(Layout(directory / "o" / "state").instances).iterdir()]
    if left or links.ports(links.bridge_name(queue.cluster)):
        raise GaveUp(f"not gone: {left}")


def _memory(directory: Path) -> list[int]:
    """Bytes of each node: all processes of its pid namespace, shared pages split among sharers."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208
    spaces: dict[str, list[int]] = {}
    for pid in pids:
        spaces.setdefault(_space(pid), []).append(pid)
    firsts = [process.pid for home in directory.iterdir() if (process := read_process(home))]
    return [_resident(spaces[_space(first)]) for first in firsts]


def _space(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except OSError:
        return ""


def _resident(pids: Iterable[int]) -> int:
    return sum(_pss(Path(f"/proc/{pid}/smaps_rollup")) for pid in pids)


def _pss(path: Path) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
