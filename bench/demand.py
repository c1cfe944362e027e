"""What it costs to decide which nodes waiting jobs need, beside counting them and trying all.

The floor reads every job once and divides cores by cores: less cannot be done, and it is wrong as
soon as jobs differ. First fit tries every node for every task, as a loop without thought would.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from bench.nodeset import cpu_s
from bench.table import Table, milliseconds, ratio
from springtide.demand import demand
from springtide.packing import Pool, Room
from springtide.ports import Chunk, JobState, QueueJob

JOBS, NODES = 5000, 1000
FEW_JOBS, FEW_NODES = 500, 100
CORES, MEMORY = 64, 256_000
LIMIT_S = 0.2
REPEATS = 7
MOST_TRIED = 200
"""Tasks of an array that first fit tries; ours decides about all."""


def run(quick: bool) -> Iterator[Table]:
    count, nodes, repeats = (FEW_JOBS, FEW_NODES, 2) if quick else (JOBS, NODES, REPEATS)
    table = Table(
        f"nodes for {count:,} jobs that wait, {nodes:,} nodes, half of them up; CPU ms",
        ["", "ours", "floor", "ratio", "first fit", "ratio", "within 200 ms"],
        notes=[
            "floor: cores asked for, divided by those of a node",
            f"first fit: no more than {MOST_TRIED} tasks of an array; ours has all of them",
            "ratio: ours to that",
        ],
    )
    rooms, pools = _rooms(nodes), [_pool(nodes)]
    for what, jobs in _cases(count, nodes).items():
        ours = cpu_s(partial(demand, jobs, rooms, pools), repeats)
        floor = cpu_s(partial(_counted, jobs, nodes), repeats)
        naive = cpu_s(partial(_first_fit, jobs, rooms, nodes), 1)
        numbers = [milliseconds(ours), milliseconds(floor), ratio(ours, floor)]
        rest = [milliseconds(naive), ratio(ours, naive), "yes" if ours <= LIMIT_S else "NO"]
        table.rows.append([what, *numbers, *rest])
    yield table


def _cases(count: int, nodes: int) -> dict[str, list[QueueJob]]:
    singles = [_job(n, Chunk()) for n in range(count)]
    arrays = [_job(n, Chunk(cores=1 + n % 7), tasks=100_000) for n in range(100)]
    unlike = [_job(n, Chunk(cores=1 + n % 48, memory=(n * 37) % 60_000)) for n in range(100, count)]
    wide = [_job(n, Chunk(count=2 + n % 5, cores=1 + n % 48)) for n in range(count)]
    pairs = [_job(n, Chunk(count=2, cores=1 + n % 3), tasks=100_000) for n in range(100)]
    shared = [_job(n, Chunk(count=2, spread=False), tasks=100_000) for n in range(100)]
    uneven = [_job(n, Chunk(), Chunk(cores=2, memory=n), tasks=100_000) for n in range(100)]
    once = [replace(job, avoid=frozenset({"n1"})) for job in singles]
    failed = [replace(job, avoid=frozenset({f"n{n % nodes}"})) for n, job in enumerate(singles)]
    half = frozenset(f"n{n}" for n in range(0, nodes, 2))
    picky = [replace(job, avoid=half) for job in unlike]
    return {
        "all alike": singles,
        "all avoid the same node": once,
        "each avoids one of all nodes": failed,
        "no two alike, and all avoid half of the nodes": picky,
        "no two alike, and 100 arrays": [*arrays, *unlike],
        "of 2 to 6 nodes each": wide,
        "arrays of 2 nodes": pairs,
        "arrays of 2 parts of nodes": shared,
        "arrays of 1 and 2 cores": uneven,
        "of 2 to 6 nodes, and such arrays": [*pairs[:10], *uneven[:50], *wide[60:]],
    }


def _job(number: int, *chunks: Chunk, tasks: int = 1) -> QueueJob:
    return QueueJob(str(number), JobState.WAITING, "ann", ("cloud",), chunks, tasks)


def _pool(nodes: int) -> Pool:
    names = tuple(f"n{number}" for number in range(nodes))
    free = names[nodes // 2 :]
    queues = frozenset({"cloud"})
    return Pool("g", names, CORES, MEMORY, queues=queues, free=free, left=len(free))


def _rooms(nodes: int) -> list[Room]:
    """Those that are up are more or less busy."""
    return [Room(f"n{n}", "g", n % CORES, MEMORY * (n % CORES) // CORES) for n in range(nodes // 2)]


def _counted(jobs: Sequence[QueueJob], nodes: int) -> int:
    cores = 0
    for job in jobs:
        cores += job.tasks * sum(chunk.count * chunk.cores for chunk in job.chunks)
    return min(nodes, -(-cores // CORES))


def _first_fit(jobs: Sequence[QueueJob], rooms: Sequence[Room], count: int) -> int:
    nodes = [[room.cores, room.memory] for room in rooms]
    nodes += [[CORES, MEMORY] for _ in range(count - len(nodes))]
    placed = 0
    for job in jobs:
        for _ in range(min(job.tasks, MOST_TRIED)):
            placed += sum(_placed(nodes, chunk) for chunk in job.chunks)
    return placed


def _placed(nodes: Sequence[list[int]], chunk: Chunk) -> int:
    left = chunk.count
    for node in nodes:
        if left and node[0] >= chunk.cores and node[1] >= chunk.memory:
            node[0] -= chunk.cores
            node[1] -= chunk.memory
            left -= 1
    return chunk.count - left
